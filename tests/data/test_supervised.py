"""Supervised rows for the ptx loss: what is learned, what is not, and what ends a row."""

import json
from pathlib import Path
from typing import Any

import pytest
from family_tokenizers import family

from rlvr.data.supervised import Example, SupervisedLoader
from rlvr.errors import UserError
from rlvr.prompting.conversation import Conversation, ConversationTemplate

TOKENIZER = family("qwen2.5")
CONVERSATION = Conversation(ConversationTemplate.load("qwen2.5"), TOKENIZER)


def write(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return str(path)


def load(path: str, **changes: Any) -> SupervisedLoader:
    arguments: dict[str, Any] = {"batch_size": 1, "max_length": 400, "conversation": CONVERSATION}
    return SupervisedLoader([path], TOKENIZER, **(arguments | changes))


def one(path: Path, row: dict[str, Any], **changes: Any) -> Example:
    (example,) = load(write(path, row), **changes).items
    return example


def split(example: Example) -> tuple[str, str]:
    decode = TOKENIZER.decode
    return decode(example.ids[: example.prompt_length]), decode(example.ids[example.prompt_length :])


def test_prompt_and_response_are_taken_as_they_are(tmp_path: Path) -> None:
    row = {"prompt": "Q: 2+3?\nA:", "response": " 5", "question": "no", "answer": "no"}
    assert split(one(tmp_path / "d.jsonl", row)) == ("Q: 2+3?\nA:", " 5<|im_end|>")
    assert split(one(tmp_path / "d.jsonl", row | {"response": " 5<|im_end|>"}))[1] == " 5<|im_end|>"
    assert split(one(tmp_path / "d.jsonl", row, conversation=None))[1] == " 5<|im_end|>"


def test_question_and_answer_go_through_the_template(tmp_path: Path) -> None:
    answer = "<think>2+3=5</think><answer>5</answer>"
    example = one(tmp_path / "d.jsonl", {"question": "2+3?", "answer": answer})
    assert split(example) == (CONVERSATION.prompt_text("2+3?"), answer + "<|im_end|>")
    assert list(example.ids) == CONVERSATION.encode_prompt("2+3?") + CONVERSATION.encode_response(answer)


def test_plain_text_is_learned_whole(tmp_path: Path) -> None:
    example = one(tmp_path / "d.jsonl", {"text": "Natalia sold clips."})
    assert example.prompt_length == 0 and split(example)[1] == "Natalia sold clips.<|im_end|>"


def test_long_rows_are_cut_and_those_without_a_response_dropped(tmp_path: Path) -> None:
    path = write(
        tmp_path / "d.jsonl",
        {"prompt": "7" * 4, "response": "8" * 50},
        {"prompt": "7" * 50, "response": "8"},
        {"prompt": "", "response": "8"},
    )
    loader = load(path, max_length=20)
    assert [(len(e.ids), e.prompt_length) for e in loader.items] == [(20, 4), (2, 0)]
    assert (loader.dropped, loader.truncated) == (1, 1)
    with pytest.raises(
        UserError, match=r"--ptx_dataset .*d\.jsonl: none of 3 rows has a token to learn within 1 tokens"
    ):
        load(path, max_length=1)


def test_batches_ranks_and_resuming(tmp_path: Path) -> None:
    path = write(tmp_path / "d.jsonl", *({"text": f"number {n}"} for n in range(7)))
    whole = load(path, batch_size=4, seed=5)
    ranks = [load(path, batch_size=4, seed=5, rank=rank, world_size=2) for rank in range(2)]
    for _ in range(3):
        shares = [next(loader) for loader in ranks]
        assert [e for pair in zip(*shares, strict=True) for e in pair] == next(whole)
    resumed = load(path, batch_size=4, seed=5)
    resumed.load_state_dict(whole.state_dict())
    assert next(resumed) == next(whole)
    with pytest.raises(UserError, match="multiple of 2"):
        load(path, batch_size=3, world_size=2)


def test_rows_that_can_not_be_used(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    with pytest.raises(
        UserError,
        match=r"d\.jsonl:2: supervised data needs the columns 'messages' or 'conversations' or 'prompt' and 'response' or .*'text'; it has prompt",
    ):
        load(write(path, {"text": "a b"}, {"prompt": "a"}))
    with pytest.raises(UserError, match=r"d\.jsonl:1: column 'response' must hold text, not int \(5\)"):
        load(write(path, {"prompt": "a", "response": 5}))
    with pytest.raises(UserError, match=r"d\.jsonl:1: columns 'question' and 'answer' need a conversation template"):
        load(write(path, {"question": "a", "answer": "5"}), conversation=None)
    with pytest.raises(UserError, match=r"nowhere\.jsonl: no such file"):
        load(str(tmp_path / "nowhere.jsonl"))
