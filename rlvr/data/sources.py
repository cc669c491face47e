"""From the settings of supervised training to its data: what is learned from, what is held out, and what was left out."""

import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from rlvr.config import ExamplesConfig, PairsConfig
from rlvr.data.builtin import worked_example
from rlvr.data.builtin_pairs import builtin_pairs
from rlvr.data.examples import Example, ReadExamples, TextColumns, encode_rows
from rlvr.data.preferences import Pair, PairColumns, ReadPairs, encode_pairs
from rlvr.data.problem import Problem
from rlvr.data.readers import draw_sample, read_problems, read_rows
from rlvr.data.rows import Row
from rlvr.errors import UserError
from rlvr.suggest import listed

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlvr.conversation import Conversation

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
BUILTIN = "builtin"
# Held-out rows of the built-in problems.
BUILTIN_HELD_OUT = 512


class Read(Protocol[T_co]):
    """What became of some rows: `ReadExamples` or `ReadPairs`."""

    @property
    def items(self) -> Sequence[T_co]: ...

    def notes(self, max_length: int) -> list[str]: ...


@dataclass(frozen=True)
class HeldOut(Generic[T]):
    """Data to learn from and to evaluate on, and what a user should know of it."""

    train: list[T]
    test: list[T]
    notes: list[str]


def read_held_out(
    data: ExamplesConfig,
    tokenizer: "PreTrainedTokenizerBase",
    conversation: "Conversation",
    max_length: int,
    seed: int,
    eval_samples: int | None = None,
) -> HeldOut[Example]:
    """Examples for supervised fine-tuning, of which at most `eval_samples` are held out.

    Raises:
        UserError: data that can't be read or lacks columns, or nothing left to learn from.
    """
    columns = TextColumns(data.prompt_text_column, data.text_column, data.question_column, data.answer_column)

    def encode(rows: Sequence[Row], flag: str) -> ReadExamples:
        return encode_rows(
            rows,
            tokenizer,
            conversation,
            max_length=max_length,
            overlong=data.overlong_rows,
            where=flag,
            columns=columns,
        )

    return _read(data, data.dataset, "--dataset", _worked, encode, max_length, seed, eval_samples, _prompt_of_example)


def read_held_out_pairs(
    data: PairsConfig,
    tokenizer: "PreTrainedTokenizerBase",
    conversation: "Conversation",
    max_length: int,
    seed: int,
    eval_samples: int | None = None,
) -> HeldOut[Pair]:
    """Pairs for a reward model, of which at most `eval_samples` are held out.

    Raises:
        UserError: data that can't be read or lacks columns, or nothing left to learn from.
    """
    columns = PairColumns(
        data.prompt_text_column, data.question_column, data.text_column, data.rejected_text_column, data.margin_column
    )

    def encode(rows: Sequence[Row], flag: str) -> ReadPairs:
        return encode_pairs(rows, tokenizer, conversation, max_length=max_length, where=flag, columns=columns)

    sources, flag = data.preference_dataset, "--preference_dataset"
    return _read(data, sources, flag, builtin_pairs, encode, max_length, seed, eval_samples, _prompt_of_pair)


def _read(
    data: ExamplesConfig | PairsConfig,
    sources: Sequence[str],
    flag: str,
    of_problems: Callable[[Sequence[Problem]], list[Row]],
    encode: Callable[[Sequence[Row], str], Read[T]],
    max_length: int,
    seed: int,
    eval_samples: int | None,
    prompt_of: Callable[[T], Hashable],
) -> HeldOut[T]:
    read = encode(_rows(sources, "train", data.max_samples, seed, of_problems), f"{flag} {listed(sources)}")
    train, notes = list(read.items), read.notes(max_length)
    test: list[T] = []
    held_out = data.eval_dataset or ([BUILTIN] if list(sources) == [BUILTIN] and not data.eval_share else [])
    if held_out:
        limit = eval_samples or (BUILTIN_HELD_OUT if held_out == [BUILTIN] else None)
        read = encode(_rows(held_out, "test", limit, seed, of_problems), f"--eval_dataset {listed(held_out)}")
        test = list(read.items)
        notes += [f"held out: {note}" for note in read.notes(max_length)]
    elif data.eval_share:
        train, test = hold_out(train, data.eval_share, seed, prompt_of)
        test = draw_sample(test, eval_samples, seed)
    return HeldOut(train, test, notes)


def _rows(
    sources: Sequence[str],
    split: str,
    limit: int | None,
    seed: int,
    of_problems: Callable[[Sequence[Problem]], list[Row]],
) -> list[Row]:
    if not sources:
        raise UserError("no data: give at least one of `builtin`, a JSONL or CSV file, a folder, or a hub name")
    rows: list[Row] = []
    for source in sources:
        if source == BUILTIN or source.startswith(f"{BUILTIN}:"):
            rows += of_problems(read_problems([source], split=split, limit=limit))
        else:
            rows += read_rows(source, split)
    return draw_sample(rows, limit, seed)


def _worked(problems: Sequence[Problem]) -> list[Row]:
    """Built-in problems with their working."""
    return [Row({"question": p.question, "answer": worked_example(p)}, f"{p.source}, {p.id}") for p in problems]


def hold_out(
    items: Sequence[T], share: float, seed: int, prompt_of: Callable[[T], Hashable]
) -> tuple[list[T], list[T]]:
    """Split off about this share of the items, whole prompts at a time.

    Returns:
        `(rest, held out)`, each in the order of the items, neither empty.

    Raises:
        UserError: there are not two different prompts to split.
    """
    prompts = list(dict.fromkeys(map(prompt_of, items)))
    if len(prompts) < 2:
        raise UserError(f"--eval_share {share}: nothing can be held out of data with {len(prompts)} prompt(s)")
    draw = random.Random(f"held-out share {seed}")
    keys = [draw.random() for _ in prompts]
    count = min(max(1, round(share * len(prompts))), len(prompts) - 1)
    chosen = {prompts[i] for i in sorted(range(len(prompts)), key=keys.__getitem__)[:count]}
    return (
        [item for item in items if prompt_of(item) not in chosen],
        [item for item in items if prompt_of(item) in chosen],
    )


def _prompt_of_example(example: Example) -> Hashable:
    return example.ids[: example.prompt_length] or example.ids


def _prompt_of_pair(pair: Pair) -> Hashable:
    return pair.prompt or pair.chosen
