"""Supervised data from its sources: what is learned from, what is held out, and the batches of the ptx loss.

    read_sft_data          examples of `rlvr sft`, some of them held out
    read_preference_data   pairs of `rlvr reward-model`, likewise
    SupervisedLoader       batches of `--ptx_dataset`, for ever

`rlvr/data/sft.py` and `rlvr/data/preferences.py` say which columns a row may have and which prompt it gets.
"""

import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from rlvr.config import ExamplesConfig, PairsConfig, have_test_splits, is_generated
from rlvr.data.builtin import builtin_pairs
from rlvr.data.drawing import worked_example
from rlvr.data.examples import Example
from rlvr.data.preferences import EncodedPairs, Pair, PairColumns, encode_pairs
from rlvr.data.problems import Problem
from rlvr.data.readers import draw_sample, read_problems
from rlvr.data.rows import Row, read_rows
from rlvr.data.sampling import Loader, PromptSampler
from rlvr.data.sft import EncodedExamples, TextColumns, encode_rows
from rlvr.errors import UserError, listed

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlvr.prompting.conversation import Conversation

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
GENERATED_HELD_OUT = 512
"""Held-out rows of generated problems, of each set."""


class Encoded(Protocol[T_co]):
    """Rows after encoding: `EncodedExamples` or `EncodedPairs`."""

    @property
    def items(self) -> Sequence[T_co]: ...

    def notes(self, max_length: int) -> list[str]: ...


@dataclass(frozen=True)
class SupervisedData(Generic[T]):
    """Data to learn from and to evaluate on, with notes for the user on rows that were left out or cut."""

    train: list[T]
    test: list[T]
    notes: list[str]


def read_sft_data(
    data: ExamplesConfig,
    tokenizer: "PreTrainedTokenizerBase",
    conversation: "Conversation",
    max_length: int,
    seed: int,
    eval_samples: int | None = None,
) -> SupervisedData[Example]:
    """Examples for supervised fine-tuning, of which at most `eval_samples` are held out.

    Raises:
        UserError: data that can't be read or lacks columns, or nothing left to learn from.
    """
    columns = TextColumns(data.prompt_text_column, data.text_column, data.question_column, data.answer_column)

    def encode(rows: Sequence[Row], flag: str) -> EncodedExamples:
        return encode_rows(
            rows,
            tokenizer,
            conversation,
            max_length=max_length,
            overlong=data.overlong_rows,
            where=flag,
            columns=columns,
        )

    return _read_and_hold_out(
        data, data.dataset, "--dataset", _worked_rows, encode, max_length, seed, eval_samples, _prompt_of_example
    )


def read_preference_data(
    data: PairsConfig,
    tokenizer: "PreTrainedTokenizerBase",
    conversation: "Conversation",
    max_length: int,
    seed: int,
    eval_samples: int | None = None,
) -> SupervisedData[Pair]:
    """Pairs for a reward model, of which at most `eval_samples` are held out.

    Raises:
        UserError: data that can't be read or lacks columns, or nothing left to learn from.
    """
    columns = PairColumns(
        data.prompt_text_column, data.question_column, data.text_column, data.rejected_text_column, data.margin_column
    )

    def encode(rows: Sequence[Row], flag: str) -> EncodedPairs:
        return encode_pairs(rows, tokenizer, conversation, max_length=max_length, where=flag, columns=columns)

    sources, flag = data.preference_dataset, "--preference_dataset"
    for source in (*sources, *data.eval_dataset):
        if is_generated(source) and not source.startswith("builtin"):
            raise UserError(
                f"{flag} {source}: it has no worse answers to compare with; give `builtin`, or pairs of your own"
            )
    return _read_and_hold_out(
        data, sources, flag, builtin_pairs, encode, max_length, seed, eval_samples, _prompt_of_pair
    )


def _read_and_hold_out(
    data: ExamplesConfig | PairsConfig,
    sources: Sequence[str],
    flag: str,
    of_problems: Callable[[Sequence[Problem]], list[Row]],
    encode: Callable[[Sequence[Row], str], Encoded[T]],
    max_length: int,
    seed: int,
    eval_samples: int | None,
    prompt_of: Callable[[T], Hashable],
) -> SupervisedData[T]:
    read = encode(_rows(sources, "train", data.max_samples, seed, of_problems), f"{flag} {listed(sources)}")
    train, notes = list(read.items), read.notes(max_length)
    test: list[T] = []
    held_out = data.eval_dataset or (sources if have_test_splits(sources) and not data.eval_share else [])
    if held_out:
        limit = eval_samples or (GENERATED_HELD_OUT if have_test_splits(held_out) else None)
        read = encode(_rows(held_out, "test", limit, seed, of_problems), f"--eval_dataset {listed(held_out)}")
        test = list(read.items)
        notes += [f"held out: {note}" for note in read.notes(max_length)]
    elif data.eval_share:
        train, test = hold_out(train, data.eval_share, seed, prompt_of)
        test = draw_sample(test, eval_samples, seed)
    return SupervisedData(train, test, notes)


def _rows(
    sources: Sequence[str],
    split: str,
    limit: int | None,
    seed: int,
    of_problems: Callable[[Sequence[Problem]], list[Row]],
) -> list[Row]:
    if not sources:
        raise UserError(
            "no data: give at least one of `builtin`, a JSONL, CSV or Parquet file, a folder, or a hub name"
        )
    rows: list[Row] = []
    for source in sources:
        if is_generated(source):
            rows += of_problems(read_problems([source], split=split, limit=limit))
        else:
            rows += read_rows(source, split)
    return draw_sample(rows, limit, seed)


def _worked_rows(problems: Sequence[Problem]) -> list[Row]:
    """Generated problems with their working as the answer."""
    return [Row({"question": p.question, "answer": worked_example(p)}, f"{p.source}, {p.id}") for p in problems]


def hold_out(
    items: Sequence[T], share: float, seed: int, prompt_of: Callable[[T], Hashable]
) -> tuple[list[T], list[T]]:
    """Split off about this share of the items, whole prompts at a time: a prompt that was learned from is not held out.

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


class SupervisedLoader(Loader[Example]):
    """Yields this process's share of each batch as a list of `Example`s, for ever; resumable as `PromptLoader` is.

    Args:
        sources: JSONL, CSV or Parquet files, folders of them, or hub names.
        tokenizer: of the model.
        conversation: template for questions and messages; its end marker closes every response.
        batch_size: rows of one batch, over all processes.
        max_length: most tokens of a row; longer ones are cut on the right.

    Attributes:
        dropped: rows that are left without a token to learn.
        truncated: rows that were cut.

    Raises:
        UserError: data that can't be read, rows without the columns, nothing left to learn from, or a batch that does
            not divide among the processes.
    """

    def __init__(
        self,
        sources: Sequence[str],
        tokenizer: "PreTrainedTokenizerBase",
        *,
        batch_size: int,
        max_length: int,
        conversation: "Conversation | None" = None,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        rows = [row for source in sources for row in read_rows(source)]
        where = f"--ptx_dataset {listed(sources)}"
        read = encode_rows(rows, tokenizer, conversation, max_length=max_length, overlong="truncate", where=where)
        self.dropped, self.truncated = read.empty + read.overlong, read.truncated
        super().__init__(read.items, PromptSampler(len(read.items), batch_size, seed), rank, world_size)
