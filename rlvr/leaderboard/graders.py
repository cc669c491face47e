"""The graders that have names: ours and peers. Each is a reward function, as the worker calls it.

To add one, write a function of `response`, `gold` (and `tags`, `question` if it wants them) that returns whether the answer is right,
and a line in `GRADERS`. Without `tags` it is given the answer between them (`rlvr.leaderboard.worker.plain`). Packages are imported inside: what is not installed is skipped.
"""

import time
from dataclasses import dataclass
from functools import cache
from typing import Any

from rewards import Outcome, Tags, grade
from rewards.maths import fallback


@dataclass(frozen=True)
class Named:
    """A known grader.

    Attributes:
        spec: its function, as `rewards.resolve` finds it.
        packages: what it needs, as PyPI calls it.
        module: the module of the first of them.
        text: what it is.
    """

    spec: str
    text: str
    packages: tuple[str, ...] = ()
    module: str = ""


def ours(response: str, gold: str, tags: Tags | None, question: str | None) -> Outcome:
    """`rewards.grade`."""
    _wait_for_the_fallback()
    return grade(response, gold, tags=tags, question=question)


@cache
def _wait_for_the_fallback() -> None:
    while fallback.verify(r"\frac{1}{1}", r"\frac{2}{2}") is None:
        time.sleep(0.05)  # its process is starting


def math_verify(response: str, gold: str) -> bool:
    """Its own `parse` and `verify`, with their default settings."""
    from math_verify import parse, verify

    return verify(parse(in_dollars(gold)), parse(response))


def trl(response: str, gold: str) -> bool:
    """TRL's `accuracy_reward`."""
    from trl.rewards import accuracy_reward

    return accuracy_reward([[{"role": "assistant", "content": response}]], [in_dollars(gold)])[0] == 1.0


@cache
def _lighteval() -> Any:
    from lighteval.metrics.dynamic_metrics import MultilingualExtractiveMatchMetric
    from lighteval.metrics.utils.extractive_match_utils import ExprExtractionConfig, LatexExtractionConfig

    both = (ExprExtractionConfig(), LatexExtractionConfig(boxed_match_priority=0))
    return MultilingualExtractiveMatchMetric(gold_extraction_target=both, pred_extraction_target=both, precision=6)


def lighteval(response: str, gold: str) -> bool:
    """lighteval's extractive match, of numbers and LaTeX, as its tasks of mathematics use it."""
    from lighteval.models.model_output import ModelResponse
    from lighteval.tasks.requests import Doc

    doc = Doc(query="", choices=[in_dollars(gold)], gold_index=0)
    return _lighteval().compute(doc=doc, model_response=ModelResponse(text=[response])) == 1.0


def inspect_math(response: str, gold: str) -> bool:
    """inspect-ai's scorer `math`."""
    return _inspected("math", response, gold)


def inspect_match(response: str, gold: str) -> bool:
    """inspect-ai's scorer `match(numeric=True)`: the end of the answer, as a number where it is one."""
    return _inspected("match", response, gold)


def _inspected(name: str, text: str, gold: str) -> bool:
    import asyncio

    from inspect_ai.model import ModelName, ModelOutput
    from inspect_ai.scorer import Target
    from inspect_ai.solver import TaskState

    output = ModelOutput.from_content("none/none", text)
    state = TaskState(ModelName("none/none"), 0, 0, "", [], Target(gold), output=output)
    return asyncio.run(_scorer(name)(state, Target(gold))).value == "C"


@cache
def _scorer(name: str) -> Any:
    from inspect_ai import scorer

    return scorer.math() if name == "math" else scorer.match(numeric=True)


def string(response: str, gold: str) -> bool:
    """The floor: the last box, else the last word with a digit, is the gold but for spaces and LaTeX dress."""
    return _undressed(_last(response)) == _undressed(gold)


def _undressed(text: str) -> str:
    for dress in ("\\left", "\\right", "\\!", "\\,", "\\$", "$", ",", " "):
        text = text.replace(dress, "")
    return text.replace("dfrac", "frac").replace("tfrac", "frac").rstrip(".").lower()


def _last(text: str) -> str:
    _, box, rest = text.rpartition("\\boxed{")
    if box:
        return rest[: rest.rfind("}")] if rest.count("}") > rest.count("{") + 1 else rest.split("}")[0]
    return next((word for word in reversed(text.split()) if any(c.isdigit() for c in word)), "")


def in_dollars(gold: str) -> str:
    """As math-verify and those that are made of it want their golds."""
    return gold if "$" in gold or "\\boxed" in gold else f"${gold}$"


_HERE = "rlvr.leaderboard.graders"
_INSPECT = ("inspect-ai", "latex2sympy2-extended==1.11.0")
# fmt: off
GRADERS = {
    "rlvr": Named(f"{_HERE}:ours", "`rewards.grade`"),
    "math-verify": Named(f"{_HERE}:math_verify", "`verify(parse(gold), parse(response))`", ("math-verify",), "math_verify"),
    "TRL": Named(f"{_HERE}:trl", "`trl.rewards.accuracy_reward`", ("trl",), "trl"),
    "lighteval": Named(f"{_HERE}:lighteval", "`MultilingualExtractiveMatchMetric` of numbers and LaTeX", ("lighteval",), "lighteval"),
    "inspect-ai math": Named(f"{_HERE}:inspect_math", "its scorer `math()`", _INSPECT, "inspect_ai"),
    "inspect-ai match": Named(f"{_HERE}:inspect_match", "its scorer `match(numeric=True)`", _INSPECT, "inspect_ai"),
    "string": Named(f"{_HERE}:string", "the last box or number, compared as text"),
}
# fmt: on
