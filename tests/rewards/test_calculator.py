"""The calculator: exact, bounded, and never in the way of a model that writes nonsense."""

import time
from fractions import Fraction

import hostile_texts
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards import RewardPool, Sample, Tags, UserError, resolve_environment
from rewards.calculator import Calculator, calculate
from rewards.environment import read_answer
from rewards.functions.played import environment as pay

leaves = st.integers(0, 999).map(lambda n: (str(n), Fraction(n)))


def joined(parts: tuple[tuple[str, Fraction], str, tuple[str, Fraction]]) -> tuple[str, Fraction]:
    (left, a), sign, (right, b) = parts
    value = {"+": a + b, "-": a - b, "*": a * b, "/": a / b if b else a}[sign if b or sign != "/" else "*"]
    return f"({left} {sign if b or sign != '/' else '* 0 + 1 *'} {right})", value if b or sign != "/" else b


sums = st.recursive(leaves, lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(joined), max_leaves=8)


@settings(max_examples=150)
@given(sums)
def test_results_are_exact(case) -> None:
    text, value = case
    said = calculate(text)
    assert not said.startswith("error") or said == "error: too long"
    if not said.startswith("error"):
        assert Fraction(said) == value


def test_nothing_hangs_or_raises() -> None:
    texts = [
        "9^9^9^9",
        "(" * 10**5,
        "1" * 10**5,
        "__import__('os')",
        "1e999999999",
        "2^(2^(2^(2^2)))",
        "9999!",
        *hostile_texts.ODD,
    ]
    for text in [*texts, *(text for _, text in hostile_texts.code("marker"))]:
        begin = time.process_time()
        assert len(calculate(text)) <= 130, text
        assert time.process_time() - begin < 5, text


def test_calls_are_answered_in_order_and_counted() -> None:
    game = Calculator(cost=0.25)
    game.reset({"tags": Tags.default()})
    assert game.step("so <call>12*12</call> and <call>1/0</call>") == (
        "144\nerror: no exact number",
        False,
        {"_calls": 2.0, "_errors": 1.0, "cost": -0.5},
    )
    assert game.step("open <call>7*") == (
        "error: not readable",
        False,
        {"_calls": 1.0, "_errors": 1.0, "cost": -0.25},
    )
    assert game.step("<answer>144</answer>") == ("", True, {"_calls": 0.0, "_errors": 0.0, "cost": 0.0})
    observation, _, scores = game.step("<call>1+1</call>" * 20)
    assert observation == "\n".join(["2"] * 8) and scores["_calls"] == 20


def test_the_template_says_how_a_call_looks() -> None:
    config = Tags.default().to_config()
    assert set(config) == {"think_start", "think_end", "answer_start", "answer_end"}, "the usual ones need not be named"
    tags = Tags.from_config({**config, "call_start": "[calc]", "call_end": {"text": "[/calc]", "num_occur": 0}})
    assert Tags.from_config(tags.to_config()) == tags != Tags.default()
    game = Calculator()
    game.reset({"tags": tags})
    assert game.step("[calc]2+2[/calc] <call>3</call>") == ("4", False, {"_calls": 1.0, "_errors": 0.0})
    with pytest.raises(UserError, match="two tags have the same text"):
        Tags.from_config({**config, "call_start": "<answer>"})


def test_options_reach_it_in_a_worker() -> None:
    options = {"Calculator": {"cost": 0.5}}
    with RewardPool([resolve_environment("calculator", options=options)], workers=1, timeout_s=60) as pool:
        problem = {"question": "q", "gold": "6", "seed": 1, "tags": Tags.default()}
        ((score,),) = pool.score([Sample("<call>2*3</call>", None, columns={"problem": problem, "state": b""})])
        first = read_answer(score)
        assert (first.observation, first.scores) == ("6", {"_calls": 1.0, "_errors": 0.0, "cost": -0.5})
        ((score,),) = pool.score([Sample("<call>2*4</call>", None, columns={"problem": problem, "state": first.state})])
        assert read_answer(score).scores == {"_calls": 1.0, "_errors": 0.0, "cost": -0.5}, (
            "what it was made with, it keeps"
        )
    total = pay({"_calls": 2.0, "cost": -1.0})
    assert total.value == -1.0 and total.components == {"calls": 2.0, "cost": -1.0}
    with pytest.raises(
        UserError, match="environment 'Calculator' takes no option \\['price'\\]; its arguments: .*cost"
    ):
        resolve_environment("calculator", options={"Calculator": {"price": 1}})
