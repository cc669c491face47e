"""Properties over the golds of real data sets: each is itself, and no two of them are one."""

import json
import random
import re
from pathlib import Path

import pytest
from processor_time import seconds

from rewards.grade import answer_of_gold, check_gold
from rewards.maths import equivalent, readable

DATA = ("math_train", "math500", "gsm8k_train", "gsm8k_test", "svamp", "aime24")
SAME = [{"180", r"180^\circ"}]
"""Golds of MATH that do say the same, but for how a fraction or a thousand is written."""
DRESS = re.compile(r"\\[dt]?frac|[{}\s]|,\\!|\\!|\\\$|\\(?:left|right|text|%)")


def golds(shared_data: Path, *names: str) -> list[str]:
    rows = (
        json.loads(line) for n in names for line in (shared_data / "problems" / f"{n}.jsonl").open(encoding="utf-8")
    )
    return sorted({answer_of_gold(str(row["answer"])) for row in rows})


@pytest.mark.parametrize("name", DATA)
def test_every_gold_is_itself(name, shared_data) -> None:
    assert [g for g in golds(shared_data, name) if not check_gold(g)] == []


def test_nearly_every_gold_can_be_read(shared_data) -> None:
    found = golds(shared_data, *DATA)
    unread = [g for g in found if not readable(g)]
    assert len(unread) <= 2, unread


def test_two_golds_of_math_are_two_answers(shared_data) -> None:
    found = golds(shared_data, "math_train", "math500")
    generator = random.Random(0)
    for _ in range(15_000):
        a, b = generator.sample(found, 2)
        if equivalent(a, b)[0]:
            assert DRESS.sub("", a) == DRESS.sub("", b) or {a, b} in SAME, (a, b)


def _with_another_digit(gold: str, generator: random.Random) -> str:
    place = generator.choice([m.start() for m in re.finditer(r"\d", gold)])
    return gold[:place] + str((int(gold[place]) + 1) % 10) + gold[place + 1 :]


def _with_another_sign(gold: str, generator: random.Random) -> str:
    place = generator.choice([m.start() for m in re.finditer("[-+]", gold)])
    return gold[:place] + ("+" if gold[place] == "-" else "-") + gold[place + 1 :]


@pytest.mark.parametrize(("change", "where"), [(_with_another_digit, r"\d"), (_with_another_sign, "[-+]")])
def test_a_gold_with_one_character_changed_is_another_answer(change, where, shared_data) -> None:
    generator = random.Random(1)
    found = [g for g in golds(shared_data, "math_train", "math500") if re.search(where, g) and "approx" not in g]
    assert [(h, g) for g in found if equivalent(h := change(g, generator), g)[0]] == []


def test_verdicts_come_in_time(shared_data) -> None:
    found = golds(shared_data, "math500")
    generator = random.Random(2)
    equivalent(r"\sqrt{2}", r"\sqrt{3}")  # mpmath is imported
    times = []
    for _ in range(3000):
        a, b = generator.sample(found, 2)
        times.append(seconds(lambda: equivalent(a, b), limit_s=1.0))  # noqa: B023
    times.sort()
    assert times[int(0.99 * len(times))] < 0.02 and times[-1] < 1.0
