"""Our functions with the signatures of the peers, called as the peers call them."""

import inspect
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rewards import Outcome, Sample, Tag, Tags, UserError, reward_fn
from rewards.call import score
from rewards.export import export
from rewards.foreign import adapt, peer_of
from rewards.foreign.colossalai import to_config
from rewards.registry import resolve
from rlvr.models.tiny import build_tiny_tokenizer

RIGHT, WRONG = "<think>2</think><answer>4</answer>", "<think>2</think><answer>5</answer>"
BRACKETS = Tags(Tag("[think]"), Tag("[/think]"), Tag("[answer]"), Tag("[/answer]"))


@reward_fn("export_test_length")
def shorter(responses, level, scale=1.0):
    """Batched, without a gold, with a column."""
    return [scale * one / (1 + len(text)) for text, one in zip(responses, level, strict=True)]


def every_kind(response, gold):
    return {"4": 1, "none": None, "mapping": {"a": 1, "b": 0.5}, "outcome": Outcome("correct")}.get(response, 0.0)


def chat(*texts):
    return [[{"role": "assistant", "content": text}] for text in texts]


def test_unknown_targets_names_and_options() -> None:
    with pytest.raises(UserError, match="'ppo'.*trl, verl, openrlhf, colossalai"):
        export("ppo", "gsm8k_reward_fn")
    with pytest.raises(UserError, match="Did you mean 'gsm8k_reward_fn'"):
        export("trl", "gsm8k_reward")
    with pytest.raises(UserError, match="no option.*bonus"):
        export("trl", "gsm8k_reward_fn", options={"bonus": 1})


@pytest.mark.parametrize("target", ["trl", "verl", "openrlhf", "colossalai", "colossalai_v1"])
def test_what_we_export_we_recognise_and_it_pickles(target, tmp_path) -> None:
    exported = export(target, "gsm8k_reward_fn", tags=BRACKETS, options={"format_score": 0.5})
    assert exported.__name__ == "gsm8k_reward_fn" and "1.0 for a right answer" in exported.__doc__
    assert peer_of(exported) == target.removesuffix("_v1")
    again = pickle.loads(pickle.dumps(exported))
    assert (again.tags, again.options, again.function.options) == (
        BRACKETS,
        {"format_score": 0.5},
        {"format_score": 0.5},
    )


def test_a_plugin_files_function_pickles_into_another_process(tmp_path) -> None:
    (tmp_path / "mine.py").write_text("def mine(response, gold):\n    return float(response == gold)\n")
    dumped = pickle.dumps(export("verl", f"{tmp_path}/mine.py:mine"))
    (tmp_path / "dump").write_bytes(dumped)
    code = f"import pickle; print(pickle.load(open({str(tmp_path / 'dump')!r}, 'rb'))('s', '4', '4')['score'])"
    root = Path(__file__).parents[3]
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert out.stdout.strip() == "1.0"


def test_trl_messages_and_texts() -> None:
    fn = export("trl", "gsm8k_reward_fn")
    assert fn(chat(RIGHT, WRONG, "4"), answer=["4", "4", "4"]) == [1.0, 0.1, 0.0]
    assert fn([RIGHT, WRONG, "4"], prompts=["p"] * 3, solution=["so #### 4"] * 3) == [1.0, 0.1, 0.0]
    blocks = [[{"role": "assistant", "content": [{"type": "text", "text": RIGHT}]}]]
    assert fn(blocks, gold=["4"], trainer_state=object(), log_extra=None) == [1.0]
    assert export("trl", "gsm8k_reward_fn", tags=BRACKETS)(["[think]a[/think][answer]4[/answer]"], answer=["4"]) == [
        1.0
    ]
    assert fn([RIGHT], answer=[4]) == [1.0]


def test_trl_skips_with_none_and_logs_components() -> None:
    logged = {}
    fn = export("trl", "gsm8k_reward_fn")
    assert fn([RIGHT, WRONG, RIGHT], answer=["4", "4", ""], log_metric=logged.__setitem__) == [1.0, 0.1, None]
    assert logged["rewards/gsm8k_reward_fn/correct"] == 0.5
    assert logged["rewards/gsm8k_reward_fn/outcome/bad_gold"] == pytest.approx(1 / 3)
    texts = ["4", "none", "mapping", "outcome", "x"]
    assert export("trl", every_kind)(texts, answer=["4"] * 5) == [1.0, None, 1.5, 1.0, 0.0]


def test_trl_columns_and_what_is_missing() -> None:
    fn = export("trl", "export_test_length", options={"scale": 10})
    assert fn(["a", "abcd"], prompts=["p", "p"], completion_ids=[[1], [2]], level=[1, 2]) == [5.0, 4.0]
    with pytest.raises(UserError, match="gsm8k_reward_fn.*'answer', 'solution' or 'gold'; it has: level"):
        export("trl", "gsm8k_reward_fn")([RIGHT], level=[1])


def test_verl() -> None:
    fn = export("verl", "gsm8k_reward_fn")
    called = fn(data_source="openai/gsm8k", solution_str=RIGHT, ground_truth="4", extra_info={"question": "2+2"})
    assert called == {"score": 1.0, "skipped": 0.0, "correct": 1.0, "format": 1.0}
    assert fn("s", WRONG, "4", None, reward_router_address="x")["score"] == 0.1
    assert export("verl", every_kind)("s", "mapping", "4") == {"a": 1.0, "b": 0.5, "score": 1.5, "skipped": 0.0}
    level = export("verl", lambda response, level, data_source: level)
    assert level("s", "x", "4", {"level": 3})["score"] == 3.0


def test_verl_has_the_same_keys_for_every_sample() -> None:
    fn = export("verl", "gsm8k_reward_fn")
    skipped = fn("s", RIGHT, "")
    assert skipped.keys() == fn("s", RIGHT, "4").keys()
    assert skipped == {"score": 0.0, "skipped": 1.0, "correct": 0.0, "format": 0.0}


def test_openrlhf() -> None:
    fn = export("openrlhf", "gsm8k_reward_fn", options={"correct_score": 3.0})
    prompts = ["2+2=", "2+2=", "?"]
    given = fn([p + r for p, r in zip(prompts, (RIGHT, WRONG, RIGHT), strict=True)], prompts, ["4", "4", ""])
    assert given["rewards"].tolist() == pytest.approx([3.0, 0.1, 0.0]) and given["rewards"].dtype == torch.float32
    assert given["scores"].tolist() == pytest.approx([1.0, 0.1, 0.0])
    assert {name: value.tolist() for name, value in given["extra_logs"].items()} == {
        "correct": [1.0, 0.0, 0.0], "format": [1.0, 1.0, 0.0], "skipped": [0.0, 0.0, 1.0],
    }  # fmt: skip


TAG_CONFIG = to_config(Tags.default())


def test_colossalai_distributed() -> None:
    fn, tokenizer = export("colossalai", "gsm8k_reward_fn"), build_tiny_tokenizer()
    # ColossalAI looks for this name to know what to pass.
    assert "gt_answer" in inspect.getfullargspec(fn).args
    prompt = tokenizer.encode("<|user|>2+2<|assistant|>")
    for response, expected in [(RIGHT, [1.0, 1.0, 1.0]), (WRONG, [0.1, 1.0, 0.0]), ("4", [0.0, 0.0, 0.0])]:
        ids = tokenizer.encode(response) + [tokenizer.eos_token_id]
        padded = torch.tensor(prompt + ids + [tokenizer.pad_token_id] * 3)
        place = torch.tensor([len(prompt), len(prompt) + len(ids) - 1])
        known = {"tokenizer": tokenizer, "tags": TAG_CONFIG, "max_new_tokens": 50, "cache_length": 4}
        assert fn(padded, gt_answer="4", response_idx=place, **known).tolist() == pytest.approx(expected)
        as_ids = torch.tensor([tokenizer.encode("4")])
        assert fn(padded, gt_answer=as_ids, response_idx=place, **known).tolist() == pytest.approx(expected)
    told = fn(padded, gt_answer="4", response_idx=place, **known, eval_mode=True)
    assert told["prediction"] == "4" and told["gold"] == "4" and told["reward"] == 0.0 and told["response_length"] == 2


def test_colossalai_version_1() -> None:
    fn, tokenizer = export("colossalai_v1", "gsm8k_reward_fn"), build_tiny_tokenizer()
    prompt, ids = tokenizer.encode("<|user|>2+2<|assistant|>"), tokenizer.encode(RIGHT) + [tokenizer.eos_token_id]
    row = torch.tensor(prompt + ids + [tokenizer.pad_token_id] * 3)
    places = {"response_start": len(prompt), "response_end": len(prompt) + len(ids)}
    reward = fn(row, torch.ones_like(row), gt_answer="4", tokenizer=tokenizer, tags=TAG_CONFIG, **places)
    assert reward.shape == () and reward.item() == 1.0


@pytest.mark.parametrize("target", ["trl", "verl", "openrlhf", "colossalai", "colossalai_v1"])
def test_there_and_back_again_is_the_same(target) -> None:
    tokenizer = build_tiny_tokenizer()
    samples = [
        Sample(r, "4", prompt="<|user|>2+2<|assistant|>", question="2+2", response_ids=tuple(tokenizer.encode(r)))
        for r in (RIGHT, WRONG, "4")
    ]
    options = {"tokenizer": tokenizer} if target.startswith("colossalai") else {}
    back = adapt(export(target, "gsm8k_reward_fn"), options)
    assert [s.value for s in score(resolve(back), samples)] == pytest.approx([1.0, 0.1, 0.0])
