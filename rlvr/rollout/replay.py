"""Responses that the data set brings along: for tests of the learner, and for learning from recorded responses."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rlvr.errors import UserError
from rlvr.rollout.engine import Engine, Rollout, Sampling, cut_at_stop

if TYPE_CHECKING:
    from rlvr.data.prompts import Prompt

COLUMN = "response"


class ReplayEngine(Engine):
    """Returns the text in each problem's column `response`, tokenised, ended by the first stop token."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer

    def stream(
        self,
        model: PreTrainedModel,
        prompts: Sequence["Prompt"],
        sampling: Sampling,
        seed: Sequence[int | str],
        first: int = 0,
    ) -> Iterator[list[Rollout]]:
        """One recorded response to each prompt, cut at the length limit.

        Raises:
            UserError: a problem without the column.
        """
        yield [self._replay(prompt, sampling) for prompt in prompts]

    def _replay(self, prompt: "Prompt", sampling: Sampling) -> Rollout:
        text = prompt.problem.columns.get(COLUMN)
        if not isinstance(text, str):
            raise UserError(
                f"--engine replay: problem {prompt.problem.id} ({prompt.problem.source}) has no text in the column "
                f"{COLUMN!r}; its columns: {', '.join(prompt.problem.columns) or 'none'}"
            )
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        if sampling.stop_ids and not any(i in sampling.stop_ids for i in ids):
            ids = [*ids, sampling.stop_ids[0]]
        kept, stopped = cut_at_stop(ids[: sampling.max_new_tokens], sampling.stop_ids)
        return Rollout(torch.tensor(prompt.ids), torch.tensor(kept, dtype=torch.long), "stop" if stopped else "length")
