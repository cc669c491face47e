"""The evaluator: values against Python's own, bounds, spans, rounding error, and threads."""

import cmath
import math
import threading
from fractions import Fraction

import pytest

from rewards.maths.errors import UndecidedError
from rewards.maths.numeric import Evaluator
from rewards.maths.parser import parse

POINT = {"x": Fraction(3, 4), "y": Fraction(7, 3)}
x, y = 0.75, 7 / 3


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"\sin x", math.sin(x)), (r"\cos 60^\circ", 0.5), (r"\tan^{-1} y", math.atan(y)), (r"\cosh x", math.cosh(x)),
        (r"\sec x", 1 / math.cos(x)), (r"\ln y", math.log(y)),
        (r"\log_3 y", math.log(y, 3)), (r"\lg y", math.log10(y)), ("e^x", math.exp(x)), ("exp(x)", math.exp(x)),
        ("x^y", x**y), (r"\sqrt[3]{-8}", -2), ("(-8)^{2/3}", 4), ("cbrt(27)", 3),
        ("e^{i x}", cmath.exp(1j * x)), ("cis(x)", cmath.exp(1j * x)), (r"\sqrt{-4}", 2j), ("(-4)^{1/2}", 2j),
        ("(1+i)^2", 2j),
        ("|3-4i|", 5), (r"\bar{(1+2i)}", 1 - 2j), ("Re(2+3i)", 2), ("Im(2+3i)", 3),
        ("x!", math.gamma(x + 1)), (r"\binom{y}{x}", math.gamma(y + 1) / math.gamma(x + 1) / math.gamma(y - x + 1)),
        (r"\lfloor y \rfloor", 2), (r"\lceil y \rceil", 3),
        (r"\max(x, y)", y), (r"\min(x, y)", x), ("sign(x - y)", -1), ("y mod x", math.fmod(y, x)), (r"50\%", 0.5),
        ("x:y", x / y), (r"\arg(1+i)", math.pi / 4), (r"\pi", math.pi),
    ],
)  # fmt: skip
def test_values(text, value) -> None:
    assert complex(Evaluator(POINT, 120).value(parse(text))) == pytest.approx(value, rel=1e-14)


@pytest.mark.parametrize(
    "text",
    [
        "1/0", "1/(x-x)", r"\ln 0", "0^0", "0^{-1}", "z", r"\log_{0} 2", "x = 1", "9^{9^{9^9}}", "e^{e^{e^{e^e}}}",
        "(10^{10})!", r"\tan 90^\circ", r"\sin(10^{2000})", r"\lfloor i \rfloor", "(-1)!",
        r"\lfloor 10^{2000} \rfloor", "oo",
    ],
)  # fmt: skip
def test_no_value(text) -> None:
    with pytest.raises(UndecidedError):
        Evaluator(POINT, 160).value(parse(text))


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [("1", 0, 1), ("10^{-30}", -99, 4), ("10^{30}", 0, 100), ("10^{30} - 10^{30} + 10^{-30}", -99, 100)],
)
def test_the_span_covers_all_magnitudes_met(text, low, high) -> None:
    evaluator = Evaluator({}, 400)
    evaluator.value(parse(text))
    assert (evaluator.span.low, evaluator.span.high) == pytest.approx((low, high), abs=2)


@pytest.mark.parametrize(
    "text",
    [r"\sin \pi", r"\sqrt{2}\sqrt{3} - \sqrt{6}", r"\cos\frac{\pi}{2}", "e^{i\\pi} + 1", r"\ln e^2 - 2", r"\tan(\pi)"],
)
def test_rounding_error_is_zero_and_leaves_no_span(text) -> None:
    evaluator = Evaluator({}, 160)
    assert evaluator.value(parse(text)) == 0 and evaluator.span.low > -10


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (r"\sqrt{-x}", True), (r"\ln(-x)", True), (r"\arcsin y", True), (r"\sqrt{x}", False), ("2i", False),
        ("e^{ix}", False),
    ],
)  # fmt: skip
def test_leaving_the_real_numbers_is_noted(text, left) -> None:
    evaluator = Evaluator(POINT, 160)
    evaluator.value(parse(text))
    assert evaluator.left_reals is left


def test_threads_do_not_share_a_precision() -> None:
    wanted = {bits: str(Evaluator({}, bits).value(parse(r"\sqrt{2}"))) for bits in (60, 2000)}
    found: list[tuple[int, str]] = []

    def work(bits: int) -> None:
        for _ in range(200):
            value = Evaluator({}, bits).value(parse(r"\sqrt{2}"))
            found.append((bits, str(value.man)))

    threads = [threading.Thread(target=work, args=(bits,)) for bits in wanted for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == len(wanted) and len(found) == 800
