"""Responses that were asked of rollout workers: whole ones, and those that go on from one version of the weights to the next.

`PartialRollouts` is what others call partial rollouts (Kimi k1.5, arXiv:2501.12599, section 2.6; AReaL, arXiv:2505.24298), in a form in
which nothing depends on clocks. Where they interrupt what is in work when new weights come, here a response has a fixed number of tokens,
N, of each version: token t of a response for episode i that was begun with the weights after v episodes is sampled by those after
min(i, v + t // N). Whoever is slow changes nothing of that, and no response is dropped.

Long responses are few, and whoever waits for one holds a worker whose other rows have ended. Here those that are left after N tokens go on
together, in requests as full as the first ones.

Left out: keeping the keys and values of the tokens so far. They are those of former weights, and with them the next token would be sampled by
no version at all. The worker reads prompt and tokens anew, as one prompt.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, as_completed
from dataclasses import dataclass, replace
from functools import partial
from threading import Condition
from typing import Any

from rewards import Sample
from rlvr.data.prompts import Prompt
from rlvr.ray.cluster import import_ray
from rlvr.ray.rollout import Part, RolloutWorkers, Weights
from rlvr.ray.splitting import Piece
from rlvr.rollout.engine import Rollout, Sampling, cut_into_parts


@dataclass
class FromWorkers:
    """Responses that were asked of rollout workers; they can be taken again and again.

    Attributes:
        prompts: one for each response; the responses to one prompt in a row.
        parts: the answers to come.
    """

    prompts: Sequence[Prompt]
    parts: list[Part]

    def pieces(self) -> Iterator[tuple[list[int], Any, Piece]]:
        """(places of its responses, reference, piece) of each piece as soon as one is ready."""
        rows = {part.answer: part.rows for part in self.parts}
        for answer in as_completed(rows):
            yield rows[answer], *answer.result()

    def rollouts(self) -> list[Rollout]:
        """The responses in order, once all are there."""
        found = {row: one for rows, _, piece in self.pieces() for row, one in zip(rows, piece.rollouts, strict=True)}
        return [found[row] for row in range(len(self.prompts))]


def answered(piece: Piece) -> Part:
    """An answer that is there already, of all responses."""
    part = Part(list(range(len(piece.rollouts))), Future())
    part.answer.set_result((import_ray().put(piece), piece))
    return part


class PartialRollouts(FromWorkers):
    """Responses of which each version of the weights samples some tokens.

    The next tokens are asked for as soon as those before are there and the next weights are: here, in the pool's thread, and
    without the driver, which may be learning.

    Args:
        workers: the pool.
        prompts: one for each response.
        sampling: of whole responses.
        seed: names the random numbers of the first tokens, and with the number of tokens before them those of further ones.
        tokens: that each version samples of a response.
        last: the version that samples the rest: the number of the episode that learns from them.
    """

    def __init__(
        self,
        workers: RolloutWorkers,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        seed: tuple[int | str, ...],
        tokens: int,
        last: int,
    ) -> None:
        super().__init__(prompts, [Part(rows, Future()) for rows in cut_into_parts(prompts, sampling.batch_size)])
        self.workers, self.sampling, self.seed, self.tokens, self.last = workers, sampling, seed, tokens, last
        self._number = workers.take_number()  # what was asked first is finished first
        self._found: dict[int, tuple[Rollout, Sample]] = {}
        self._newest = -1  # version that was taken
        self._due: deque[Weights] = deque()
        self._open = 0  # requests that are not answered
        self._failure: BaseException | None = None
        self._changed = Condition()  # guards all of these

    def take(self, weights: Weights) -> None:
        """Have these weights sample their share, once those before have. What was taken before, or comes too late, is passed over."""
        with self._changed:
            if self._newest < weights.version <= self.last:
                self._newest = weights.version
                self._due.append(weights)
                self._go_on()

    def restore(self, piece: Piece) -> None:
        """Begin with what `rollouts` gave."""
        with self._changed:
            self._store(range(len(self.prompts)), piece)
            unfinished = self._unfinished()
            if unfinished:
                versions = self._found[unfinished[0]][0].versions
                assert versions is not None
                self._newest = int(versions[-1])

    def rollouts(self) -> list[Rollout]:
        """The responses in order, as far as the weights that were taken sample them. Waits until they have."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or not (self._open or self._due))
            if self._failure is not None:
                raise self._failure
            return [self._found[row][0] for row in range(len(self.prompts))]

    def _unfinished(self) -> list[int]:
        return [row for row in range(len(self.prompts)) if not self._is_whole(row)]

    def _is_whole(self, row: int) -> bool:
        if row not in self._found:
            return False
        rollout = self._found[row][0]
        return rollout.finished or len(rollout.response_ids) == self.sampling.max_new_tokens

    def _go_on(self) -> None:
        """Ask for the next tokens, if it is time."""
        if self._open or not self._due:
            return
        rows = self._unfinished()
        if not rows:
            self._due.clear()
            return
        weights = self._due.popleft()
        begun = [self._found[row][0] for row in rows] if self._found else []
        # All that are not finished have as many: what each version before has sampled of them.
        before = len(begun[0].response_ids) if begun else 0
        assert all(len(rollout.response_ids) == before for rollout in begun)
        left = self.sampling.max_new_tokens - before
        share = left if weights.version == self.last else min(self.tokens, left)
        asked = self.workers.ask(
            [self.prompts[row] for row in rows],
            replace(self.sampling, max_new_tokens=share),
            (*self.seed, "after", before) if before else self.seed,
            ahead=True,
            begun=begun,
            weights=weights,
            number=self._number,
        )
        self._open = len(asked)
        for part in asked:
            part.answer.add_done_callback(partial(self._answered, [rows[i] for i in part.rows]))

    def _answered(self, rows: Sequence[int], answer: "Future[tuple[Any, Piece]]") -> None:
        with self._changed:
            self._open -= 1
            try:
                self._store(rows, answer.result()[1])
                self._go_on()
            except BaseException as error:  # nobody sees what a callback raises: those who wait for responses do
                self._fail(error)
            self._changed.notify_all()

    def _store(self, rows: Sequence[int], piece: Piece) -> None:
        """Keep what was sampled, and give out the parts that are whole with it."""
        self._found |= dict(zip(rows, zip(piece.rollouts, piece.samples, strict=True), strict=True))
        for part in self.parts:
            if not part.answer.done() and all(self._is_whole(row) for row in part.rows):
                found = [self._found[row] for row in part.rows]
                whole = Piece([rollout for rollout, _ in found], [sample for _, sample in found])
                part.answer.set_result((import_ray().put(whole), whole))

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        for part in self.parts:
            if not part.answer.done():
                part.answer.set_exception(error)
