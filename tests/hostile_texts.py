"""Texts that hang, blow up or attack a naive grader. Built one at a time: some are 10 MB long."""

import base64
import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

DATA = Path(__file__).parents[2] / "shared" / "data" / "rewards"
MEGABYTE = 1_000_000


class _Touch:
    """Unpickling it runs a command."""

    def __init__(self, marker: str) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        import os

        return os.system, (f"touch {self.marker}",)


def generated(marker: str) -> Iterator[tuple[str, str]]:
    """Name and text; whoever runs the code in them touches the file `marker`."""
    yield from code(marker)
    for name, make in LARGE.items():
        yield name, make()
        if name not in SLOW:
            yield f"{name} in a box", f"\\boxed{{{make()}}}"
    for place, text in enumerate(ODD):
        yield f"odd {place}", text
        yield f"odd {place} in a box", f"\\boxed{{{text}}}"


def from_data() -> list[tuple[str, str]]:
    """The texts that lie beside the project; none where they are absent."""
    file = DATA / "hostile.jsonl"
    if not file.exists():
        return []
    rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return [(row["name"], row["text"]) for row in rows]


def code(marker: str) -> Iterator[tuple[str, str]]:
    """Python, sympy and LaTeX that run a command in a grader that evaluates."""
    calls = [
        f"__import__('os').system('touch {marker}')",
        f"open('{marker}','w')",
        f"exec(\"open('{marker}','w')\")",
        f"().__class__.__base__.__subclasses__()[-1].__init__.__globals__['sys'].modules['os'].system('touch {marker}')",
        f"Integer(1).__class__.__mro__[-1].__subclasses__() or open('{marker}','w')",
        f"Symbol('x').func.__globals__['__builtins__']['__import__']('os').system('touch {marker}')",
        f"(lambda: open('{marker}','w'))()",
        f"[c for c in [open('{marker}','w')]][0]",
        f"sympify(\"open('{marker}','w')\")",
        f"f\"{{open('{marker}','w')}}\"",
        f"{{open('{marker}','w')}}",
        f"!!python/object/apply:os.system ['touch {marker}']",
        f"$(touch {marker})",
        f"`touch {marker}`",
        f"42; import os; os.system('touch {marker}')",
        f"42 if open('{marker}','w') else 0",
        f"%(open('{marker}','w'))s",
        f"\\input{{|touch {marker}}}",
        f"\\write18{{touch {marker}}}",
        base64.b64encode(pickle.dumps(_Touch(marker))).decode(),
        pickle.dumps(_Touch(marker), 0).decode("latin-1"),
        pickle.dumps(_Touch(marker), 4).decode("latin-1"),
    ]
    wrappings = [
        "{}", "\\boxed{{{}}}", "\\boxed{{\\text{{{}}}}}", "$${}$$", "\\({}\\)", "The answer is {}", "#### {}", "\\boxed{{42, {}}}",
        "\\boxed{{x = {}}}", "\\boxed{{\\frac{{{}}}{{1}}}}", "\\boxed{{\\sqrt{{{}}}}}", "\\boxed{{\\operatorname{{{}}}(1)}}", "<answer>{}</answer>",
        "```python\nprint({})\n```", "\\boxed{{\\begin{{pmatrix}}{}\\end{{pmatrix}}}}", "\\boxed{{\\int {} dx}}", "\\boxed{{{{{}}}}}", "\\boxed{{x_{{{}}}}}",
    ]  # fmt: skip
    for i, call in enumerate(calls):
        for j, wrapping in enumerate(wrappings):
            yield f"code {i} wrapping {j}", wrapping.format(call)


LARGE: dict[str, Callable[[], str]] = {
    "powers of powers": lambda: "9" + "**9" * 200,
    "powers up": lambda: "10^{" * 200 + "9" + "}" * 200,
    "power tower": lambda: "9^{9^{9^{9^{9^{9}}}}}",
    "huge exponent": lambda: "2^{99999999999999999999}-2^{99999999999999999998}",
    "huge root": lambda: "\\sqrt[99999999999]{2^{99999999999}}",
    "root of much": lambda: "\\sqrt{" * 60 + "2" + "}" * 60,
    "factorials of factorials": lambda: "((((9!)!)!)!)!",
    "2000 factorials": lambda: "9" + "!" * 2000,
    "sum of factorials": lambda: "+".join(f"{2900 + i}!" for i in range(90)),
    "quotients of factorials": lambda: "+".join(f"\\frac{{{2900 - i}!}}{{{2800 + i}!}}" for i in range(60)),
    "huge binomial": lambda: "\\binom{99999999}{49999999}",
    "sum of binomials": lambda: "+".join(f"\\binom{{3000}}{{{1400 + i}}}" for i in range(60)),
    "binomials of binomials": lambda: "\\binom{\\binom{\\binom{30}{15}}{15}}{15}",
    "huge gamma": lambda: "\\Gamma(99999999999)",
    "huge sine": lambda: "\\sin(10^{10^{10}})",
    "sines of sines": lambda: "\\sin(" * 45 + "1" + ")" * 45,
    "exponentials": lambda: "\\exp(" * 20 + "9" + ")" * 20,
    "tangents near poles": lambda: "+".join(f"\\tan(\\frac{{\\pi}}{{2}}-10^{{-{i}}})" for i in range(300, 340)),
    "huge modulus": lambda: "7^{10^{1000}} \\mod 10^{1000}",
    "huge gcd": lambda: "\\gcd(10^{9999}, 6^{9999})",
    "huge sum": lambda: "\\sum_{k=1}^{10^{18}} \\frac{1}{k^{2}}",
    "huge product": lambda: "\\prod_{k=1}^{10^{9}} k",
    "sums of sums": lambda: "\\sum_{i=1}^{999}" * 9 + "i",
    "hard integral": lambda: "\\int_0^{\\infty} \\frac{\\sin(x^{x^x})}{x^{x}+1} dx",
    "hard limit": lambda: "\\lim_{x \\to 0} \\frac{\\sin(\\tan x)-\\tan(\\sin x)}{x^{7}}",
    "integrals of integrals": lambda: "\\int_0^1" * 30 + "x dx",
    "expansion": lambda: "(a+b+c+d+e+f+g+h)^{99}-(a-b)^{98}",
    "product of sums": lambda: "".join(f"(x+{i})" for i in range(300)),
    "polynomials of polynomials": lambda: "(" * 40 + "x+1" + ")^2+1" * 40,
    "many variables": lambda: "+".join(f"x_{{{i}}}" for i in range(200)),
    "parentheses": lambda: "(" * 100_000 + "1" + ")" * 100_000,
    "900 parentheses": lambda: "(" * 900 + "1" + ")" * 900,
    "open braces": lambda: "{" * 100_000,
    "closed braces": lambda: "}" * 100_000,
    "open boxes": lambda: "\\boxed{" * 20_000,
    "nested boxes": lambda: "\\boxed{" * 5000 + "42" + "}" * 5000,
    "boxes": lambda: "\\boxed{42}" * 20_000,
    "bare boxes": lambda: "\\boxed 42 " * 20_000,
    "nested fractions": lambda: "\\frac{1}{1+" * 400 + "1" + "}" * 400,
    "nested left and right": lambda: "\\left(" * 300 + "1" + "\\right)" * 300,
    "minus signs": lambda: "-" * 1900 + "1",
    "100k minus signs": lambda: "-" * 100_000 + "1",
    "absolute values": lambda: "|" * 1500 + "1" + "|" * 400,
    "subscripts": lambda: "x" + "_{1" * 400 + "}" * 400,
    "primes": lambda: "f" + "'" * 1500 + "(x)",
    "100k digits": lambda: "9" * 100_000,
    "1900 digits": lambda: "9" * 1900,
    "1900 digits after the point": lambda: "0." + "3" * 1900,
    "100k thousands": lambda: "1" + ",000" * 30_000,
    "huge float": lambda: "1e999999999",
    "digits and spaces": lambda: "1 " * 50_000,
    "a list": lambda: ",".join(map(str, range(400))),
    "a list of one kind": lambda: ",".join(["x"] * 900),
    "a list of roots": lambda: ",".join(f"\\sqrt{{{i}}}+\\sqrt{{{i + 1}}}" for i in range(60)),
    "equations": lambda: "=".join(["x"] * 900),
    "inequalities": lambda: "<".join(["x"] * 900),
    "unions": lambda: "\\cup".join(f"({2 * i},{2 * i + 1})" for i in range(150)),
    "plus or minus": lambda: "\\pm 1" * 300,
    "plus or minus nested": lambda: "\\pm\\sqrt{1" * 40 + "}" * 40,
    "matrix": lambda: "\\begin{pmatrix}" + "\\\\".join("&".join(["x^9"] * 20) for _ in range(20)) + "\\end{pmatrix}",
    "matrices of matrices": lambda: "\\begin{pmatrix}" * 60 + "1" + "\\end{pmatrix}" * 60,
    "dollars": lambda: "$" * 100_000,
    "backslashes": lambda: "\\" * 100_000,
    "spaces": lambda: " " * 100_000 + "42",
    "new lines": lambda: "42" + "\n" * 100_000,
    "the answer is": lambda: "the answer is " * 10_000,
    "hashes": lambda: "#### " * 20_000,
    "hashes only": lambda: "#" * 100_000,
    "think tags": lambda: "<think>" * 20_000,
    "commas": lambda: "," * 1900,
    "letters": lambda: "a" * 1900,
    "words": lambda: "dollars " * 240,
    "negations": lambda: "not " * 400 + "42",
    "degrees": lambda: "^\\circ" * 300,
    "per cent": lambda: "50" + "%" * 1000,
    "text in text": lambda: "\\text{" * 300 + "42" + "}" * 300,
    "stars": lambda: "*" * 1900,
    "formulas": lambda: "$x$ " * 25_000,
    "open formula": lambda: "$" + "x" * 100_000,
    "open brackets": lambda: "\\[ x " * 20_000,
    "10 MB of a": lambda: "a" * (10 * MEGABYTE),
    "10 MB of digits": lambda: "7" * (10 * MEGABYTE),
    "10 MB of boxes": lambda: "\\boxed{1} " * MEGABYTE,
    "10 MB of open boxes": lambda: "\\boxed{" * (10 * MEGABYTE // 7),
    "10 MB of dollars": lambda: "$" * (10 * MEGABYTE),
    "10 MB of new lines": lambda: "\n" * (10 * MEGABYTE),
    "10 MB of emoji": lambda: "\U0001f600" * (10 * MEGABYTE // 4),
    "10 MB of think": lambda: "<think>" * (10 * MEGABYTE // 7),
}

SLOW = {name for name in LARGE if name.startswith("10 MB")} | {
    "sines of sines", "huge sum", "huge product", "sums of sums", "integrals of integrals", "hard limit",
}  # fmt: skip
"""Those that take long to make, or to be refused by the fallback process."""

ODD = [
    "", " ", "\n", "\0", "4\x002", "\ud800", "\udfff42", "42\ud83d", "\u202e24\u202c", "\u200b4\u200b2\u200b", "\ufeff42", "\u2066" * 50 + "42",
    "٤٢", "４２", "四十二", "Ⅻ", "½", "²", "x²", "①", "42\u0301", "e\u0301" * 500, "\x1b[31m42\x1b[0m", "\r42\r", "\x0c", "\x85", "\u2028", "\x7f",
    "{", "}", "}{", "\\", "\\\\", "\\{", "\\frac", "\\frac{", "\\frac{1}", "\\frac{}{}", "\\frac00", "\\sqrt", "\\sqrt[", "\\sqrt[0]{1}", "\\sqrt[]{}",
    "\\left", "\\left(", "\\right)", "\\begin{pmatrix}", "\\end{pmatrix}", "\\begin{}", "\\boxed", "\\boxed{", "\\fbox{42", "\\text{", "\\text",
    "_", "^", "x_", "x^", "^2", "_2", "x^^2", "x__2", "!", "!!", "42!!", "|", "||", "|1", "()", "[]", "\\{\\}", "(,)", ",", ";", "1,,2", "=", "==", "<", "<>", "a<", "\\in",
    "nan", "NaN", "inf", "-inf", "\\infty-\\infty", "0/0", "1/0", "\\frac{0}{0}", "0^0", "0^{-1}", "\\infty/\\infty", "\\log 0", "\\log_1 2", "\\log_0 0", "\\ln(-1)",
    "\\tan(\\pi/2)", "\\arcsin 2", "(-1)^{1/2}", "i^i", "(-8)^{1/3}", "\\sqrt{-1}", "0!", "(-1)!", "1.5!", "\\binom{-1}{2}", "\\binom{1}{2}", "5 \\mod 0", "\\gcd(0,0)",
    "None", "True", "False", "null", "undefined", "lambda", "\\lambda", "__class__", "{0.__class__}", "%s%s%s%n", "${7*7}", "{{7*7}}", "<script>42</script>", "'; DROP TABLE x; --",
    "1_0", "0x2a", "0b101010", "0o52", "42L", "42j", "1e", "1e+", ".", "..", "1.", ".1", "1.2.3", "+", "-", "--42", "+-42", "1/2/3", "1:2:3", "12:60", "25:00", "101010_2", "42_1", "42_0",
    "42_{99999999}", "\\$", "\\%", "%", "$42", "42$", "$$", "$$$", "$ $", "\\(", "\\)", "\\[42", "####", "#### ", "the answer is", "<answer>", "</answer>", "<think>", "</think>",
]  # fmt: skip

PIECES = r"""
0 1 2 10 1,
234 0.5 .5 1e5 1e4500 10^{900} 4. x y z n k a b C A i e \pi π \infty ∞ + - * / ^ _ ! % = < > \le \ge \ne \in \sim \approx ( ) [ ] { } \{ \} | ,
; :
. \frac \sqrt \sqrt[3] \sin \cos \ln \log \lg \binom \text{and} \text{or} \text{ cm} \text{ m} \text{if} \cup \cap \setminus \mathbb{R} \mathbb{Z} \pm \mp ^\circ
\overline \bar \dot \begin{pmatrix} \end{pmatrix} \begin{cases} \end{cases} & \\ \lfloor \rfloor \left \right \cdot \times ² ³ ⁻ ₁ ½ √ ° ' " \% \$ $ € ~ \,
and or not
to for if mod cm sqrt log max min \max \pmod \boxed{ ... \ldots \mathbf{i} f(x) P( \choose \over 12:30 January (A) (mod 7) \prime ∪ ∈ ≤ × − ， （ ） degrees percent gcd cis \hat{j} ^T
""".split()  # fmt: skip
"""What texts are put together from at random, for the parser."""
