"""Values of expressions: exact, modulo a prime and numeric; right, and bounded."""

import cmath
import math
import threading
from fractions import Fraction

import pytest

from rewards.maths import equivalent
from rewards.maths.evaluate import PRIME, Evaluator, _is_prime, _random_prime, exact, residue
from rewards.maths.limits import MAX_BITS, UndecidedError
from rewards.maths.parser import parse
from rewards.maths.syntax import Op


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2^10", 1024), ("2^{-2}", Fraction(1, 4)), ("4^{1/2}", 2), ("8^{2/3}", 4),
        (r"\sqrt{\frac{9}{4}}", Fraction(3, 2)), (r"\sqrt[5]{32}", 2),
        (r"\frac{6!}{4!}", 30), (r"\binom{10}{3}", 120), ("lcm(4, 6)", 12), ("sign(-4)", -1), ("|3-5|", 2), ("0!", 1), (r"\sqrt{0}", 0),
    ],
)  # fmt: skip
def test_rational_values(text, value) -> None:
    assert exact(parse(text)) == value


@pytest.mark.parametrize(
    "text",
    [
        "x",
        r"\pi",
        r"\sqrt{2}",
        "1/0",
        "0^0",
        "0^{-1}",
        "(-8)^{1/3}",
        "(1/2)!",
        "(-1)!",
        r"\binom{1/2}{1}",
        r"\sin 0",
        "5 mod 0",
        r"\sqrt{-4}",
    ],
)
def test_no_rational_value(text) -> None:
    assert exact(parse(text)) is None


@pytest.mark.parametrize(
    "text", ["2^{100000}", "9^{9^9}", "5000!", r"\binom{99999}{50000}", "(2^{30000})^2", "(1/3)^{30000}"]
)
def test_values_are_bounded(text) -> None:
    assert exact(parse(text)) is None


def test_the_bound_is_beyond_what_answers_need() -> None:
    assert exact(parse("2004!")) and exact(parse("2^{19999}")) == 2**19999 and MAX_BITS == 40_000


@pytest.mark.parametrize("name", ["div", "pow", "binom", "mod", "sqrt", "add"])
def test_a_wrong_number_of_arguments_has_no_value(name) -> None:
    assert exact(Op(name, (parse("2"),) * (3 if name != "add" else 1))) is None


def test_residues_of_equal_rational_functions_are_equal() -> None:
    point = {"x": 12345, "y": 987654321, "pi": 17}
    same = [
        ("(x+y)^2", "x^2+2xy+y^2"), (r"\frac{x^2-y^2}{x-y}", "x+y"), (r"\frac{\pi}{2}", r"0.5\pi"), ("x^{-1}", "1/x"),
        (r"50\%x", "x/2"),
    ]  # fmt: skip
    for left, right in same:
        assert residue(parse(left), point) == residue(parse(right), point)
    assert residue(parse("x"), point) != residue(parse("y"), point)


@pytest.mark.parametrize("text", ["x^{1/2}", r"\sqrt{x}", r"\sin x", "x^y", "1/(x-x)", "x^{2000000}", "z", "|x|"])
def test_no_residue(text) -> None:
    with pytest.raises(UndecidedError):
        residue(parse(text), {"x": 2, "y": 3})


def test_the_modulus_is_a_prime_that_no_answer_can_name() -> None:
    small = {n for n in range(73, 5000, 2) if all(n % d for d in range(3, 72, 2))}
    assert {n for n in range(73, 5000, 2) if _is_prime(n)} == small
    primes = {_random_prime() for _ in range(3)}
    assert len(primes) == 3 and all(1 << 60 < p < 1 << 61 and _is_prime(p) for p in primes)


@pytest.mark.parametrize("answer", ["42+2305843009213693951x", "41+(2^{61})^{6100}", "41+(2^{60})^{6100}"])
def test_what_vanishes_modulo_a_known_prime_is_not_zero(answer) -> None:
    assert not equivalent(answer, "42")[0]


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [("2^{100000}", "4^{50000}", True), ("2^{100000}", "4^{50001}", False), ("x^{90000}", "(x^9)^{10000}", True)],
)
def test_powers_that_are_too_long_to_write_down(a, b, same) -> None:
    assert equivalent(a, b)[0] is same


def test_a_residue_is_below_the_prime() -> None:
    assert residue(parse("-1"), {}) == PRIME - 1 and residue(parse("1/2"), {}) * 2 % PRIME == 1


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
