"""Each flag of ColossalChat's `train_ppo.py` (S0) and each argument of its `PPOTrainer` (S1) reaches where it is read, or is
refused with a reason. What a flag does there is tested where that lives; `test_seed_checklist.py` says where."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import tracker_stand_ins
from rich.console import Console
from saved_models import save_micro_model
from tiny_models import tiny_model
from trainer_harness import loader, make_trainer

from rlvr.boost import process as processes
from rlvr.boost.plugins import check_plugin
from rlvr.config import Config, parse
from rlvr.errors import UserError
from rlvr.models.actor import Float32Head
from rlvr.models.critic import Critic
from rlvr.models.loading import load_backbone
from rlvr.models.reward_model import RewardModel
from rlvr.prompting.conversation import ConversationTemplate
from rlvr.run.assembly import LocalHost
from rlvr.run.assembly import assemble as assemble_run
from rlvr.run.folder import OpenedFolder
from rlvr.run.session import Session
from rlvr.trainer.callbacks import Callback
from rlvr.trainer.ppo import LocalPPOTrainer
from rlvr.validate.ppo import check_config, plan_batches

pytestmark = pytest.mark.usefixtures("process")


@dataclass
class Built:
    """A run that is ready to begin."""

    config: Config
    plan: Any
    trainer: Any
    loader: Any
    ptx: Any


@pytest.fixture(scope="module")
def files(tmp_path_factory, micro_model) -> SimpleNamespace:
    """Models and data that flags can name."""
    folder = tmp_path_factory.mktemp("files")

    def rows(name: str, *items: dict) -> str:
        (folder / name).write_text("\n".join(map(json.dumps, items)))
        return str(folder / name)

    other = save_micro_model(folder / "other", seed=1)
    critic = Critic(load_backbone(other), seed=5)
    critic.save_pretrained(folder / "critic")
    RewardModel.from_base(other, seed=2).save_pretrained(folder / "rm")
    questions = [{"question": f"{i}+{i}" * (1 + 4 * (i == 9)), "answer": str(2 * i)} for i in range(10)]
    return SimpleNamespace(
        folder=folder, model=micro_model, other=other, critic=str(folder / "critic"), rm=str(folder / "rm"),
        data=rows("a.jsonl", *questions), more=rows("b.jsonl", *questions[:3]),
        ptx=rows("ptx.jsonl", *({"prompt": "1+1=", "response": str(i)} for i in range(5))),
    )  # fmt: skip


@pytest.fixture(scope="module")
def build(files) -> Callable[..., Built]:
    """Builds what `rlvr train` would begin with, from these flags over small ones."""
    made: dict[tuple[str, ...], Built] = {}

    def assemble(*given: str) -> Built:
        flags = [str(getattr(files, word[1:], word)) if word.startswith("@") else word for word in given]
        if tuple(flags) not in made:
            made[tuple(flags)] = fresh(flags)
        return made[tuple(flags)]

    def fresh(flags: list[str]) -> Built:
        base = ["--pretrain", files.model, "--prompt_dataset", files.data, "--reward_functions", "gsm8k_reward_fn"]
        config = parse([*base, "--conversation_template_config", "tiny", "--mixed_precision", "fp32", *flags])
        check_config(config)
        process = processes.start(0, 1)
        check_plugin(config.parallel, process.device)
        plan = plan_batches(config, 1)
        session = Session(process, Console(quiet=True), OpenedFolder(files.folder / "run", None, None))
        run = assemble_run(config, session, plan, LocalHost(config, session, plan, process))
        return Built(config, plan, run.trainer, run.loader, run.ptx)

    return assemble


def same_weights(folder: str, prefix: str, read: Callable[[Built], torch.nn.Module]) -> Callable[[Built], bool]:
    """Whether a role of the run has the weights of the model in `folder`."""

    def check(run: Built) -> bool:
        from safetensors.torch import load_file

        saved = load_file(Path(folder) / "model.safetensors")
        own = read(run).state_dict()
        return torch.equal(saved[prefix + "layers.0.mlp.up_proj.weight"], own["layers.0.mlp.up_proj.weight"])

    return check


def actor(run: Built) -> Any:
    return run.trainer.actor.unwrapped.model


def group(role: str, name: str) -> Callable[[Built], Any]:
    return lambda run: getattr(run.trainer, role).optimizer.param_groups[0][name]


def zero(run: Built) -> tuple[int, bool]:
    """The stage by which ColossalAI cuts gradients, and whether they may add up whole before that, as in ZeRO-1."""
    plugin = run.trainer.actor.booster.plugin
    return getattr(plugin, "stage", 0), plugin.support_no_sync()


# Row of the checklist, flags, where the value is read, and what is found there. `@name` is a file of the fixture.
FLAGS: list[tuple[str, str, Callable[[Built], Any], Any]] = [
    ("S0.22", "--prompt_dataset @more", lambda r: len(r.loader.items), 3),
    ("S0.22", "--prompt_dataset @data @more", lambda r: len(r.loader.items), 13),
    ("S0.23", "--conversation_template_config generic", lambda r: r.trainer.conversation.template == ConversationTemplate.load("generic"), True),
    ("S0.24", "--plugin zero1", zero, (2, True)),
    ("S0.24", "--plugin zero2", zero, (2, False)),
    ("S0.25", "--ptx_dataset @ptx --ptx_coef 0.5", lambda r: r.ptx and len(r.ptx.items), 5),
    ("S0.27", "--reward_functions correctness length_penalty", lambda r: r.trainer.maker.reward_model.names, ["correctness", "length_penalty"]),
    ("S0.28", "--num_episodes 7", lambda r: r.plan.num_episodes, 7),
    ("S0.29", "--num_collect_steps 3", lambda r: r.plan.samples_per_episode, 48),
    ("S0.30", "--num_update_steps 3", lambda r: r.plan.total_steps, 6),
    ("S0.31", "--train_batch_size 8", lambda r: r.trainer.config.train.train_batch_size, 8),
    ("S0.32", "--experience_batch_size 32", lambda r: r.loader.sampler.batch_size, 32),
    ("S0.33", "--lr 1e-4", group("actor", "initial_lr"), 1e-4),
    ("S0.34", "--critic_lr 1e-4", group("critic", "initial_lr"), 1e-4),
    ("--critic_steps", "--critic_steps 4", lambda r: r.plan.critic_steps, 40),
    ("S0.35", "--kl_coef 0.2", lambda r: r.trainer.config.algo.kl_coef, 0.2),
    ("S0.35", "--kl_coef 0", lambda r: r.trainer.maker.reference, None),
    ("S0.36", "--ptx_dataset @ptx --ptx_coef 0.5", lambda r: r.trainer.config.algo.ptx_coef, 0.5),
    ("S0.37", "--max_length 272", lambda r: len(r.loader.items), 9),
    ("S0.38", "--max_seq_len 20", lambda r: r.trainer.maker.sampling.max_new_tokens, 20),
    ("--ptx_batch_size", "--ptx_dataset @ptx --ptx_coef 0.5 --ptx_batch_size 2", lambda r: r.ptx and r.ptx.sampler.batch_size, 2),
    ("--grad_clip", "--grad_clip 0.3", lambda r: r.trainer.actor.grad_clip, 0.3),
    ("--weight_decay", "--weight_decay 0.01", group("actor", "weight_decay"), 0.01),
    ("--warmup_steps", "--warmup_steps 4", lambda r: round(r.trainer.actor.lr / 9e-6, 3), 0.2),
    ("--lr_schedule", "--lr_schedule constant", lambda r: r.trainer.actor.lr_scheduler.lr_lambdas[0](99), 1.0),
    ("--float32_head", "--float32_head", lambda r: isinstance(actor(r).lm_head, Float32Head), True),
    ("--float32_head", "--float32_head", lambda r: isinstance(r.trainer.maker.reference.model.model.lm_head, Float32Head), True),
    ("--lr_floor", "--lr_floor 0.5", lambda r: r.trainer.critic.lr_scheduler.lr_lambdas[0](99), 0.5),
    ("--adam_beta2", "--adam_beta2 0.95", group("critic", "betas"), (0.9, 0.95)),
    ("--adam_eps", "--adam_eps 1e-5", group("actor", "eps"), 1e-5),
    ("--accumulation_steps", "--accumulation_steps 2", lambda r: r.trainer.config.train.accumulation_steps, 2),
    ("--save_interval", "--save_interval 5", lambda r: r.trainer.save_interval, 5),
    ("--grad_checkpoint", "--grad_checkpoint", lambda r: actor(r).is_gradient_checkpointing, True),
    ("--mixed_precision", "--mixed_precision bf16", lambda r: r.trainer.actor._autocast, True),
]  # fmt: skip


@pytest.mark.parametrize(("row", "flags", "read", "found"), FLAGS, ids=[f"{f[0]} {f[1]}" for f in FLAGS])
def test_a_flag_reaches_where_it_is_read(build, row, flags, read, found) -> None:
    assert read(build(*flags.split())) == found
    assert read(build()) != found


WEIGHTS = [
    ("S0.20", "--pretrain @other", "model.", lambda r: actor(r).model),
    ("S0.20", "--pretrain @other", "model.", lambda r: r.trainer.maker.reference.model.model.model),
    ("S0.21", "--rm_pretrain @other", "model.", lambda r: r.trainer.critic.unwrapped.backbone),
    ("S0.39", "--checkpoint_path @other", "model.", lambda r: actor(r).model),
    ("--checkpoint_path", "--checkpoint_path @other", "model.", lambda r: r.trainer.critic.unwrapped.backbone),
    ("S0.41", "--rm_checkpoint_path @rm", "model.", lambda r: r.trainer.maker.reward_model.neural.frozen.model.decoder),
    ("S0.40", "--critic_checkpoint_path @critic", "model.", lambda r: r.trainer.critic.unwrapped.backbone),
    ("model_ref", "--model_ref @other", "model.", lambda r: r.trainer.maker.reference.model.model.model),
]  # fmt: skip


@pytest.mark.parametrize(("row", "flags", "prefix", "read"), WEIGHTS, ids=[f"{w[0]} {w[1]}" for w in WEIGHTS])
def test_a_flag_names_the_weights_of_a_role(build, files, row, flags, prefix, read) -> None:
    same = same_weights(files.other, prefix, read)
    assert same(build(*flags.split()))
    if row != "S0.41":  # without it there is no reward model to look at
        assert not same(build())


REFUSED = [
    ("S0.24", "--plugin gemini_auto", "needs a CUDA GPU"),
    ("S0.24", "--plugin 3d", "tensor and pipeline parallelism"),
    ("S0.26", "--no_neural_reward_model --rm_checkpoint_path @rm", "exclude each other"),
    ("S0.43", "--tp 2", "--tp 2 has no effect .* belongs to --plugin 3d"),
    ("S0.44", "--pp 2", "--pp 2 has no effect .* belongs to --plugin 3d"),
    ("S0.45", "--sp 2", "--sp 2 has no effect .* belongs to --plugin 3d"),
    ("--zero_stage", "--zero_stage 1", "--zero_stage 1 has no effect .* belongs to --plugin 3d"),
    ("--sp_mode", "--sp_mode ring", "--sp_mode ring has no effect .* belongs to --plugin 3d"),
    ("--enable_sequence_parallelism", "--enable_sequence_parallelism", "belongs to --plugin 3d"),
    ("--zero_cpu_offload", "--zero_cpu_offload", "take a ZeRO plugin"),
    ("--disable_loss_mask", "--disable_loss_mask", "would train on padding"),
    ("--ptx_coef", "--ptx_coef 0.5", "needs --ptx_dataset"),
]


@pytest.mark.parametrize(("row", "flags", "reason"), REFUSED, ids=[f"{r[0]} {r[1]}" for r in REFUSED])
def test_what_can_not_be_honoured_is_refused_with_a_reason(build, row, flags, reason) -> None:
    with pytest.raises(UserError, match=reason):
        build(*flags.split())


def test_one_trainer_takes_every_kind_of_reward(build) -> None:
    from rlvr.scorers.neural import NeuralRewardModel, WeightedRewards
    from rlvr.scorers.rules import RLVRRewardModel

    rules, both = build(), build("--rm_checkpoint_path", "@rm")
    neural = build("--rm_checkpoint_path", "@rm", "--reward_functions")
    assert type(rules.trainer) is type(both.trainer) is type(neural.trainer) is LocalPPOTrainer
    kinds = [type(run.trainer.maker.reward_model) for run in (rules, both, neural)]
    assert kinds == [RLVRRewardModel, WeightedRewards, NeuralRewardModel]


def test_stops_come_from_the_template(build, files) -> None:
    from rlvr.prompting.template import template_dir

    assert build().trainer.maker.sampling.stop_ids == (4,)  # <|end|>
    content = json.loads((template_dir() / "tiny.json").read_text()) | {"stop_ids": [4, 2]}
    (files.folder / "stops.json").write_text(json.dumps(content))
    sampling = build("--conversation_template_config", str(files.folder / "stops.json")).trainer.maker.sampling
    assert sampling.stop_ids == (4, 2)


def test_zero_on_the_cpu_keeps_the_optimizers_state_there(build) -> None:
    for flags in ("--plugin zero2_cpu", "--plugin zero2 --zero_cpu_offload"):
        plugin = build(*flags.split()).trainer.actor.booster.plugin
        assert plugin.stage == 2 and plugin.zero_optim_kwargs["cpu_offload"]
    assert not build(*"--plugin zero2".split()).trainer.actor.booster.plugin.zero_optim_kwargs["cpu_offload"]


def test_flags_that_name_what_is_loaded(build, monkeypatch) -> None:
    from rlvr.run import assembly, parts

    seen: dict[str, Any] = {}

    def load(name: str, **options: Any) -> Any:
        seen.update(options)
        raise UserError("enough")

    monkeypatch.setattr(parts, "load_causal_lm", load)
    with pytest.raises(UserError, match="enough"):
        build("--use_flash_attn")
    assert seen["flash_attention"] is True
    monkeypatch.setattr(assembly, "load_tokenizer", lambda name, trust: load(name, tokenizer=name))
    with pytest.raises(UserError, match="enough"):
        build("--tokenizer_dir", "somewhere")
    assert seen["tokenizer"] == "somewhere"


def test_logs_go_where_they_are_asked_to(build, files, monkeypatch) -> None:
    told = tracker_stand_ins.Recorder()
    tracker_stand_ins.install(monkeypatch, tracker_stand_ins.wandb(told))
    from rlvr.api import train

    folder = train(
        pretrain=files.model, prompt_dataset=[files.data], reward_functions=["gsm8k_reward_fn"], max_seq_len=4,
        experience_batch_size=4, train_batch_size=4, num_update_steps=1, conversation_template_config="tiny",
        save_path=str(files.folder / "logged"), log_dir=str(files.folder / "board"), use_wandb=True,
    )  # fmt: skip
    assert list((files.folder / "board").rglob("events.out.tfevents*"))
    rows = [row["data"] for row in told.of("log")]
    assert [row["episode"] for row in rows if "episode" in row] == [8]
    for role in ("actor", "critic"):  # S0.46
        assert (folder / role / "modeling" / "model.safetensors").is_file()


def test_train_takes_settings_by_the_names_of_their_flags() -> None:
    from rlvr.api import train

    with pytest.raises(UserError, match=r"no setting 'reward_function'.*reward_functions"):
        train(reward_function=["x"])
    with pytest.raises(UserError, match="'max_new_tokens' is given twice, once as 'max_seq_len'"):
        train(max_new_tokens=3, max_seq_len=4)
    with pytest.raises(UserError, match="not both"):
        train(Config(), lr=1e-3)
    with pytest.raises(UserError, match="rollout.max_new_tokens = 'many'"):
        train(max_seq_len="many")


# Arguments of `PPOTrainer`: row of the checklist, argument, value, where it is read.
ARGUMENTS: list[tuple[str, str, Any, Callable[[Any], Any]]] = [
    ("S1.13", "kl_coef", 0.3, lambda t: t.config.algo.kl_coef),
    ("S1.14", "ptx_coef", 0.9, lambda t: t.config.algo.ptx_coef),
    ("S1.15", "train_batch_size", 4, lambda t: t.config.train.train_batch_size),
    ("S1.16", "buffer_limit", 5, lambda t: t.buffer.limit),
    ("S1.17", "buffer_cpu_offload", False, lambda t: t.config.train.buffer_cpu_offload),
    ("S1.18", "eps_clip", 0.1, lambda t: t.config.algo.eps_clip),
    ("S1.19", "vf_coef", 0.5, lambda t: t.config.algo.vf_coef),
    ("S1.20", "value_clip", 0.4, lambda t: t.config.algo.value_clip),
    ("S1.21", "sample_buffer", True, lambda t: t.config.train.sample_buffer),
    ("S1.22", "dataloader_pin_memory", False, lambda t: t.learner.pin_memory),
    ("S1.25", "accumulation_steps", 2, lambda t: t._local_mini_batch // t.config.train.train_batch_size),
    ("S1.26", "save_interval", 3, lambda t: t.save_interval),
    ("S1.31", "temperature", 0.5, lambda t: t.maker.sampling.temperature),
    ("S1.31", "top_k", 5, lambda t: t.maker.sampling.top_k),
    ("S1.31", "max_new_tokens", 5, lambda t: t.maker.sampling.max_new_tokens),
]


@pytest.mark.parametrize(("row", "name", "value", "read"), ARGUMENTS, ids=[f"{a[0]} {a[1]}" for a in ARGUMENTS])
def test_an_argument_of_the_trainer_reaches_where_it_is_read(row, name, value, read) -> None:
    assert read(make_trainer(**{name: value})) == value
    assert read(make_trainer()) != value


def test_arguments_that_would_train_wrongly_are_refused() -> None:
    with pytest.raises(UserError, match="would train on padding"):
        make_trainer(apply_loss_mask=False)  # S1.24
    with pytest.raises(UserError, match="no tensor parallelism"):
        make_trainer(use_tp=True)  # S1.28


def test_a_language_model_that_was_boosted_already_is_told_what_to_do_instead() -> None:
    from colossalai.booster import Booster
    from colossalai.booster.plugin import TorchDDPPlugin

    from rlvr.trainer.roles import as_actor

    boosted, *_ = Booster(plugin=TorchDDPPlugin()).boost(tiny_model())
    with pytest.raises(
        UserError, match="pass it before booster.boost .the trainer boosts it., or boost rlvr.models.actor.Actor"
    ):
        as_actor(boosted)  # S1.4


def test_the_initial_model_is_offloaded_where_there_is_a_device_to_offload_it_from(monkeypatch) -> None:
    from rlvr.boost.boosted import Boosted

    monkeypatch.setattr(Boosted, "device", property(lambda self: torch.device("cuda")))
    monkeypatch.setattr("rlvr.trainer.ppo.make_reference", lambda *_: None)
    for wanted in (True, False):  # S1.23
        trainer = make_trainer(offload_inference_models=wanted)
        assert trainer.maker.offload_reference is wanted


def test_the_coordinator_says_who_writes() -> None:
    assert make_trainer(coordinator=SimpleNamespace(is_master=lambda: False)).is_main is False  # S1.29
    assert make_trainer().is_main is True


def test_every_hook_is_called() -> None:
    called: list[str] = []
    supervised = ("on_step_end", "on_log", "on_evaluate_pass")
    hooks = [name for name in vars(Callback) if name.startswith("on_") and name not in ("on_warning", *supervised)]
    recorder = type("Recorder", (Callback,), {name: _noting(called, name) for name in hooks})()
    trainer = make_trainer(callbacks=[recorder])
    trainer.evaluator = lambda: {"eval/accuracy": 0.0}
    trainer.fit(1, 1, 1, prompt_dataloader=loader(16))
    trainer.warn("something")
    assert set(called) == set(hooks)  # S1.30
    assert called[0] == "on_fit_start" and called[-1] == "on_fit_end"


def _noting(called: list[str], name: str) -> Callable[..., None]:
    return lambda self, *arguments: called.append(name)
