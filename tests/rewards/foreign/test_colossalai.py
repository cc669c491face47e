"""Functions in ColossalAI's two forms, of version 1 and distributed, on the ids of a real tokenizer."""

import pytest
import torch

from rewards import Sample, Tags, UserError, resolve
from rewards.call import score
from rewards.foreign import adapt
from rlvr.models.tiny import build_tiny_tokenizer

TOKENIZER = build_tiny_tokenizer()
PROMPT = "<|user|>2+2<|assistant|>"


def sample(response, gold="4", **more) -> Sample:
    ids = TOKENIZER.encode(response, add_special_tokens=False) + [TOKENIZER.eos_token_id]
    return Sample(response, gold, prompt=PROMPT, tags=Tags.default(), response_ids=tuple(ids), **more)


RIGHT, WRONG = "<think>2</think><answer>4</answer>", "<think>2</think><answer>5</answer>"
SAMPLES = [sample(RIGHT), sample(WRONG), sample("4")]


def results(function, samples=SAMPLES, **options):
    return score(resolve(adapt(function, {"tokenizer": TOKENIZER, **options})), samples)


def values(function, samples=SAMPLES, **options):
    return [r.value for r in results(function, samples, **options)]


def answer_of(text, tags):
    start, end = tags["answer_start"], tags["answer_end"]
    if text.count(start["text"]) != start["num_occur"] or text.count(end["text"]) != end["num_occur"]:
        return None
    return text.split(start["text"])[1].split(end["text"])[0]


def version_1(input_ids, attention_mask, **kwargs):
    gold, tokenizer, tags = kwargs["gt_answer"], kwargs["tokenizer"], kwargs["tags"]
    start, end = kwargs["response_start"], kwargs["response_end"]
    reward = torch.tensor(0.0).to(input_ids.device)
    assert attention_mask.shape == input_ids.shape and tokenizer.decode(input_ids[:start]) == PROMPT
    if gold is None:
        return reward
    assert input_ids[end - 1] == tokenizer.eos_token_id and end == len(input_ids)
    answer = answer_of(tokenizer.decode(input_ids[start:end], skip_special_tokens=True), tags)
    if answer is None:
        return reward
    return reward + 1.0 + 9.0 * (answer == gold)


def distributed(input_ids, gt_answer, response_idx, **kwargs):
    tokenizer, first, last = kwargs["tokenizer"], response_idx[0], response_idx[1]
    if gt_answer is None:
        raise ValueError("no gt_answer")
    answer = answer_of(tokenizer.decode(input_ids[first : last + 1], skip_special_tokens=True), kwargs["tags"])
    length = last.item() - first.item() + 1
    reward = torch.tensor(10.0 * (answer == gt_answer))
    if kwargs.get("soft_over_length_punishment", False):
        over = length - (kwargs["max_new_tokens"] - kwargs["cache_length"])
        reward = reward - 10.0 * max(0, over) / kwargs["cache_length"]
    if length >= kwargs["max_new_tokens"]:
        reward = reward * 0.0
    return torch.tensor([reward, float(answer is not None), float(answer == gt_answer)]).to(input_ids.device)


def older_distributed(input_ids, gt_answer, response_idx, **kwargs):
    tokenizer = kwargs["tokenizer"]
    gold = tokenizer.decode(gt_answer.squeeze(0), skip_special_tokens=True)
    text = tokenizer.decode(input_ids[response_idx[0] : response_idx[1] + 1], skip_special_tokens=True)
    return torch.tensor(10.0 * (answer_of(text, kwargs["tags"]) == gold))


def code(input_ids, test_cases, response_idx, **kwargs):
    return torch.tensor([float(test_cases["inputs"][0]), 1.0, 0.0])


def test_version_1() -> None:
    assert values(version_1) == [10.0, 1.0, 0.0]
    assert values(version_1, [sample(RIGHT, gold=None)]) == [0.0]


def test_distributed() -> None:
    assert values(distributed) == [10.0, 0.0, 0.0]
    assert [r.components for r in results(distributed)] == [
        {"format_acc": 1.0, "ans_acc": 1.0}, {"format_acc": 1.0, "ans_acc": 0.0}, {"format_acc": 0.0, "ans_acc": 0.0},
    ]  # fmt: skip
    assert values(older_distributed, gt_answer_ids=True) == [10.0, 0.0, 0.0]
    assert values(code, [sample("x", columns={"test_cases": {"inputs": [3]}})]) == [3.0]


def test_length_limits_count_tokens_and_a_cut_response_is_over() -> None:
    length = len(SAMPLES[0].response_ids)
    options = {"soft_over_length_punishment": True, "max_new_tokens": length + 2, "cache_length": 4}
    assert values(distributed, SAMPLES[:1], **options) == [pytest.approx(10.0 - 10 * 2 / 4)]
    assert values(distributed, [sample(RIGHT, finished=False)]) == [0.0]


def test_a_missing_tokenizer_and_eval_mode_are_said() -> None:
    with pytest.raises(UserError, match="version_1.*tokenizer"):
        score(resolve(adapt(version_1)), SAMPLES)
    with pytest.raises(UserError, match="eval_mode"):
        results(lambda input_ids, gt_answer, response_idx, **kwargs: {"prediction": ""})


def test_the_tokenizer_may_come_as_an_option_of_the_reward_function() -> None:
    function = resolve(adapt(version_1), options={"version_1": {"tokenizer": TOKENIZER}})
    assert "tokenizer" in function.parameters
    assert [r.value for r in score(function, SAMPLES)] == [10.0, 1.0, 0.0]
