"""Supervised data for the ptx loss; `rlvr/data/examples.py` says which columns a row may have."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlvr.data.examples import Example, encode_rows
from rlvr.data.readers import read_rows
from rlvr.data.sampling import Loader, PromptSampler
from rlvr.suggest import listed

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlvr.conversation import Conversation


class SupervisedLoader(Loader[Example]):
    """Yields this process's share of each batch as a list of `Example`s, for ever; resumable as `PromptLoader` is.

    Args:
        sources: JSONL or CSV files, folders of them, or hub names.
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
