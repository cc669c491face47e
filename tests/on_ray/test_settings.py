"""What a Ray run refuses before, or just after, there is a cluster; and the flags of ColossalAI's script. No cluster runs."""

import builtins
import socket
import sys
from dataclasses import replace

import pytest
from seed_examples import TRAIN_ON_RAY, flags

from rlvr.cli.main import main
from rlvr.config import RayConfig, base_config, parse
from rlvr.errors import UserError
from rlvr.ray import cluster
from rlvr.ray.cluster import Cluster, code_versions, compare_versions
from rlvr.ray.flags import from_reference
from rlvr.ray.groups import Size, sizes
from rlvr.validate.ray import check_shares

REWARD = ["--reward_functions", "gsm8k_reward_fn", "--ray"]
AHEAD = ["--num_rollout_workers", "1", "--max_staleness", "1"]
FOUR_GPUS = Cluster(started=True, nodes=2, total={"CPU": 16.0, "GPU": 4.0}, free={"CPU": 16.0, "GPU": 3.0})
CPUS = Cluster(started=True, nodes=1, total={"CPU": 4.0}, free={"CPU": 4.0})


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--num_critic_nodes", "0"], "--num_critic_nodes 0: must be at least 1"),
        (["--num_actor_nodes", "-1"], "--num_actor_nodes -1"),
        (["--num_gpus_per_node", "-1"], "must be at least 0"),
        (["--num_cpus_per_node", "0"], "must be at least 1"),
        (["--num_gpus_per_process", "2"], "above 0 and at most 1"),
        (["--min_reward_workers", "0"], "must be at least 1"),
        (["--min_reward_workers", "5"], "--max_reward_workers 4 is less"),
        (["--plugin", "3d"], "does not go with --ray"),
        (["--max_staleness", "-1"], "--max_staleness -1: must be at least 0"),
        (["--max_staleness", "1"], "--max_staleness 1 has no effect without rollout workers"),
        ([*AHEAD, "--mismatch_correction", "none"], "would leave uncorrected: give truncate or mask"),
        ([*AHEAD, "--engine", "generate"], "--mismatch_correction truncate has no effect with --engine generate"),
        (["--num_rollout_workers", "-1"], "must be at least 0"),
        (["--num_rollout_workers", "3"], "at most 1 requests at a time (--experience_batch_size 256 in parts of --generation_batch_size 256)"),
        (["--num_rollout_workers", "3"], "give --generation_batch_size 85, or --num_rollout_workers 1"),
        ([*AHEAD, "--num_rollout_workers", "4", "--num_generations", "8"], "give --generation_batch_size 128, or --num_rollout_workers 2"),
        (["--partial_rollout_tokens", "9"], "--partial_rollout_tokens 9 has no effect without episodes generated ahead; give --partial_rollout_tokens 0, or give --max_staleness K"),
        ([*AHEAD, "--partial_rollout_tokens", "-1"], "--partial_rollout_tokens -1: must be at least 0"),
        ([*AHEAD, "--partial_rollout_tokens", "64"], "no response is longer than --max_new_tokens 64"),
        (["--ray_address", "ray://head:10001"], "give HOST:PORT"),
        (["--ray_address", "head"], "give HOST:PORT"),
        (["--ray_address", "head:99999"], "give HOST:PORT"),
    ],
)  # fmt: skip
def test_mistakes_give_one_message(flags, said, capsys, tmp_path) -> None:
    assert main(["train", *REWARD, *flags, "--save_path", str(tmp_path / "run")]) == 2
    text = capsys.readouterr().err
    assert said in text and text.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_an_address_where_nobody_answers(capsys) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert main(["train", *REWARD, "--ray_address", address]) == 2
    assert f"--ray_address {address}: nobody answers there" in capsys.readouterr().err


def test_a_cluster_that_does_not_start(monkeypatch) -> None:
    """A raylet that is killed meanwhile, or a machine too busy for it."""
    ended = []

    class Ray:
        def is_initialized(self) -> bool:
            return False

        def init(self, **options) -> None:
            raise Exception("The current node timed out during startup.\nThis could happen because ...")

        def shutdown(self) -> None:
            ended.append(True)

    monkeypatch.setattr(cluster, "import_ray", Ray)
    with pytest.raises(UserError, match="no cluster could be started on this machine: The current node timed out"):
        cluster.connect(RayConfig(ray=True), 4)
    assert ended


def test_without_the_package(monkeypatch) -> None:
    real = builtins.__import__

    def absent(name, *arguments, **keywords):
        if name == "ray":
            raise ImportError(name)
        return real(name, *arguments, **keywords)

    monkeypatch.delitem(sys.modules, "ray", raising=False)
    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(UserError, match=r"pip install 'rlvr\[ray\]'"):
        cluster.import_ray()


@pytest.mark.parametrize(
    ("settings", "nodes", "where", "said"),
    [
        (RayConfig(num_actor_nodes=3), {"actor": 3}, FOUR_GPUS, "--num_actor_nodes 3: the cluster has 2 node"),
        (
            RayConfig(num_gpus_per_node=2),
            {"actor": 1, "critic": 1},
            FOUR_GPUS,
            r"need 4 GPUs \(actor 2, critic 2\), and 3 of the cluster's 4 are free",
        ),
        (RayConfig(num_rollout_workers=4), {"actor": 1}, CPUS, r"need 5 CPUs \(actor 1, rollout 4\), and 4 of"),
        (RayConfig(num_gpus_per_node=1), {"actor": 1}, CPUS, r"need 1 GPUs \(actor 1\), and 0 of the cluster's 0"),
        (RayConfig(num_cpus_per_node=5), {"actor": 1}, CPUS, "need 5 CPUs"),
        (RayConfig(num_cpus_per_node=2), {"actor": 1}, FOUR_GPUS, "--num_cpus_per_node has no effect"),
        (RayConfig(num_gpus_per_process=0.5), {"actor": 1}, CPUS, "--num_gpus_per_process has no effect"),
    ],
)
def test_more_than_the_cluster_has(settings, nodes, where, said) -> None:
    with pytest.raises(UserError, match=said):
        sizes(settings, nodes, where)


def test_roles_get_gpus_where_there_are_any() -> None:
    assert sizes(RayConfig(), {"actor": 2}, FOUR_GPUS) == {"actor": Size(2, 1, 1)}
    assert sizes(RayConfig(num_gpus_per_node=0, num_cpus_per_node=3), {"actor": 2}, FOUR_GPUS) == {
        "actor": Size(2, 3, 0)
    }
    quarter = sizes(RayConfig(num_gpus_per_process=0.25), dict.fromkeys(("actor", "critic", "initial"), 1), FOUR_GPUS)
    assert [size.bundle for size in quarter.values()] == [{"CPU": 1.0, "GPU": 0.25}] * 3
    pool = sizes(RayConfig(num_gpus_per_process=0.5, num_rollout_workers=2), {"actor": 1}, FOUR_GPUS)
    assert pool["rollout"].world_size == 2 and pool["rollout"].gpu == 0.5
    assert sizes(RayConfig(), {"critic": 1}, CPUS) == {"critic": Size(1, 1, 0)}
    assert Size(2, 3, 1).bundle == {"CPU": 3.0, "GPU": 3.0} and Size(2, 3, 1).world_size == 6


def test_workers_with_other_code() -> None:
    compare_versions(code_versions(), "process 0 of the actor")
    other = code_versions() | {"torch": "1.0"}
    with pytest.raises(UserError, match=rf"process 1 of the critic.*torch: {code_versions()['torch']} here, 1.0 there"):
        compare_versions(other, "process 1 of the critic")
    with pytest.raises(UserError, match="rlvr: .* here, none there"):
        compare_versions({n: v for n, v in other.items() if n != "rlvr"}, "a reward worker")


@pytest.mark.parametrize(
    ("role", "settings", "said"),
    [
        (
            "actor",
            {"experience_batch_size": 6, "num_generations": 2},
            "--experience_batch_size 6 .* 2 processes of the actor",
        ),
        ("critic", {"train_batch_size": 5}, "--train_batch_size 5 .* 2 processes of the critic"),
    ],
)
def test_batches_that_do_not_divide(role, settings, said) -> None:
    config = base_config()
    places = {"train_batch_size": "train"}
    for name, value in settings.items():
        section = places.get(name, "rollout")
        setattr(config, section, replace(getattr(config, section), **{name: value}))
    check_shares(config, {role: 1})
    with pytest.raises(UserError, match=said):
        check_shares(config, {role: 2})


def test_the_flags_of_the_script() -> None:
    """Every flag of ColossalAI's `train_prompts_on_ray.py`, and what becomes of it."""
    words = (
        "--prompt_csv_url prompts.csv --strategy colossalai_zero2 --model opt --pretrain my/opt --save_path out --num_episodes 3 "
        "--max_timesteps 8 --update_timesteps 4 --train_batch_size 4 --experience_batch_size 16 --num_actor_nodes 2 "
        "--num_critic_nodes 3 --num_initial_nodes 4 --num_reward_nodes 5 --num_gpus_per_node 6"
    ).split()
    argv, family = from_reference(words)
    config = parse(argv)
    r = config.ray
    assert (config.data.prompt_csv_url, config.parallel.plugin, config.model.pretrain, family) == (
        "prompts.csv", "zero2", "my/opt", "opt",
    )  # fmt: skip
    assert (config.ckpt.save_path, config.train.num_episodes, config.train.num_collect_steps) == ("out", 6, 4)
    assert (config.train.train_batch_size, config.rollout.experience_batch_size) == (4, 16)
    assert (r.num_actor_nodes, r.num_critic_nodes, r.num_initial_nodes, r.num_reward_nodes) == (2, 3, 4, 5)
    assert r.ray and r.num_gpus_per_node == 6


def test_its_example() -> None:
    """The usage example of the script's page, word by word."""
    argv, family = from_reference(flags(TRAIN_ON_RAY, "train_prompts_on_ray.py"))
    config = parse(argv)
    assert (config.data.prompt_csv_url, config.model.pretrain, family) == ("path/to/prompts.csv", "gpt2", "gpt2")
    assert (config.parallel.plugin, config.ray.num_actor_nodes, config.ray.num_gpus_per_node) == ("zero2", 2, 4)
    assert (config.train.num_episodes, config.train.num_collect_steps) == (10, 10)


def test_its_defaults() -> None:
    argv, family = from_reference(["--prompt_csv_url", "prompts.csv"])
    config = parse(argv)
    assert (config.model.pretrain, config.parallel.plugin, family) == ("gpt2", "ddp", None)
    assert (config.train.num_episodes, config.train.num_collect_steps, config.train.num_update_steps) == (10, 10, 1)
    assert (config.train.train_batch_size, config.rollout.experience_batch_size) == (8, 8)
    assert config.ckpt.save_path == "actor_checkpoint_prompts.pt"
    longer = parse(
        from_reference(["--max_timesteps", "4", "--num_episodes", "6"])[0]
    )  # an update after steps 10 and 20 of 24
    assert (longer.train.num_episodes, longer.train.num_collect_steps) == (2, 10)
    assert from_reference(["--model", "bloom"])[0][:2] == ["--ray", "--pretrain"]
    assert parse(from_reference(["--model", "bloom"])[0]).model.pretrain == "bigscience/bloom-560m"
    assert parse(from_reference(["--model", "my/folder"])[0]).model.pretrain == "my/folder"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--update_timesteps", "31", "--max_timesteps", "10", "--num_episodes", "3"],
            "--update_timesteps 31 is more than the 3 x 10 steps",
        ),
        (["--update_timesteps", "0"], "--update_timesteps 0: must be at least 1"),
        (["--update_timesteps", "many"], "whole number"),
        (["--update_timesteps"], "needs a value"),
    ],
)
def test_its_flags_with_impossible_values(words, said) -> None:
    with pytest.raises(UserError, match=said):
        from_reference(words)
