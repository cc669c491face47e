"""Scores of responses that come again, for functions whose arguments say that nothing else can matter."""

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from hashlib import blake2b

from rewards.outcome import Score
from rewards.registry import RewardFunction
from rewards.sample import FIELDS, Sample

_PURE = {"response", "gold", "answer", "tags", "question"}


class Cache:
    """At most `size` scores, the least lately used leave first."""

    def __init__(self, functions: list[RewardFunction], size: int) -> None:
        self._size = size
        self._scores: OrderedDict[Hashable, Score] = OrderedDict()
        self._of = {i: _others(f) for i, f in enumerate(functions) if size > 0 and is_pure(f)}

    def __len__(self) -> int:
        return len(self._scores)

    def key(self, function: int, sample: Sample) -> Hashable | None:
        """A key of everything that the score depends on; None where it may depend on more."""
        others = self._of.get(function)
        if others is None or (sample.columns and not others.isdisjoint(sample.columns)):
            return None
        digest = blake2b(digest_size=16)
        for text in (sample.response, sample.gold, sample.question):
            data = b"\xff" if text is None else text.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "big"))
            digest.update(data)
        return (function, digest.digest(), sample.tags)

    def get(self, key: Hashable) -> Score | None:
        score = self._scores.get(key)
        if score is not None:
            self._scores.move_to_end(key)
        return score

    def put(self, key: Hashable, score: Score) -> None:
        self._scores[key] = score
        if len(self._scores) > self._size:
            self._scores.popitem(last=False)


def is_pure(function: RewardFunction) -> bool:
    """True for a function that asks for the response, the problem and its own options, and nothing else."""
    parameters = function.parameters
    kinds = {p.kind for p in parameters.values()}
    asks = set(parameters) - set(function.options)
    required = {name for name in asks if parameters[name].default is parameters[name].empty}
    return (
        not function.batched
        and not kinds & {p.VAR_KEYWORD for p in parameters.values()}
        and not asks & (set(FIELDS) - _PURE)
        and required <= _PURE
    )


def _others(function: RewardFunction) -> frozenset[str]:
    """Names that a column of the data could fill, so that a sample with such a column is not to be kept."""
    parameters: Mapping[str, object] = function.parameters
    return frozenset(set(parameters) - _PURE - set(function.options))
