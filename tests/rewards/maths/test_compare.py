r"""Parts of an answer that may be left out or written otherwise, and those that may not: each pair is one idea.

`equivalent` is asked, from text to verdict; `BOTH_WAYS` pairs hold with answer and gold exchanged.
"""

import pytest

from rewards.maths import equivalent, readable

SAME_BOTH_WAYS = {
    "lists": [
        ("1, 2, 3", "3,2,1"), ("2, 3 and 5", r"2, 3, \text{ and } 5"), ("1; 2", "1, 2"), (r"\{1, 2\}", "1, 2"),
        ("$2$ and $3$", "3, 2"), (r"3 \& 4", "3, 4"), ("{1, 2}", r"\{1, 2\}"), (r"\{5\}", "5"),
        ("(1,2), (3,4)", "(3,4),(1,2)"), (r"\{(1,2),(3,4)\}", "(1,2) and (3,4)"), ("x = -2, 3", r"\{-2, 3\}"),
        ("x = 2 or x = 3", "2, 3"), (r"x \in \{1, 2\}", "1, 2"), ("x_1 = 2, x_2 = 3", "2, 3"),
        (r"\begin{cases} x = 1 \\ y = 2 \end{cases}", "x=1, y=2"),
        ("1, 2, ..., n", r"1,2,\ldots,n"),
    ],
    "tuples": [
        ("(1, 2)", r"\left(1,2\right)"), (r"\langle 1, 2 \rangle", "(1,2)"), ("(0.5, 2)", r"(\frac12, 2)"),
        ("(x, y) = (3, 4)", "(3, 4)"), ("x = 3, y = 4", "(3, 4)"), ("y = 4, x = 3", "(3,4)"),
        ("x=3 and y=4", "(x,y)=(3,4)"), ("r = 3, s = 1", "(r, s) = (3, 1)"),
        ("[1, 2, 3]", r"\begin{bmatrix} 1 & 2 & 3 \end{bmatrix}"), ("(3t, 1-t)", "(3s, 1-s)"),
        (r"\mathbf{i} - 2\mathbf{j}", "(1, -2)"), (r"3\hat{i} - 2\hat{j} + \hat{k}", r"\langle 3,-2,1 \rangle"),
        ("2(1, 2)", "(2, 4)"), ("(1,2)+t(3,4)", "(1+3t, 2+4t)"),
    ],
    "matrices": [
        (r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", "[[1,2],[3,4]]"),
        (r"\begin{bmatrix} 1 \\ 2 \end{bmatrix}", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", "(1,2)"),
        (r"\frac12\begin{pmatrix} 2 \\ 4 \end{pmatrix}", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"),
        (r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}^T", r"\begin{pmatrix} 1 & 3 \\ 2 & 4 \end{pmatrix}"),
        (r"\begin{array}{cc} 1 & 2 \\ 3 & 4 \end{array}", r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}"),
    ],
    "equations": [
        (r"\begin{array}{l} x = 3 \\ y = 4 \end{array}", "x = 3, y = 4"),
        (r"x = \{1 \pm \sqrt{5}\}", r"1 + \sqrt5, 1 - \sqrt5"),
        ("x = 5", "5"), ("5 = x", "x = 5"), ("y = 2x + 1", "2x + 1"), ("y = 2x+1", "2x - y + 1 = 0"),
        ("x^2+y^2=4", r"\frac{x^2}{4} + \frac{y^2}{4} = 1"), ("y = 1/x", "xy = 1"), ("y = x^2", "f(x) = x^2"),
        ("f(x) = x^2", "f(t) = t^2"), ("f(x)=x^2", "x^2"),
        (r"\frac{x-1}{2} = \frac{y-2}{3}", "3(x-1) = 2(y-2)"), ("AB = 5", "5"), (r"\angle ABC = 30^\circ", "30"),
        ("Area = 12", "12"), ("f^{-1}(x) = 2x", "2x"), (r"P(A \mid B) = \frac13", "1/3"), ("|AB| = 5", "5"),
        ("N = 5", "n = 5"), ("f(t) = t^2", "y = x^2"), (r"x = \sqrt{8} = 2\sqrt2", r"2\sqrt2"),
        ("a = 1, b = 2", "b=2, a=1"), ("x^2 - 1 = 0", "(x-1)(x+1) = 0"),
    ],
    "plus-minus": [
        (r"\pm 3", "3, -3"), (r"x = \pm\sqrt{2}", r"-\sqrt2, \sqrt2"), (r"1 \pm \sqrt{2}", r"1+\sqrt2, 1-\sqrt2"),
        (r"(\pm 3, 0)", "(3,0), (-3,0)"), (r"0, \pm 1", "-1, 0, 1"),
        (r"\frac{-b \pm \sqrt{b^2-4ac}}{2a}", r"x = \frac{-b \pm \sqrt{b^2 - 4 a c}}{2 a}"),
        (r"a \mp b", r"a \pm -b"),
    ],
    "sets": [
        ("{x | x > 1}", "x > 1"), ("1 < x + y < 3", "3 > x + y > 1"), ("2 < 2x + 2y", "x + y > 1"),
        ("x > 3", r"(3, \infty)"), ("3 < x", "x > 3"), (r"-1 < x \le 3", "(-1, 3]"),
        ("x < -1 or x > 3", r"(-\infty,-1) \cup (3,\infty)"), (r"x < -1 \cup x > 3", r"(-\infty,-1) \cup (3,\infty)"),
        (r"(-\infty, 0) U (0, \infty)", r"x \ne 0"), (r"\mathbb{R} \setminus \{0\}", "x ≠ 0"),
        ("all real numbers", r"(-\infty, \infty)"), (r"\text{all real numbers except } 2", r"x \ne 2"),
        (r"\{x \in \mathbb{R} : x \neq 2\}", r"\mathbb{R} - \{2\}"), ("|x - 1| < 3", "(-2, 4)"),
        ("|x| > 2", "x > 2 or x < -2"), ("]1, 2[", "(1,2)"), ("-2x > 6", "x < -3"), (r"\ge 3", r"x \ge 3"),
        ("[1,2] ∪ [2,3]", "[1,3]"), (r"[1,3] \setminus \{2\}", r"[1,2) \cup (2,3]"), (r"[0,2] \cap [1,3]", "[1,2]"),
        (r"x > 0, x \ne 1", r"(0,1) \cup (1,\infty)"), ("x ≠ 1, 2", r"x \ne 2, x \ne 1"),
        (r"\emptyset", "no solution"), (r"\{\}", "the empty set"), (r"\{1,2\} \cup \{3\}", "1, 2, 3"),
        (r"[\sqrt{2}, \sqrt{3}]", r"\sqrt{2} \le x \le \sqrt{3}"), (r"2x - y < 1", "y > 2x - 1"),
    ],
    "families": [
        (r"\frac{\pi}{6} + k\pi", r"\frac{\pi}{6} + n\pi"),
        (r"k\pi, k \in \mathbb{Z}", r"n\pi"),
        (r"x = \frac{\pi}{2} + k\pi (k \in \mathbb{Z})", r"x = \frac{\pi}{2} + n\pi, n \in \mathbb{Z}"),
        (r"\frac{\pi}{2} + k\pi, k \in \mathbb{Z}", r"-\frac{\pi}{2} + n\pi"),
        (r"\{2k \mid k \in \mathbb{Z}\}", r"\{2n : n \in \mathbb{Z}\}"),
        (r"\{x \mid x = k\pi, k \in \mathbb{Z}\}", r"x = k \pi"), (r"a_n = 2n - 1 (n \in \mathbb{N}^*)", "2n-1"),
        (r"(2k+1)\pi, k \in \mathbb{Z}", r"(2k-1)\pi"),
    ],
    "units": [
        (r"\frac{1}{2}\text{ m}", r"\frac{1}{2}"), ("5 degrees Celsius", "5°C"),
        ("12 cm", "12"), (r"12\text{ cm}^2", "12 square centimeters"), ("12 cm²", r"12\ \mathrm{cm}^{2}"),
        ("5 dollars", r"\$5"), ("$5.00", "5"), ("5 €", "5 euros"), ("25 mph", "25 miles per hour"),
        ("60 km/h", r"60\,\frac{\text{km}}{\text{h}}"), ("10 m/s", r"10\text{ m/s}"), ("3 hours", r"3\text{ hrs}"),
        ("5 apples", "5"), ("5 apples", "5 oranges"), ("2 hours 30 minutes", "2 hours and 30 minutes"),
        (r"25^\circ\text{C}", "25 degrees Celsius"), (r"12\text{ units}^2", "12 square units"), ("5th", "5"),
        ("USD 5", "5"), ("5 apples and 3 pears", "3 pears and 5 apples"), (r"9.8 \text{ m/s}^2", "9.8"),
    ],
    "percent, degrees, ratios": [
        (r"50\%", "0.5"), (r"50\%", "50"), ("50 percent", r"50\%"), (r"33\frac13\%", "1/3"), (r"90^\circ", "90"),
        (r"90^\circ", r"\frac{\pi}{2}"), ("45 degrees", "45°"), ("3:2", "6:4"), ("3:2", "3/2"), ("3 to 2", "3:2"),
        ("1:2:3", "2:4:6"), ("3:10", "6:20"), (r"90^\circ", r"\frac{\pi}{2}\text{ radians}"),
    ],
    "bases and functions": [
        ("52_8", "52_{8}"), ("(52)_8", "52_8"), ("52_8", "52"), ("2^{10}", "1024"), (r"\binom{5}{2}", "10"),
        (r"{5 \choose 2}", r"\binom{5}{2}"), ("C_1 e^x", "c_1 e^x"), ("C_1 e^x", "K e^x"), ("4^{50000}", "2^{100000}"),
        ("105", "7!!"), (r"(2n-1)!!", r"\frac{(2n)!}{2^n n!}"), ("A e^x + B e^{-x}", "C_1 e^x + C_2 e^{-x}"), (r"x \equiv 3 \pmod 7", "x = 3 mod 7"),
    ],
    "antiderivatives": [
        (r"\frac{x^3}{3} + K", r"\frac{x^3}{3} + C"), (r"\ln|2x| + C", r"\ln|x| + C"), (r"-\frac12\cos 2x + C", r"\sin^2 x + c"),
    ],
    "cases and lines": [
        (r"\begin{cases} x & x \ge 0 \\ -x & x < 0 \end{cases}", "|x|"),
        (r"f(x) = \begin{cases} 1 & x > 2 \\ -1 & \text{otherwise} \end{cases}", r"\begin{cases} -1 & x \le 2 \\ 1 & x > 2 \end{cases}"),
        ("(x,y,z) = (1,2,3) + s(1,0,-1)", "(x,y,z) = (1,2,3) + t(1,0,-1)"), ("(3 + 2t, 1 - t)", "(1 + 2s, 2 - s)"),
        ("(3 + 2t, 1 - t)", "(3 - 4s, 1 + 2s)"),
    ],
    "notations": [
        ("DNE", "does not exist"), ("x ≡ 2 (mod 5)", r"x \equiv 2 \pmod 5"), ("no real solutions", "no solution"), (r"\text{does not exist}", "The limit does not exist."), ("7 R 3", "7 remainder 3"),
        ("7R3", "7 with a remainder of 3"), ("②③", "2, 3"), (r"\bf 42", "42"), (r"\large 42", "*42*"), ("4{2}", "42"), ("0.1(6)", "1/6"),
        ("forty-two thousand", "42000"), ("two hundred five", "205"), (r"9.8\,\mathrm{m\,s^{-2}}", r"9.8\text{ m/s}^2"),
        (r"\pounds 20", "£20"), ("{1,3}", r"\{1, 3\}"),
    ],
    "conversions": [
        ("500 cm", r"5\text{ m}"), ("500 cm", "5 m"), ("1 h 30 min", "90 minutes"), ("1 hour 30 minutes", "1.5 hours"), ("36 km/h", "10 m/s"),
        ("5 ft 3 in", "63 inches"), ("75 cents", r"\$0.75"), (r"1\text{ m}^2", r"10000\text{ cm}^2"),
    ],
    "choices": [
        (r"\text{(C) } 5", "C"), (r"\textbf{(C)}\ 5", "C"), ("C. 5", "(C)"), ("(c)", "C"), ("Option C", "C"),
        ("(C) 5", "5"), (r"\textbf{(B)}\ 12", "(B) 12.0"), ("A, C, D", "ACD"), ("C and A", "A, C"),
    ],
    "words": [
        ("Blue", r"\text{blue}"), ("the ellipse", "an ellipse"), ("It is Tuesday", "Tuesday"), ("five", "5"),
        ("twenty-five", "25"), ("infinity", r"\infty"), ("infinitely many", r"\infty"),
        ("Bob and Alice", "Alice, Bob"), ("yes", r"\text{Yes}."), ("5:00 PM", r"5:00\text{ p.m.}"), ("17:00", "5 PM"),
        ("April 5", "5th of April"),
    ],
    "steps and approximations": [
        (r"\frac{\sqrt{2}}{2} \approx 0.707", r"\frac{1}{\sqrt{2}}"), ("3 + 4 = 7", "7"), ("x = 3 + 4 = 7", "7"),
        ("x ≈ 3.16", "3.16"), ("= 5", "5"), (r"\approx 3.14", "3.14"),
    ],
    "dress": [
        (r"\boxed{5}", "5"), ("**5**", "5"), ("`5`", "5"), (r"\(5\)", "5"), ("$$5$$", "5"), (r"\color{red}{5}", "5"),
        (r"\displaystyle\frac12", "0.5"), ("5{}", "5"), (r"{a \over b}", "a/b"), ("−5", "-5"), ("（1，2）", "(1,2)"),
        ("\\\\frac{1}{2}", "1/2"), ("\x0crac{1}{2}", "1/2"), ("x\u200b+1", "x+1"),
    ],
}  # fmt: skip

ANSWER_MAY_SAY_MORE = [
    ("1/2 or 0.5", "0.5"), ("m + n = 25", "25"), ("a^2 + b^2 = 25", "25"), ("100m + n = 325", "325"), ("xy = 6", "6"),
    (r"\sin A = \frac35", "3/5"), ("2n - 1, n \\ge 1", "2n-1"), ("x^2, x > 0", "x^2"), ("1:30 PM", "1:30"),
    ("5 m", "5"), ("10 m^2", "10"), (r"\frac{1}{2}\text{, where } n > 1", "1/2"), (r"x + 1", "x - y + 1 = 0"),
]  # fmt: skip
"""(more, less): right as answer and gold, not the other way round, except where the gold is an equation to be solved."""

DIFFERENT = {
    "antiderivatives": [
        (r"\frac{x^3}{3}", r"\frac{x^3}{3} + C"), (r"2\ln|x| + C", r"\ln|x| + C"), (r"\frac{Cx^3}{3}", r"\frac{x^3}{3} + C"),
        ("e^x + e^{-x}", "C_1 e^x + C_2 e^{-x}"), ("C_1 e^x + C_1 e^{-x}", "C_1 e^x + C_2 e^{-x}"), ("x^2 + C", "x^2 + x + C"),
        ("a - b + c + 3x", "a + b + c + 3x"), ("x^2 + 2b + C", "x^2 + C"),
    ],
    "cases and lines": [
        (r"\begin{cases} x & x \le 0 \\ -x & x > 0 \end{cases}", "|x|"), (r"\begin{cases} x & x \ge 1 \\ -x & x < 0 \end{cases}", "|x|"),
        (r"\begin{cases} x & x \ge 0 \\ -x & x < 0 \end{cases}", "x"), ("(3 + 2t, 1 - t)", "(1 + 2s, 1 - s)"), ("(2t, t)", "(2s, 2s)"),
    ],
    "notations": [
        ("DNE", "0"), ("exists", "does not exist"), ("7 R 4", "7 R 3"), ("3 R 7", "7 R 3"), ("7", "7 R 3"), ("3,5", "5.3"), ("1,2", "12"),
        ("①②", "12"), ("twenty-twelve", "32"), ("five hundred hundred", "50000"),
    ],
    "conversions": [
        ("5 feet", "5 meters"), ("50 cm", r"5\text{ m}"), ("500", r"5\text{ km}"), ("5 kg", r"5\text{ m}"), ("5 pounds", "5 kg"),
        (r"100\text{ cm}^2", r"1\text{ m}^2"), ("150 hours", "2.5 hours"),
    ],
    "lists": [
        ("1, 2, 2", "1, 2"), ("1, 2, 3", "1, 2"), ("1, 2, 3, ...", "1, 2, 3"), ("5 or 6", "5"), ("5, 5", "5"),
        ("42; 43", "42"), (r"\{\emptyset\}", r"\emptyset"), (r"\{0\}", r"\emptyset"), ("1, 234", "1,234"),
        ("2 3", "23"), ("2 3", "6"), ("42", "4 2"), ("3 1/2", "31/2"), ("1 2", "12"),
    ],
    "tuples": [
        ("(1,2)", "(2,1)"), ("(1,2)", "1, 2"), ("(1,234)", "1234"), ("(1,2)", r"\{1,2\}"), ("x = 2, y = 3", "(3, 2)"),
        ("x=3, y=4", "x=4, y=3"), ("a=1, b=2", "x=2, y=1"), ("(x,y)=(3,4)", "(y,x)=(3,4)"), ("i + 2j", "(2, 1)"),
        ("3i", "(3, 0)"), ("(1,2)+t(3,4)", "(1+3t, 2+3t)"), ("(a,b)", "(b,a)"),
    ],
    "matrices": [
        (r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", r"\begin{pmatrix} 1 & 3 \\ 2 & 4 \end{pmatrix}"),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix} 1 & 2 \end{pmatrix}"),
        (r"\begin{vmatrix} 1 & 2 \\ 3 & 4 \end{vmatrix}", r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}"),
    ],
    "equations": [
        ("x = 3", "y = 3"), ("x^2 = 4", "4"), ("2x = 6", "6"), ("x + 1 = 6", "6"), ("x=2,3", "x=2"),
        ("y = 2x", "y = 2x + 1"), ("2x - y = 0", "2x - y"), ("x^2+y^2=4", "x^2+y^2=2"), ("f(x) = x", "f(x) = -x"),
        ("f(2) = 5", "f(3) = 5"), ("P(A) = 1/2", "P(B) = 1/2"), ("P(X>2) = 0.3", "P(X<2) = 0.3"), ("f(2) = 5", "2"),
        ("(x-1)(y-2) = 0", "y = 2"), ("xy = 0", "y = 0"), ("41 = 42", "42"), ("x = 41 = 42", "42"), ("5 < 6", "6"),
        ("x^2 = 5x", "x = 5"), ("xy = 2x^2", "y = 2x"), ("xy = x", "y = 1"), ("2x - y + 3 = 0", "0"), ("x + y = 0", "0"),
        (r"\sqrt2 = \pi = 42", "42"), (r"\pi = 42", "42"), (r"\tanh 100", "1"), (r"1 - \tanh 300", "0"),
        ("f'(x) = 2x", "f(x) = 2x"), ("f^{-1}(x) = x", "f(x) = x"), ("m+n=25", "m+n=26"),
    ],
    "plus-minus": [(r"\pm 2", "2"), (r"x = \pm 2", "x = 2"), (r"1 \pm 2 \pm 3", "6"), (r"1\pm\sqrt2", r"1+\sqrt2")],
    "sets": [
        ("1 < x + y < 3", "1 < x + y < 4"), ("1 < x + y < 3", r"1 \le x + y \le 3"),
        ("x < 3", r"x \le 3"), ("x < 3", "x > 3"), ("[1,2)", "(1,2]"), ("x ≠ 3", "x = 3"),
        (r"(-\infty,0)\cup(0,\infty)", r"\mathbb{R}"), ("[1,2] ∪ [3,4]", "[1,4]"), (r"\mathbb{R}", r"\mathbb{Z}"),
        (r"\mathbb{R}^+", r"\mathbb{R}"), ("1 < x < 3", "2"), ("x > 3", "y > 3"), ("|x| < 3", "[-3,3]"),
        ("]1,2[", "[1,2]"), (r"x \in \mathbb{Z}, x > 2", "x > 2"), ("[0, 100]", "42"), ("-x < 3", "x < -3"),
        ("all real numbers except 2", "2"),
    ],
    "families": [
        ("2k", "2n"), (r"k\pi + 1", r"n\pi + 2"),
        (r"k\pi, k \in \mathbb{Z}", r"2k\pi"), (r"k\pi, k \in \mathbb{Z}", r"k\pi, k \in \mathbb{N}"),
        (r"\frac{\pi}{2} + 2k\pi, k \in \mathbb{Z}", r"-\frac{\pi}{2} + 2k\pi"), (r"n\pi", r"(n+1)\pi"),
        (r"\{2k \mid k \in \mathbb{Z}\}", "k"), (r"x = k\pi", r"x = \pi"), ("2n-1, n > 5", "2n + 1"),
    ],
    "units": [
        ("42 km", "42 cm"), ("3 cm", r"3\text{ cm}^2"), ("5 dollars", "5 cents"), (r"\$5", "€5"), ("5°C", "5°F"),
        ("10 m/s", "10 km/h"), (r"5\%", "5 cm"), (r"90^\circ", "90 radians"),
        ("5 apples and 3 pears", "3 apples and 5 pears"), ("2 hours 30 minutes", "2 minutes 30 hours"),
        ("2 hours 30 minutes", "2, 30"), ("5m", "5"), ("5x", "5"), ("5 million", "5"), ("5 dozen", "5"),
    ],
    "percent, degrees, ratios": [
        (r"0.5\%", "0.5"), (r"5\%", "500"), ("3:2", "2:3"), ("0:1", "0:2"), (r"1^\circ", r"\frac{\pi}{2}"),
        ("1:2:3", "1:2:4"), ("3 to 5", "3"), ("3:10", "15:10"),
    ],
    "bases and functions": [
        ("11_2", "11_3"), ("11_2", "3"), (r"\binom{5}{2}", r"\binom{2}{5}"), (r"{n \choose k}", r"{k \choose n}"),
        ("C_1 e^x", "C_2 e^{-x}"), ("aC", "Ac"), ("A e^x", "B e^x"), (r"4^{50001}", "2^{100000}"), ("2^{100061}", "2^{100000}"),
        ("2018!!", "2018!"),
    ],
    "choices": [
        ("A or B", "A"), ("(A) 5 or (B) 6", "A"), ("(A) (B) (C)", "A"), ("B. not A", "A"), ("(A) 5", "(A) 6"),
        ("(A) 5", "(B) 5"), ("A, C", "A"), ("BAC", "ABC"), ("FADE", "DEAF"), ("Apple", "A"), ("(a) 5 (b) 6", "5"),
    ],
    "words": [
        ("5 if x > 0, 6 if x < 0", "5"),
        ("not yes", "yes"), ("yes or no", "yes"), ("five", "6"), ("one and two", "1"), ("negative 5", "5"),
        ("not 5", "5"), ("maybe 5", "5"), ("between 5 and 6", "5"), ("at least 5", "5"), ("5 or maybe 6", "5"),
        ("January 5", "February 5"), ("5 PM", "5 AM"), ("1:30 PM", "1:30 AM"), ("1:30", "1.5"),
        ("infinity", "10^{100}"), ("2020-01-05", "2014"), ("even", "odd"), ("none", "0"), ("N/A", "5"),
    ],
    "steps and approximations": [("5 ≈ 6", "6"), ("1/2 or 0.6", "0.6"), ("x ≈ 3.16", "3.17"), ("3 + 4 = 8", "7")],
    "empty": [("", "5"), (".", "5"), ("()", "5"), (r"\boxed{}", "5"), ("?", "5"), ("...", "5"), ("-", "5")],
}  # fmt: skip


def pairs(table: dict[str, list[tuple[str, str]]]) -> list[object]:
    return [pytest.param(a, b, id=f"{kind}: {a} | {b}") for kind, rows in table.items() for a, b in rows]


@pytest.mark.parametrize(("one", "other"), pairs(SAME_BOTH_WAYS))
def test_the_same_answer(one, other) -> None:
    assert equivalent(one, other)[0] and equivalent(other, one)[0]


@pytest.mark.parametrize(("more", "less"), ANSWER_MAY_SAY_MORE)
def test_an_answer_may_say_more_than_the_gold(more, less) -> None:
    assert equivalent(more, less)[0]


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ("25", "m + n = 25"),
        ("6", "xy = 6"),
        ("3", "x + y = 3"),
        ("x^2", "x^2, x > 0"),
        ("1:30", "1:30 PM"),
        ("4", "x^2 = 4"),
        (r"\sqrt{x}", "y^2 = x"),
    ],
)
def test_an_answer_may_not_say_less_than_the_gold(less, more) -> None:
    assert not equivalent(less, more)[0]


@pytest.mark.parametrize(("one", "other"), pairs(DIFFERENT))
def test_another_answer(one, other) -> None:
    assert not equivalent(one, other)[0] and not equivalent(other, one)[0]


@pytest.mark.parametrize(
    ("answer", "gold", "stage"),
    [
        ("x + 1", "x+1", "text"), ("0.5", "1/2", "number"), ("41", "42", "number"), ("5 PM", "17:00", "time"),
        ("(B)", "B. 4", "choice"), ("2x", "x+x", "expression"), ("x = 1", "1", "structure"), ("", "1", "empty"),
        ("#", "@", "none"),
    ],
)  # fmt: skip
def test_the_stage_that_decided_is_named(answer, gold, stage) -> None:
    assert equivalent(answer, gold)[1] == stage


def test_a_text_that_contradicts_itself_is_not_even_itself() -> None:
    assert equivalent("x = 5", "x = 5") == (True, "text") and equivalent("41 = 42", "41 = 42") == (False, "text")


@pytest.mark.parametrize(
    ("text", "reads"), [("5", True), ("blue", True), ("x + 1", True), ("2020-01-05", False), ("(1", False), ("", False)]
)
def test_what_can_be_read(text, reads) -> None:
    assert readable(text) is reads
