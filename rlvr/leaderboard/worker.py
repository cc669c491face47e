"""The process that a grader runs in: `python -m rlvr.leaderboard.worker SPEC` reads JSON lines and answers each with one.

In: `{"response", "gold", "tagged", "question"}`. Out: `{"correct": true, "seconds": 0.0001}`, or `{"error": "what was raised"}`.
Any command that does the same is a grader, too; `seconds` may be left out. What libraries print goes to stderr.

Imports only `rewards` and the standard library, so that it runs in an environment that has a peer and none of our packages.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rewards import RewardFunction, Sample, Tags, UserError, resolve
from rewards.call import score
from rewards.outcome import Score


def main() -> None:
    """Serve until stdin ends; a grader that can't be used ends it at once, with a message and status 2."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        check = checker(sys.argv[1])
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    for line in sys.stdin.buffer:
        answers.write(json.dumps(answer(check, json.loads(line))) + "\n")
        answers.flush()


def answer(check: Callable[[Sample], bool], row: dict[str, Any]) -> dict[str, Any]:
    """The line that answers a row."""
    question = row.get("question")
    tags = Tags.default() if row.get("tagged") else None
    sample = Sample(row["response"], row["gold"], prompt=question or "", question=question, tags=tags)
    start = time.perf_counter()
    try:
        found: dict[str, Any] = {"correct": check(sample)}
    # Whatever a grader raises is counted.
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {error}"[:300]}
    return found | {"seconds": time.perf_counter() - start}


def checker(spec: str) -> Callable[[Sample], bool]:
    """Whether a reward function takes a sample for right: by its verdict, or by a score nearer to that of a right answer.

    Raises:
        UserError: no such function, or one that does not look at the answer.
    """
    function = resolve(spec)
    try:
        half_way = _half_way(function)
    # Whatever it raises for a plain answer is its author's to mend.
    except Exception as error:
        raise UserError(
            f"reward function {function.name!r} can't score a plain answer: {type(error).__name__}: {error}"
        ) from error
    if half_way is None:
        raise UserError(f"reward function {function.name!r} pays 41 as much as 42 where 42 is right")

    def check(sample: Sample) -> bool:
        found = _score(function, sample)
        if found.outcome is not None:
            return found.outcome.correct
        return found.value is not None and found.value > half_way

    return check


PLAIN = ("<think>6 * 7</think><answer>{}</answer>", "It is $\\boxed{{{}}}$.", "The answer is ${}$.", "#### {}", "{}")
"""Ways to write an answer; a grader need not read all of them."""


def _half_way(function: RewardFunction) -> float | None:
    """Half way between what it pays for right and for wrong; None if that is the same, however the answer is written."""
    for text in PLAIN:
        samples = [
            Sample(text.format(answer), "42", "What is 6 * 7?", "What is 6 * 7?", Tags.default()) for answer in (42, 41)
        ]
        samples = [replace(sample, tags=sample.tags if "<answer>" in text else None) for sample in samples]
        right, wrong = (_score(function, sample).value or 0.0 for sample in samples)
        if right > wrong:
            return (right + wrong) / 2
    return None


def _score(function: RewardFunction, sample: Sample) -> Score:
    if not {"tags", "answer"} & set(function.parameters):
        sample = replace(sample, response=plain(sample), tags=None)
    return score(function, [sample])[0]


def plain(sample: Sample) -> str:
    """What a grader that knows no tags is given: the answer between them, in a box unless it is in a box or formula already."""
    if sample.tags is None:
        return sample.response
    answer = sample.answer
    if answer is None:
        return ""
    return answer if "$" in answer or "\\boxed" in answer else f"\\boxed{{{answer}}}"


if __name__ == "__main__":
    main()
