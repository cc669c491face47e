"""The installed TRL: our function in its trainer, and its functions in ours."""

import json
from pathlib import Path

import pytest
import torch
from trainer_harness import LetterTokenizer, loader, make_trainer

from rewards import Sample, Tags, resolve
from rewards.call import score
from rewards.export import export
from rewards.foreign import adapt
from rlvr.models.tiny import ASSISTANT, END, build_tiny_model, build_tiny_tokenizer
from rlvr.scorers.rules import RLVRRewardModel

trl = pytest.importorskip("trl", reason="TRL is not installed")
trl_rewards = pytest.importorskip("trl.rewards")

SOLUTIONS = [
    Sample(r"<think>a</think> so \boxed{\frac{1}{3}}", r"\frac{1}{3}"),
    Sample(r"<think>a</think> so \boxed{\frac{1}{2}}", r"\frac{1}{3}"),
    Sample(r"no thinking \boxed{7}", "7", columns={}),
    Sample("", "7"),
]


def test_trls_functions_run_here_unchanged() -> None:
    accuracy, thinks = resolve(adapt(trl_rewards.accuracy_reward)), resolve(adapt(trl_rewards.think_format_reward))
    assert [s.value for s in score(accuracy, SOLUTIONS)] == [1.0, 0.0, 1.0, 0.0]
    assert [s.value for s in score(thinks, SOLUTIONS)] == [1.0, 1.0, 0.0, 0.0]
    reasoning = adapt(trl_rewards.reasoning_accuracy_reward, {"reasoning_delimiters": ["no thinking"]})
    assert [s.value for s in score(resolve(reasoning), SOLUTIONS)] == [0.0, 0.0, 1.0, 0.0]


def test_trls_functions_of_token_ids() -> None:
    samples = [Sample("a", None, response_ids=(1,) * n) for n in (70, 90, 120)]
    overlong = trl_rewards.get_soft_overlong_punishment(max_completion_len=100, soft_punish_cache=20)
    adapted = resolve(adapt(overlong))
    assert adapted.name == "soft_overlong_punishment_reward"
    assert [s.value for s in score(adapted, samples)] == [0.0, -0.5, -1.0]
    cosine = resolve(adapt(trl_rewards.get_cosine_scaled_reward(max_len=100)))
    half = [Sample(s.response, s.gold, response_ids=(1,) * 50) for s in SOLUTIONS[:2]]
    assert [s.value for s in score(cosine, half)] == pytest.approx([0.75, -0.75])


def test_trls_functions_in_our_reward_model() -> None:
    functions = [adapt(trl_rewards.accuracy_reward), adapt(trl_rewards.think_format_reward)]
    model = RLVRRewardModel(functions, tags=Tags.default(), weights=[1.0, 0.5])
    assert model.names == ["accuracy_reward", "think_format_reward"]
    assert [c.total for c in model.score(SOLUTIONS)] == [1.5, 0.5, 1.0, 0.0]


@pytest.mark.usefixtures("process")
def test_trls_functions_in_our_trainer(tmp_path: Path) -> None:
    seen = []

    def letter_reward(completions, solution, **kwargs):
        seen.append(completions)
        return [float(gold in c[0]["content"]) for c, gold in zip(completions, solution, strict=True)]

    theirs = [trl_rewards.think_format_reward, trl_rewards.accuracy_reward]
    model = RLVRRewardModel([adapt(function) for function in (letter_reward, *theirs)], LetterTokenizer())
    trainer = make_trainer(tmp_path, reward_model=model, steps=1)
    trainer.fit(1, 1, 1, loader())
    trainer.tracker.close()
    messages = [c for batch in seen if isinstance(batch[0], list) for c in batch]
    assert len(messages) == 32
    (line,) = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    share = sum("F" in c[0]["content"] for c in messages) / 32
    assert line["reward/letter_reward"] == pytest.approx(share) and 0 < share < 1
    assert line["reward/think_format_reward"] == 0.0
    assert "reward/accuracy_reward" not in line  # it can't parse the right answer, the letter F, and skips


class Recorder:
    """An exported function that remembers what it was asked and what it said."""

    __name__ = "gsm8k_reward_fn"

    def __init__(self, function):
        self.function, self.asked, self.said = function, [], []

    def __call__(self, completions, **columns):
        self.asked += [(c[0]["content"], a) for c, a in zip(completions, columns["answer"], strict=True)]
        self.said.append(self.function(completions, **columns))
        return self.said[-1]


def chain_of(tokenizer) -> list:
    """Makes a random model write <think></think><answer>4 or 5</answer>, so that rewards differ."""
    order = [
        (ASSISTANT, "<think>"),
        ("<think>", "</think>"),
        ("</think>", "<answer>"),
        ("<answer>", "4"),
        ("<answer>", "5"),
    ]
    order += [("4", "</answer>"), ("5", "</answer>"), ("</answer>", END)]
    return [[tokenizer.convert_tokens_to_ids(list(pair)), 60.0] for pair in order]


def test_our_function_in_trls_trainer(tmp_path: Path) -> None:
    from datasets import Dataset

    torch.manual_seed(0)
    tokenizer = build_tiny_tokenizer()
    rows = [{"prompt": [{"role": "user", "content": f"{i}+{4 - i}"}], "answer": "4"} for i in range(4)]
    rows[1]["answer"] = ""  # no right answer: skipped
    recorder = Recorder(export("trl", "gsm8k_reward_fn"))
    trainer = trl.GRPOTrainer(
        model=build_tiny_model(tokenizer),
        processing_class=tokenizer,
        reward_funcs=[recorder, export("trl", "format_reward_fn")],
        train_dataset=Dataset.from_list(rows),
        args=trl.GRPOConfig(
            output_dir=str(tmp_path),
            max_steps=2,
            per_device_train_batch_size=8,
            num_generations=4,
            max_completion_length=8,
            generation_kwargs={"sequence_bias": chain_of(tokenizer)},
            logging_steps=1,
            use_cpu=True,
            bf16=False,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
        ),
    )
    trainer.train()
    steps = [step for step in trainer.state.log_history if "rewards/gsm8k_reward_fn/mean" in step]
    assert len(steps) == len(recorder.said) == 2
    ours = [
        score(resolve("gsm8k_reward_fn"), [Sample(response, answer)])[0].value for response, answer in recorder.asked
    ]
    assert [value for said in recorder.said for value in said] == ours
    assert {1.0, 0.1, None} == set(ours)
    for step, said in zip(steps, recorder.said, strict=True):
        paid = [value for value in said if value is not None]
        assert step["rewards/gsm8k_reward_fn/mean"] == pytest.approx(sum(paid) / len(paid), abs=1e-6)
        assert step["rewards/format_reward_fn/mean"] == 1.0
        assert step["rewards/gsm8k_reward_fn/outcome/bad_gold"] == said.count(None) / len(said)
