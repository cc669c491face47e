"""The trainer with TRL's arguments: each of them arrives, and what can't be honoured is refused with a reason."""

import json
from dataclasses import fields
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel
from tiny_models import VOCAB, tiny_model
from trainer_harness import LetterTokenizer, share_of_f, weights
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForSequenceClassification, TrainerCallback

import rlvr
from rlvr.compat.trl import PPOConfig, PPOTrainer
from rlvr.compat.trl_config import _REFUSED
from rlvr.errors import UserError
from rlvr.models.critic import Critic

pytestmark = pytest.mark.usefixtures("process")
SMALL: dict[str, Any] = {
    "per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, "num_mini_batches": 2, "total_episodes": 32,
    "num_ppo_epochs": 2, "response_length": 6, "stop_token": "eos", "bf16": False, "disable_tqdm": True,
}  # fmt: skip
ROWS = [{"input_ids": [5 + i % 20, *range(6, 6 + i % 3)], "colour": "red"} for i in range(10)]


class Tokenizer(LetterTokenizer):
    def __len__(self) -> int:
        return VOCAB

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [self.letters.index(letter) for letter in text]

    def save_pretrained(self, folder) -> None:
        (folder / "tokenizer.txt").write_text("letters")


def classifier(labels: int = 1, seed: int = 0) -> LlamaForSequenceClassification:
    torch.manual_seed(seed)
    return LlamaForSequenceClassification(
        LlamaConfig(
            vocab_size=VOCAB, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_labels=labels,
            pad_token_id=None,  # transformers would score the token before an end token that pads
        )
    ).eval()  # fmt: skip


def make(args: dict[str, Any] | None = None, **changes: Any) -> PPOTrainer:
    arguments: dict[str, Any] = {
        "processing_class": Tokenizer(), "model": tiny_model(), "ref_model": None, "reward_model": share_of_f,
        "train_dataset": ROWS,
    }  # fmt: skip
    return PPOTrainer(args=PPOConfig(**SMALL | (args or {})), **arguments | changes)


def test_it_trains_logs_trls_metrics_and_saves_a_policy_that_transformers_loads(tmp_path) -> None:
    facade = make({"output_dir": str(tmp_path / "run"), "learning_rate": 2e-2, "total_episodes": 160, "kl_coef": 0.0})
    facade.train()
    scores = [row["objective/scores"] for row in facade.log_history]
    assert sum(scores[-3:]) > 2 * sum(scores[:3])
    assert len(scores) == 10 and facade.log_history[-1]["episode"] == 160
    expected = {
        "objective/kl", "objective/entropy", "objective/non_score_reward", "objective/rlhf_reward", "objective/scores",
        "policy/approxkl_avg", "policy/clipfrac_avg", "loss/policy_avg", "loss/value_avg", "val/clipfrac_avg", "val/ratio",
        "val/ratio_var", "val/num_eos_tokens", "lr", "episode",
    }  # fmt: skip
    assert expected <= set(facade.log_history[0])
    assert facade.trainer.progress.optimizer_steps == 10 * 2 * 2  # updates x epochs x mini-batches
    facade.save_model(tmp_path / "policy")
    saved = AutoModelForCausalLM.from_pretrained(tmp_path / "policy")
    ids = torch.tensor([[5, 6, 7]])
    torch.testing.assert_close(saved(ids).logits, facade.trainer.actor.unwrapped.model(ids).logits)
    assert (tmp_path / "policy" / "tokenizer.txt").is_file()
    assert (tmp_path / "run" / "actor" / "modeling").is_dir() and (tmp_path / "run" / "metrics.jsonl").is_file()


def test_with_a_peft_config_only_adapters_and_values_learn(tmp_path) -> None:
    base = tiny_model()
    facade = make({"learning_rate": 2e-2, "kl_coef": 0.05}, peft_config=LoraConfig(r=4, target_modules="all-linear"))
    facade.train()
    rows = facade.log_history
    assert rows[0]["objective/kl"] == 0 != rows[-1]["objective/kl"]  # the reference is the policy with adapters off
    facade.save_model(tmp_path / "policy")
    ids = torch.tensor([[5, 6, 7]])
    adapted = PeftModel.from_pretrained(tiny_model(), tmp_path / "policy")(ids).logits
    torch.testing.assert_close(adapted, facade.trainer.actor.unwrapped.model(ids).logits)
    assert not torch.allclose(adapted, base(ids).logits)


READ = [
    ("response_length", 9, lambda t: t.maker.sampling.max_new_tokens),
    ("temperature", 0.5, lambda t: (t.maker.sampling.temperature, t.config.rollout.temperature)),
    ("local_rollout_forward_batch_size", 3, lambda t: (t.maker.sampling.batch_size, t.config.rollout.generation_batch_size)),
    ("kl_coef", 0.3, lambda t: (t.kl_coef, t.config.algo.kl_coef)),
    ("cliprange", 0.1, lambda t: t.config.algo.eps_clip),
    ("cliprange_value", 0.3, lambda t: t.config.algo.value_clip),
    ("vf_coef", 0.7, lambda t: t.config.algo.vf_coef),
    ("gamma", 0.9, lambda t: t.config.algo.gamma),
    ("lam", 0.8, lambda t: t.config.algo.lam),
    ("whiten_rewards", True, lambda t: t.config.algo.whiten_rewards),
    ("missing_eos_penalty", 1.5, lambda t: t.config.reward.missing_eos_penalty),
    ("max_grad_norm", 0.4, lambda t: (t.actor.grad_clip, t.critic.grad_clip)),
    ("weight_decay", 0.2, lambda t: [o.optimizer.param_groups[0]["weight_decay"] for o in (t.actor, t.critic)]),
    ("adam_beta1", 0.8, lambda t: t.actor.optimizer.param_groups[0]["betas"][0]),
    ("adam_beta2", 0.95, lambda t: t.actor.optimizer.param_groups[0]["betas"][1]),
    ("adam_epsilon", 1e-6, lambda t: t.actor.optimizer.param_groups[0]["eps"]),
    ("learning_rate", 1e-4, lambda t: [o.optimizer.param_groups[0]["initial_lr"] for o in (t.actor, t.critic)]),
    ("save_steps", 7, lambda t: t.save_interval),
    ("save_total_limit", 5, lambda t: t.checkpointer.keep),
    ("seed", 7, lambda t: t.config.train.seed),
    ("gradient_checkpointing", True, lambda t: t.actor.unwrapped.model.is_gradient_checkpointing),
    ("bf16", True, lambda t: t.actor._autocast),
    ("stop_token_id", 7, lambda t: t.maker.sampling.stop_ids[0]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "read"), READ, ids=[row[0] for row in READ])
def test_settings_arrive_where_they_are_read(name, value, read) -> None:
    changes = {"stop_token": None} if name == "stop_token_id" else {}
    found = read(make({name: value, **changes}).trainer)
    assert found == value or list(found) == [value] * len(found)
    assert read(make({"stop_token_id": 3, "stop_token": None} if changes else {}).trainer) != found  # not by accident


def test_batches_are_counted_as_trl_counts_them() -> None:
    facade = make({"per_device_train_batch_size": 2, "gradient_accumulation_steps": 6, "num_mini_batches": 3})
    sizes = facade.sizes
    assert (sizes.batch_size, sizes.mini_batch_size, sizes.micro_batch_size) == (12, 4, 2)
    assert (sizes.num_total_batches, sizes.total_steps) == (3, 3 * 2 * 3)  # 32 episodes, rounded up to 36
    assert (facade.trainer.config.train.train_batch_size, facade.trainer.config.train.accumulation_steps) == (2, 2)
    by_epochs = make({"total_episodes": None, "num_train_epochs": 4.0})
    assert by_epochs.sizes.num_total_batches == 3  # 40 responses at 16 in an update


@pytest.mark.parametrize(("kind", "end"), [("linear", 0.0), ("constant", 1.0)])
def test_schedule_spans_the_optimizer_steps(kind, end) -> None:
    facade = make({"lr_scheduler_type": kind, "learning_rate": 1e-3, "warmup_steps": 0.25 if kind == "linear" else 0})
    steps = facade.sizes.total_steps
    assert (facade.trainer.actor.lr < 1e-3) == (kind == "linear")
    facade.train()
    assert facade.trainer.actor.lr == pytest.approx(end * 1e-3)
    assert facade.trainer.progress.optimizer_steps == steps == 8


def test_reward_model_scores_the_last_token_of_what_was_sampled() -> None:
    model = classifier(seed=3)
    facade = make(reward_model=model)
    collected = facade.trainer.maker.make_experience(list(facade._loader.items)[:6], facade.trainer.meter, 0)
    for item, result in zip(collected.experience, collected.results, strict=True):
        row = torch.cat([item.prompt_ids, item.response_ids])[None]
        assert result.total == pytest.approx(model(row).logits.item(), abs=1e-5)


def test_value_model_gives_the_values_of_its_head() -> None:
    value_model = classifier(seed=4)
    facade = make(value_model=value_model)
    item = facade.trainer.maker.make_experience(list(facade._loader.items)[:1], facade.trainer.meter, 0).experience[0]
    ids = torch.cat([item.prompt_ids, item.response_ids])[None]
    every = value_model.score(value_model.model(ids).last_hidden_state)[0, :, 0]
    start = len(item.prompt_ids) - 1
    torch.testing.assert_close(
        item.values, every[start : start + len(item.response_ids)].detach(), atol=1e-5, rtol=1e-4
    )


def test_critic_and_rules_by_name_are_taken_too() -> None:
    critic = Critic(tiny_model().base_model)
    rows = [{"prompt": "KLM", "answer": "F"}, {"query": "KL", "gold": "F"}]
    facade = make(reward_model=["correctness", share_of_f], value_model=critic, train_dataset=rows)
    assert facade.trainer.critic.unwrapped is critic
    assert facade.trainer.maker.reward_model.names == ["correctness", "share_of_f"]
    assert [p.problem.answer for p in facade._loader.items] == ["F", "F"]
    assert facade._loader.items[0].ids == (10, 11, 12)


def test_reward_function_may_ask_for_columns() -> None:
    seen = []

    def colour(response: str, colour: str) -> float:
        seen.append(colour)
        return 0.5

    make({"total_episodes": 16}, reward_model=colour).train()
    assert len(seen) == 16 and set(seen) == {"red"}


def test_reference_is_a_copy_of_the_policy_as_it_was() -> None:
    facade = make({"learning_rate": 1e-2})
    facade.train()
    assert facade.log_history[0]["objective/kl"] == pytest.approx(0, abs=1e-6)
    assert facade.log_history[-1]["objective/kl"] != pytest.approx(0, abs=1e-3)
    other = make(ref_model=tiny_model(seed=5), args={"total_episodes": 16})
    other.train()
    assert other.log_history[0]["objective/kl"] > 1e-3


def test_samples_of_the_evaluation_set(tmp_path) -> None:
    held_out = [{"input_ids": [9, 10]}, {"input_ids": [11]}, {"input_ids": [12]}]
    facade = make(
        {"num_sample_generations": 2, "output_dir": str(tmp_path / "run"), "per_device_eval_batch_size": 2},
        eval_dataset=held_out,
    )
    facade.train()
    rows = [json.loads(line) for line in (tmp_path / "run" / "samples.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 0, 1, 1, 2, 2]
    assert rows[0]["query"] == "JK" and 0 <= rows[0]["score"] <= 1
    assert sum("eval/scores" in row for row in facade.log_history) == 3
    silent = make({"num_sample_generations": 0}, eval_dataset=held_out)
    assert silent.trainer.evaluator is None


def test_sampling_is_from_the_whole_distribution() -> None:
    sampling = make({"temperature": 0.7}).trainer.maker.sampling
    assert (sampling.temperature, sampling.max_new_tokens, sampling.top_k, sampling.top_p) == (0.7, 6, 0, 1.0)


def test_callbacks_are_called() -> None:
    class Count(rlvr.Callback):
        episodes = 0

        def on_episode_end(self, trainer, episode, metrics) -> None:
            self.episodes += 1

    count = Count()
    make(callbacks=[count]).train()
    assert count.episodes == 2


def test_resumed_run_equals_the_uninterrupted_one(tmp_path) -> None:
    settings = {"learning_rate": 1e-2, "save_steps": 1, "total_episodes": 48}
    whole = make({**settings, "output_dir": str(tmp_path / "whole")})
    whole.train()
    args = {**settings, "output_dir": str(tmp_path / "parts")}

    class Stop(rlvr.Callback):
        def on_episode_start(self, trainer, episode) -> None:
            if episode == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(args, callbacks=[Stop()]).train()
    resumed = make(args)
    with pytest.raises(UserError, match="holds another run"):
        make(args).train()
    resumed.train(resume_from_checkpoint=True)
    assert torch.equal(weights(resumed.trainer), weights(whole.trainer))
    assert [row["step"] for row in resumed.log_history] == [3]
    with pytest.raises(UserError, match="output_dir"):
        make().train(resume_from_checkpoint=True)
    with pytest.raises(UserError, match="other settings"):
        make(args, train_dataset=ROWS[1:]).train(resume_from_checkpoint=True)


# All fields of TRL 1.12's PPOConfig that are not transformers' own.
TRL_FIELDS = (
    "dataset_num_proc num_mini_batches total_episodes local_rollout_forward_batch_size num_sample_generations response_length "
    "stop_token stop_token_id temperature missing_eos_penalty sft_model_path world_size num_total_batches micro_batch_size "
    "local_batch_size batch_size local_mini_batch_size mini_batch_size push_to_hub reward_model_path model_adapter_name "
    "ref_adapter_name num_ppo_epochs whiten_rewards kl_coef kl_estimator cliprange vf_coef cliprange_value gamma lam "
    "ds3_gather_for_generation learning_rate"
).split()


def test_each_field_of_trls_is_there_or_refused_with_a_reason() -> None:
    ours = {f.name for f in fields(PPOConfig)}
    for name in TRL_FIELDS:
        if name in ours:
            assert name not in _REFUSED
            continue
        with pytest.raises(UserError, match=name) as error:
            PPOConfig(**{name: 1})
        assert _REFUSED[name] in str(error.value)
    with pytest.raises(UserError, match=r"num_ppo_epoch=.*num_ppo_epochs"):
        PPOConfig(num_ppo_epoch=2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"temperature": 0.0}, "above 0"),
        ({"gamma": 1.5}, "between 0 and 1"),
        ({"num_ppo_epochs": 0}, "at least 1"),
        ({"stop_token": "bos"}, "'eos'"),
        ({"kl_estimator": "k2"}, "'k1'"),
        ({"kl_estimator": "k3"}, "drives the policy away"),
        ({"plugin": "deepspeed"}, "zero2"),
        ({"stop_token": "eos", "stop_token_id": 3}, "exclude each other"),
        ({"missing_eos_penalty": 1.0}, "stop_token='eos'"),
        ({"missing_eos_penalty": -1.0, "stop_token": "eos"}, "at least 0"),
        ({"bf16": True, "fp16": True}, "exclude each other"),
        ({"report_to": "tensorboard"}, "needs a folder"),
        ({"report_to": "mlflow"}, "'wandb'"),
    ],
)
def test_values_that_can_not_be(given, said) -> None:
    with pytest.raises(UserError, match=said):
        PPOConfig(**given)


class OfTransformers(TrainerCallback):
    pass


@pytest.mark.parametrize(
    ("args", "changes", "said"),
    [
        ({}, {"reward_model": None}, "reward_model is missing"),
        ({}, {"reward_model": []}, "empty list"),
        ({}, {"reward_model": "gsm8k_rewad_fn"}, "gsm8k_reward_fn"),
        ({}, {"reward_model": classifier(labels=2)}, "2: give a sequence classifier"),
        ({}, {"value_model": classifier(labels=2)}, "value_model: a reward model has one label"),
        ({}, {"value_model": torch.nn.Linear(1, 1)}, "value_model is a Linear"),
        ({}, {"data_collator": object()}, "data_collator"),
        ({}, {"optimizers": (object(), None)}, "learning_rate"),
        ({}, {"peft_config": object()}, "peft.LoraConfig"),
        ({}, {"peft_config": LoraConfig(target_modules=["nowhere"])}, "nowhere"),
        ({}, {"peft_config": LoraConfig(target_modules=["q_proj"], lora_dropout=0.1)}, "lora_dropout"),
        ({}, {"callbacks": [OfTransformers()]}, "subclass rlvr.Callback"),
        ({}, {"callbacks": ["x"]}, "is no rlvr.Callback"),
        ({}, {"train_dataset": []}, "train_dataset is empty"),
        ({}, {"train_dataset": [{"colour": "red"}]}, "row 0: needs input_ids"),
        ({}, {"train_dataset": [{"prompt": 3}]}, "row 0: column 'prompt'"),
        ({}, {"train_dataset": [{"input_ids": []}]}, "holds no token"),
        ({}, {"train_dataset": [{"input_ids": [1, 2], "attention_mask": [1]}]}, "1 places for 2"),
        ({"num_mini_batches": 5}, {}, "do not divide into num_mini_batches=5"),
        ({"gradient_accumulation_steps": 3, "num_mini_batches": 2}, {}, "multiple of num_mini_batches"),
    ],
)  # fmt: skip
def test_arguments_that_can_not_be_honoured(args, changes, said) -> None:
    with pytest.raises(UserError, match=said):
        make(args, **changes)


def test_one_object_in_two_roles_is_refused() -> None:
    model, judge = tiny_model(), classifier()
    with pytest.raises(UserError, match="model and ref_model are one object"):
        make(model=model, ref_model=model)
    with pytest.raises(UserError, match="reward_model and value_model are one object"):
        make(reward_model=judge, value_model=judge)
    with pytest.raises(UserError, match="no folder"):
        make().save_model()


def test_padding_of_the_data_is_taken_off() -> None:
    facade = make(train_dataset=[{"input_ids": [1, 1, 5, 1], "attention_mask": [0, 0, 1, 1]}])
    assert facade._loader.items[0].ids == (5, 1)
