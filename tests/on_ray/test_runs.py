"""Runs on a Ray cluster of this machine. One cluster, and processes that take up role after role: starting them is what
costs. The last tests kill some of them."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from ray_harness import KillAfterCollecting, process_of, rows, same, settings, stopped, weights
from seed_examples import TRAIN_ON_RAY, flags
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

import rlvr.ray.train as on_ray
from rlvr.api import train
from rlvr.checkpoint.storage import WEIGHTS, list_checkpoints
from rlvr.cli.main import main
from rlvr.config import Config, build, load_yaml, merge, overlay, to_dict
from rlvr.errors import UserError
from rlvr.models.tiny import build_tiny_tokenizer
from rlvr.ray.cluster import Cluster, collect
from rlvr.ray.groups import Size, sizes
from rlvr.replay.repeat import first_difference
from rlvr.run import assembly

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("process")]


@pytest.fixture(scope="module")
def local(micro_model, tmp_path_factory, process) -> Path:
    return train(settings(micro_model, tmp_path_factory.mktemp("local") / "run", remote=False))


def test_a_journal_is_the_local_trainers_and_its_steps_are_computed_again(cast, micro_model, tmp_path, capsys) -> None:
    runs = [tmp_path / "ray", tmp_path / "local"]
    for folder in runs:
        journal = {"log": {"journal": 9}, "ckpt": {"save_path": str(folder), "save_interval": 1, "keep_checkpoints": 9}}
        train(settings(micro_model, folder, remote=folder.name == "ray", **journal))
    assert first_difference(*runs).step is None and first_difference(*runs).same_steps > 1
    capsys.readouterr()
    assert main(["replay", str(runs[0]), "--bisect", "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [step["same"] for step in found] == [True] * first_difference(*runs).same_steps


def test_episodes_of_several_turns_are_the_local_trainers(cast, micro_model, tmp_path) -> None:
    """The actor's own process plays, with an environment in workers of its own."""
    template = json.loads((ROOT / "templates" / "tiny.json").read_text())
    template["stop_ids"] += list("13579+-*/=")  # many ends, so that a random model takes several turns
    (tmp_path / "template.json").write_text(json.dumps(template))
    played = {
        "env": {"environment": f"{ROOT}/tests/naughty_environment.py:Twice", "max_turns": 3},
        "reward": {"reward_functions": [], "reward_timeout_s": 60.0, "reward_workers": 1},
        "template": {"conversation_template_config": str(tmp_path / "template.json"), "template_check": "warn"},
    }
    runs = [train(settings(micro_model, tmp_path / str(remote), remote, **played)) for remote in (True, False)]
    assert rows(runs[0]) == rows(runs[1]) and same(*runs)
    assert 1 < rows(runs[0])[1]["environment/turns"] < 3


def test_one_process_a_role_gives_the_local_trainers_losses_and_weights(cast, local, micro_model, tmp_path) -> None:
    folder = train(settings(micro_model, tmp_path / "run", remote=True))
    assert rows(folder) == rows(local)
    assert len(rows(folder)) == 3 and rows(folder)[1]["train/critic_loss"] > 0
    assert same(folder, local)
    assert (folder / "samples.jsonl").read_text() == (local / "samples.jsonl").read_text()
    AutoModelForCausalLM.from_pretrained(folder / "actor" / "modeling")
    saved = [{f.name for f in (run / "actor" / "modeling").iterdir()} for run in (folder, local)]
    assert saved[0] == saved[1]
    settings_of = [(run / "actor" / "modeling" / "generation_config.json").read_text() for run in (folder, local)]
    assert settings_of[0] == settings_of[1]


VARIANTS = {
    "adapters over 4 bits, which are the reference": {
        "model": {"lora_config": "lora.json", "load_in_4bit": True}, "algo": {"kl_coef": 0.05},
    },
    "no critic, further prompts, ptx": {
        "algo": {"estimator": "grpo", "dynamic_sampling": True, "max_refills": 1, "ptx_coef": 0.1, "kl_in": "loss"},
        "data": {"max_samples": 40, "ptx_dataset": ["ptx.jsonl"]},
    },
    "values from the actor, token budget": {
        "model": {"share_trunk": True}, "train": {"micro_batch_tokens": 256, "accumulation_steps": 2},
        "parallel": {"plugin": "zero1", "mixed_precision": "bf16"}, "algo": {"kl_coef": 0.0},
    },
    "sharded weights": {"parallel": {"plugin": "fsdp"}, "algo": {"kl_coef": 0.05}},
    "squared probabilities, further prompts": {
        "algo": {"estimator": "optimal_token_baseline", "dynamic_sampling": True, "max_refills": 1, "kl_coef": 0.0},
    },
    "a reference that is reset": {"algo": {"kl_coef": 0.05, "reference_reset_interval": 1}},
    "greedy responses, rewards of the whole batch": {
        "algo": {"estimator": "remax", "positive_lm_coef": 0.1},
        "reward": {"reward_functions": ["batch.py:by_rank", "gsm8k_reward_fn"], "reward_workers": 0},
    },
    "a neural reward model beside rules": {
        "model": {"rm_checkpoint_path": "reward_model"}, "reward": {"reward_normalisation": "running"},
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def files(micro_model, tmp_path_factory) -> Path:
    """What the variants name."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "lora.json").write_text('{"r": 4, "lora_alpha": 8, "target_modules": "all-linear"}')
    (folder / "ptx.jsonl").write_text(
        "".join(json.dumps({"prompt": f"{n}+1=?", "response": str(n + 1)}) + "\n" for n in range(8))
    )
    (folder / "batch.py").write_text(
        "def by_rank(responses):\n    order = sorted(responses)\n    return [order.index(r) / len(order) for r in responses]\n"
    )
    model = AutoModelForSequenceClassification.from_pretrained(micro_model, num_labels=1)
    model.save_pretrained(folder / "reward_model")
    build_tiny_tokenizer().save_pretrained(folder / "reward_model")
    return folder


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_kind_of_run_is_the_local_one(cast, micro_model, files, variant, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(files)
    local = train(settings(micro_model, tmp_path / "local", remote=False, **VARIANTS[variant]))
    remote = train(settings(micro_model, tmp_path / "remote", remote=True, **VARIANTS[variant]))
    for mine, theirs in zip(rows(remote), rows(local), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-12)
    assert same(remote, local)


def save_family(family: str, folder: Path) -> str:
    """A random model of a family of ColossalAI's script, with the built-in tokenizer."""
    from transformers import BloomConfig, GPT2Config, OPTConfig

    tokenizer = build_tiny_tokenizer()
    common = {
        "vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": None,
    }  # fmt: skip
    configs = {
        "gpt2": lambda: GPT2Config(n_embd=16, n_layer=1, n_head=2, n_positions=256, **common),
        "opt": lambda: OPTConfig(
            hidden_size=16, ffn_dim=32, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=256,
            word_embed_proj_dim=16, **common,
        ),
        "bloom": lambda: BloomConfig(hidden_size=16, n_layer=1, n_head=2, **common),
    }  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(configs[family]()).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize(
    ("family", "strategy"), [("gpt2", "ddp"), ("opt", "colossalai_zero2"), ("bloom", "colossalai_gemini")]
)
def test_the_scripts_families_and_strategies(cast, family, strategy, tmp_path, capsys) -> None:
    """Through the script's own flags, with prompts from a CSV file."""
    from rlvr.cli.train import ray_command

    model = save_family(family, tmp_path / family)
    path = tmp_path / "prompts.csv"
    path.write_text("prompt,answer\n" + "".join(f"{a}+{a},{2 * a}\n" for a in range(10, 30)))
    folder = tmp_path / "run"
    instead = {"path/to/prompts.csv": str(path), "colossalai_zero2": strategy, "2": "1", "4": "0", "10": "1"}
    words = flags(TRAIN_ON_RAY.replace("--model gpt2", f"--model {family}"), "train_prompts_on_ray.py", **instead)
    words[words.index("--pretrain") + 1] = model
    # By default it learns after ten steps, which is once here.
    few, episodes = ("--max_timesteps 10", 1) if family == "gpt2" else ("--max_timesteps 2 --update_timesteps 1", 2)
    ray_command(
        [
            *words,
            *f"--save_path {folder} {few} --reward_functions gsm8k_reward_fn --max_new_tokens 8 --max_length 128".split(),
            *f"--mixed_precision {'bf16' if strategy == 'colossalai_gemini' else 'fp32'} --num_threads 1 --no_progress".split(),
        ]
    )
    assert len(rows(folder)) == episodes and all(row["train/actor_loss"] is not None for row in rows(folder))
    assert AutoModelForCausalLM.from_pretrained(folder / "actor" / "modeling").config.model_type == family
    with pytest.raises(UserError, match=f"is a {family} model"):
        ray_command(["--model", "gpt2" if family != "gpt2" else "opt", "--pretrain", model])


@pytest.mark.parametrize(("plugin", "twice"), [("ddp", ["actor"]), ("fsdp", ["actor", "initial"])])
def test_two_processes_a_role_give_the_losses_of_one(cast, micro_model, tmp_path, plugin, twice) -> None:
    """With recorded responses of unequal lengths. Two actors beside one critic: their numbers need not be equal."""
    data = tmp_path / "recorded.jsonl"
    data.write_text(
        "\n".join(
            json.dumps(
                {
                    "question": f"{a}+{a}", "answer": str(2 * a),
                    "response": f"<think>{'hm ' * (a % 5)}</think><answer>{2 * a if a % 3 else a}</answer>",
                }
            )
            for a in range(10, 30)
        )
    )  # fmt: skip
    other = tmp_path / "other.jsonl"
    other.write_text("".join(f"{line}\n" for line in data.read_text().splitlines()[:7]))
    common = {
        "rollout": {"engine": "replay", "max_new_tokens": 40, "max_length": 160},
        "data": {"prompt_dataset": [str(data)], "eval_datasets": [str(data), str(other)]},
        "parallel": {"plugin": plugin},
        "algo": {"kl_coef": 0.05},
    }
    alone = train(settings(micro_model, tmp_path / "alone", remote=False, **common))
    size = Size(1, 2, 0)
    for role in twice:
        cast.group(role)(size)
    with pytest.MonkeyPatch.context() as patch:
        # One process for the others, where --num_cpus_per_node gives all roles as many.
        patch.setattr(on_ray, "sizes", lambda r, nodes, c: {n: size if n in twice else Size(1, 1, 0) for n in nodes})
        together = train(settings(micro_model, tmp_path / "together", remote=True, **common))
    for mine, theirs in zip(rows(together), rows(alone), strict=True):
        assert mine.keys() == theirs.keys()
        for name, value in mine.items():
            assert value == pytest.approx(theirs[name], rel=2e-5, abs=5e-5), name
    assert rows(alone)[0]["eval/recorded/accuracy"] != rows(alone)[0]["eval/other/accuracy"]
    one, two = weights(alone), weights(together)
    assert all(torch.allclose(one[n], two[n], atol=2e-5) for n in one) and one.keys() == two.keys()


def test_the_example_of_two_machines_runs(cast, micro_model, tmp_path) -> None:
    """examples/ray_two_machines: on its two machines the actor would have 16 processes; here it has two, of one node."""
    example = load_yaml(str(Path(__file__).parents[2] / "examples" / "ray_two_machines" / "run.yaml"))
    given = build(Config, example)
    machines = Cluster(started=False, nodes=2, total={"GPU": 16, "CPU": 64}, free={"GPU": 16, "CPU": 64})
    there = {"actor": given.ray.num_actor_nodes}
    assert sizes(given.ray, there, machines) == {"actor": Size(2, 8, 1)}
    small = settings(micro_model, tmp_path / "run", remote=True, algo={"estimator": "dr_grpo"}, eval={})
    config = build(
        Config, overlay(example, to_dict(small), {"algo": {"preset": "drgrpo"}, "train": {"critic_lr": 9e-6}})
    )
    size = Size(1, 2, 0)
    cast.group("actor")(size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(on_ray, "sizes", lambda r, nodes, c: {name: size for name in nodes})
        folder = train(config)
    assert [row["step"] for row in rows(folder)] == [0, 1, 2] and "loss/policy_avg" in rows(folder)[-1]


@pytest.mark.parametrize("on_ray_again", [True, False])
def test_a_stopped_run_goes_on_bit_for_bit_with_and_without_ray(
    cast, local, micro_model, tmp_path, on_ray_again
) -> None:
    """It is stopped in the middle of learning; one process's checkpoints are the same wherever its models are."""
    config = settings(micro_model, tmp_path / "run", remote=True)
    folder = stopped(config, 2)
    assert not (folder / "actor").exists()
    train(merge(config, {"ckpt": {"resume": True}, "ray": {"ray": on_ray_again}}))
    assert same(folder, local)
    for mine, theirs in zip(rows(folder), rows(local), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-12)


def test_a_stopped_run_goes_on_with_the_reference_that_it_had(cast, micro_model, tmp_path) -> None:
    """It is stopped between two collect steps, after the reference became the actor, whose starting weights would be another."""
    follows = {"algo": {"kl_coef": 0.05, "reference_reset_interval": 1}, "train": {"num_collect_steps": 2}}
    local = train(settings(micro_model, tmp_path / "local", remote=False, **follows))
    config = settings(micro_model, tmp_path / "run", remote=True, **follows)
    folder = stopped(config, 7)
    assert [path.name for path in folder.glob("checkpoints/*/reference/*")] == [WEIGHTS]
    train(merge(config, {"ckpt": {"resume": True}}))
    assert same(folder, local)
    for mine, theirs in zip(rows(folder), rows(local), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-12)


def test_a_function_that_hangs_does_not_block_the_run(cast, micro_model, tmp_path) -> None:
    plugin = tmp_path / "sleepy.py"
    plugin.write_text(
        "import time\nfrom rewards import reward_fn\n\n@reward_fn('sleepy')\ndef sleepy(response, question):\n"
        "    time.sleep(60 if sum(map(ord, question)) % 2 else 0)\n    return float(len(response))\n"
    )
    rewards = {
        "reward_functions": ["sleepy"], "reward_plugins": [str(plugin)], "reward_timeout_s": 0.2, "max_reward_failures": 1.0,
    }  # fmt: skip
    folder = train(settings(micro_model, tmp_path / "run", remote=True, reward=rewards, train={"num_episodes": 1}))
    assert 0 < rows(folder)[1]["reward/sleepy/failed"] < 1


def test_a_mistake_in_a_role_is_told_as_it_is_without_ray(cast, micro_model, tmp_path, capsys) -> None:
    plugin = tmp_path / "odd.py"
    plugin.write_text("from rewards import reward_fn\n\n@reward_fn('odd')\ndef odd(response):\n    return 'high'\n")
    flags = f"--ray --pretrain {micro_model} --reward_functions odd --reward_plugins {plugin} --reward_workers 0"
    flags += f" --experience_batch_size 8 --train_batch_size 8 --max_samples 20 --eval_samples 4 --save_path {tmp_path / 'run'}"
    assert main(["train", *flags.split()]) == 2
    text = capsys.readouterr().err
    assert text.startswith("error: ") and "odd" in text and "Traceback" not in text


def test_a_killed_reward_worker_is_replaced_and_its_work_done_again(cast, local, micro_model, tmp_path) -> None:
    config = settings(micro_model, tmp_path / "run", remote=True)
    [worker] = cast.pool(config, 1, 4).workers
    killed = process_of(worker.handle, "process_id")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembly, "Watch", lambda: KillAfterCollecting(killed))
        train(config)
    assert rows(tmp_path / "run") == rows(local)
    assert killed not in psutil.pids()


def test_workers_come_with_the_queue_and_go_without(cast, micro_model, tmp_path, monkeypatch) -> None:
    from rlvr.ray import rewards

    monkeypatch.setattr(rewards, "GROW_S", 0.2)
    monkeypatch.setattr(rewards, "IDLE_S", 0.0)
    pool = cast.pool(settings(micro_model, tmp_path / "run", remote=True), 1, 4)
    pool.most = 2
    stuck = rewards._Job((), time.monotonic() - 1)
    busy = pool.workers[0]
    busy.working = ["not a reference"]
    monkeypatch.setattr(pool, "_look_after", lambda worker, now: None)
    pool._queue.append(stuck)
    pool.pump()
    assert len(pool.workers) == 2 and pool.workers[1].ready is not None and stuck.result is None
    pool.pump()
    assert len(pool.workers) == 2
    busy.working, pool.workers[1].ready = [], None
    pool._queue.clear()
    pool.pump()
    assert len(pool.workers) == 1


def test_a_killed_trainer_leaves_a_checkpoint_to_go_on_from(cast, local, micro_model, tmp_path, capsys) -> None:
    config = settings(micro_model, tmp_path / "run", remote=True, ckpt={"save_interval": 1})
    [critic] = cast.groups["critic", Size(1, 1, 0)].processes

    class KillLater(KillAfterCollecting):
        def on_make_experience_end(self, trainer: Any, collected: Any) -> None:
            if trainer.progress.episode == 1:
                os.kill(killed, signal.SIGKILL)

    killed = process_of(critic, "identity")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembly, "Watch", lambda: KillLater(killed))
        with pytest.raises(UserError) as error:
            train(config)
    [checkpoint] = list_checkpoints(tmp_path / "run")
    assert "process 0 of the critic died" in str(error.value) and f"Go on from {checkpoint}" in str(error.value)
    assert "--resume" in str(error.value) and len(str(error.value)) < 600
    train(merge(config, {"ckpt": {"resume": True, "save_interval": 0}, "ray": {"ray": False}}))
    assert same(tmp_path / "run", local)


def test_a_process_that_does_not_start_is_named(cluster) -> None:
    import ray

    late = ray.remote(num_cpus=0)(lambda: time.sleep(3))
    with pytest.raises(UserError, match="a critic did not start within 0 s: see worker"):
        collect([late.remote()], ["a critic"], 0.2)
