"""Preference pairs: how a row becomes two sequences, what is left out, and the pairs of the built-in problems."""

from typing import Any

import pytest
from family_tokenizers import family

from rewards import grade
from rewards.tags import Tags
from rlvr.data.builtin import KINDS, builtin_pairs, builtin_problems
from rlvr.data.preferences import EncodedPairs, Pair, PairColumns, encode_pairs
from rlvr.data.rows import Row
from rlvr.data.supervised import hold_out
from rlvr.errors import UserError
from rlvr.prompting.conversation import Conversation, ConversationTemplate

TOKENIZER = family("qwen2.5")
CONVERSATION = Conversation(ConversationTemplate.load("qwen2.5"), TOKENIZER)
ASK = {"role": "user", "content": "2+3?"}


def reply(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def encode(*rows: dict[str, Any], columns: PairColumns | None = None, max_length: int = 400) -> EncodedPairs:
    placed = [Row(row, f"d.jsonl:{number}") for number, row in enumerate(rows, start=1)]
    return encode_pairs(
        placed, TOKENIZER, CONVERSATION, max_length=max_length, where="--preference_dataset d", columns=columns
    )


def texts(row: dict[str, Any], **changes: Any) -> tuple[str, str, str]:
    (pair,) = encode(row, **changes).items
    return TOKENIZER.decode(pair.prompt), TOKENIZER.decode(pair.chosen), TOKENIZER.decode(pair.rejected)


def test_a_prompt_is_taken_as_it_is_and_a_question_goes_through_the_template() -> None:
    assert texts({"prompt": "2+3?", "chosen": " 5", "rejected": " 6"}) == (
        "2+3?",
        "2+3? 5<|im_end|>",
        "2+3? 6<|im_end|>",
    )
    asked = CONVERSATION.prompt_text("2+3?")
    expected = (asked, f"{asked}5<|im_end|>", f"{asked}6<|im_end|>")
    assert texts({"question": "2+3?", "chosen": "5", "rejected": "6<|im_end|>"}) == expected
    assert texts({"chosen": "2+3? 5", "rejected": "2+3? 6"}) == ("", "2+3? 5<|im_end|>", "2+3? 6<|im_end|>")


def test_message_lists_with_and_without_a_prompt() -> None:
    asked = CONVERSATION.render([ASK], add_generation_prompt=True)
    expected = (asked, f"{asked}5<|im_end|>", f"{asked}6<|im_end|>")
    assert texts({"chosen": [ASK, reply("5")], "rejected": [ASK, reply("6")]}) == expected
    assert texts({"prompt": [ASK], "chosen": [reply("5")], "rejected": [reply("6")]}) == expected
    assert texts({"prompt": [ASK], "chosen": "5", "rejected": "6"}) == expected
    of_colossalchat = {"context": [{"from": "human", "content": "2+3?"}]} | {
        name: [{"from": "assistant", "content": text}] for name, text in (("chosen", "5"), ("rejected", "6"))
    }
    assert texts(of_colossalchat) == expected


def test_named_columns_and_margins() -> None:
    row = {"instruction": "2+3?", "good": "5", "bad": "6", "by": "0.5"}
    columns = PairColumns(prompt="instruction", chosen="good", rejected="bad", margin="by")
    assert texts(row, columns=columns)[1] == "2+3?5<|im_end|>"
    assert encode(row, columns=columns).items[0].margin == 0.5
    assert encode({"prompt": "a", "chosen": "b", "rejected": "c", "margin": 2}).items[0].margin == 2.0
    asked = PairColumns(question="instruction", chosen="good", rejected="bad")
    assert texts(row, columns=asked)[0] == CONVERSATION.prompt_text("2+3?")


def test_pairs_that_teach_nothing_are_left_out_and_counted() -> None:
    rows = [
        {"prompt": "a", "chosen": "b", "rejected": "b"},
        {"prompt": "a", "chosen": "b", "rejected": "b<|im_end|>"},
        {"prompt": "a", "chosen": "", "rejected": "b"},
        {"prompt": "a", "chosen": "b", "rejected": " "},
        {"chosen": [ASK, reply(" ")], "rejected": [ASK, reply("6")]},
        {"prompt": "a", "chosen": "7" * 60, "rejected": "b"},
        {"prompt": "a", "chosen": "b", "rejected": "c"},
    ]
    read = encode(*rows, max_length=40)
    assert (len(read.items), read.equal, read.empty, read.overlong) == (1, 2, 3, 1)
    assert read.notes(40) == [
        "2 of 7 pairs left out: chosen and rejected are the same",
        "3 of 7 pairs left out: a response is empty",
        "1 of 7 pairs left out: a response with its prompt is longer than 40 tokens",
    ]
    with pytest.raises(UserError, match="--preference_dataset d: no pair is left .* chosen and rejected are the same"):
        encode(rows[0])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "a", "chosen": "b"}, "there is no column 'rejected'; the columns are prompt, chosen"),
        ({"prompt": "a", "chosen": "b", "rejected": 3}, "column 'rejected' must hold text, not int"),
        ({"prompt": 3, "chosen": "b", "rejected": "c"}, "column 'prompt' must hold text"),
        (
            {"chosen": [ASK], "rejected": [ASK, reply("5")]},
            "column 'chosen' must end with a message of the role 'assistant'",
        ),
        ({"chosen": [ASK, {"role": "bot", "content": "x"}], "rejected": [ASK, reply("5")]}, "role 'bot'; roles are"),
        (
            {"prompt": "a", "chosen": "b", "rejected": "c", "margin": "much"},
            "'margin' must hold a finite number, not 'much'",
        ),
        ({"prompt": "a", "chosen": "b", "rejected": "c", "margin": "nan"}, "finite number"),
        ({"prompt": "a", "chosen": "b", "rejected": "c", "margin": True}, "finite number"),
        ({"prompt": "a", "chosen": "b", "rejected": "c", "margin": None}, "finite number"),
    ],
)
def test_rows_that_can_not_be_used_are_named(row: dict, message: str) -> None:
    with pytest.raises(UserError, match=rf"d\.jsonl:2: .*{message}"):
        encode({"prompt": "a", "chosen": "b", "rejected": "c"}, row)


def test_built_in_pairs_are_reproducible_and_worse_as_they_say() -> None:
    problems = builtin_problems("train", 200)
    rows = builtin_pairs(problems)
    assert rows == builtin_pairs(problems) != builtin_pairs(problems, seed=1)
    tags = Tags.default()
    for problem, row in zip(problems, rows, strict=True):
        right = [grade(row.values[side], problem.answer, tags=tags).correct for side in ("chosen", "rejected")]
        assert right == [True, row.values["kind"] == "no working"], row
        working = row.values["rejected"].partition("</think>")[0].removeprefix("<think>")
        assert bool(working) == (row.values["kind"] in ("slip", "wrong answer"))
        assert (working in row.values["chosen"]) == (row.values["kind"] != "slip")
    assert {row.values["kind"] for row in rows} == set(KINDS)


def test_whole_prompts_are_held_out() -> None:
    items = [Pair((i % 10, 1, j), (i % 10, 1, j + 1), (i % 10, 1)) for i in range(10) for j in range(3)]
    train, test = hold_out(items, 0.2, 0, lambda pair: pair.prompt)
    assert len(train) == 24 and len(test) == 6 and not {p.prompt for p in train} & {p.prompt for p in test}
    assert hold_out(items, 0.2, 0, lambda pair: pair.prompt) == (train, test)
    assert hold_out(items, 0.2, 1, lambda pair: pair.prompt) != (train, test)
    assert len(hold_out(items, 0.001, 0, lambda pair: pair.prompt)[1]) == 3
    with pytest.raises(UserError, match=r"--eval_share 0.5: nothing can be held out of data with 1 prompt"):
        hold_out(items[:3], 0.5, 0, lambda pair: pair.prompt)
