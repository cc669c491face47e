"""Programs of the subset print what Python prints. The programs are ours, so that Python may run them for comparison."""

import contextlib
import io
import string
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards.python.functions import BUILT_IN
from rewards.python.interpreter import MAX_OUTPUT, MAX_STEPS, run
from rewards.python.methods import METHODS
from rewards.python.modules import MODULES
from rewards.python.values import Callee

PROGRAMS = {
    "arithmetic": "print(7 // 2, -7 // 2, -7 % 3, 2 ** 10, 2 ** -2, 7 / 2, 1 << 5, 37 >> 2, 6 & 3, 6 | 3, 6 ^ 3, ~5, +3, -(-4), 1e3, 10 ** 30)",
    "division of floats": "print(7.5 // 2, -7.5 % 2, divmod(17, 5), divmod(-1.5, 1), round(2.5), round(3.14159, 2), round(1234, -2), abs(-3))",
    "comparison": "print(1 < 2 <= 2 < 3, 1 == 1.0, 'a' < 'b', [1, 2] < [1, 3], (1,) != (2,), None is None, 3 in [1, 3], 'x' not in 'abc', 2 in range(5))",
    "logic": "print(0 or 'a', 1 and 2, not [], [] or {} or 0, True + True, bool(''), bool('x'), 1 if [] else 2)",
    "lists": "a = [3, 1, 2]; a.append(5); a += (7, 8); a.sort(); a.insert(1, 9); b = a[::-1]; b[1:3] = [0]; del a[0]; print(a, b, a.pop(), a.index(9), len(a))",
    "more lists": "a = [1] * 3; b = a; b[0] = 5; c = a.copy(); c.extend('xy'); c.remove(1); c.reverse(); print(a, b, c, a.count(1), a + b, [0] * 2 * 2)",
    "slices": "s = list(range(10)); s[::3] = [0] * 4; print(s, s[2:5], s[-3:], s[5:2:-1], 'hello'[1:-1], (1, 2, 3)[::2], range(10)[2:8:3])",
    "texts": "s = 'Hello, World'; print(s.upper(), s.lower(), s[::-1], s.split(', '), '-'.join(['a', 'b']), s.replace('l', 'L', 2), s.find('o'), s.count('l'), s.startswith('He'))",
    "more texts": "print('a b  c'.split(), 'x'.center(5, '*'), '7'.zfill(3), ' x '.strip(), 'abc'.isalpha(), '12'.isdigit(), 'ab' * 3, ord('a'), chr(98), 'a-b-c'.rsplit('-', 1))",
    "formats": "x = 3.14159; n = 42; w = 8; print(f'{x:.2f} {n:>5} {n:05d} {n:b} {n:x} {n!r} {\"q\"!r} {x:{w}.1f}| {1e10:,.0f} {0.5:.0%}', '{0} {1} {a:>4}'.format(1, 2, a=3), '{} {}'.format(1, 'b'))",
    "dicts": "d = {'a': 1, 'b': 2}; d['c'] = 3; d.update(a=5); d.setdefault('z', []).append(1); print(d, d.get('q', 0), 'a' in d, len(d), list(d.items()), sorted(d), d.pop('b'), {**d, 'n': 0})",
    "counting": "d = {}\nfor c in 'banana':\n    d[c] = d.get(c, 0) + 1\nfor k, v in sorted(d.items(), key=lambda pair: (-pair[1], pair[0])):\n    print(k, v)",
    "sets": "a = {1, 2, 3}; b = set([2, 3, 4]); print(sorted(a | b), sorted(a & b), sorted(a - b), sorted(a ^ b), a <= {1, 2, 3, 4}, len(a), 2 in a, a == {3, 2, 1}, {1} == {1: None})",
    "unpacking": "a, (b, c), *d = 1, (2, 3), 4, 5; (e, *f), g = [(1, 2, 3), 4]; a, b = b, a; print(a, b, c, d, e, f, g, [*d, *f], (*d,))",
    "while": "n, steps = 27, 0\nwhile n != 1:\n    n = n // 2 if n % 2 == 0 else 3 * n + 1\n    steps += 1\nelse:\n    print('done')\nprint(steps)",
    "a test that ends": "left = iter([2, 1])\ntry:\n    while next(left): print('one')\nexcept StopIteration: print('none left')",
    "for": "for i in range(10):\n    if i == 2: continue\n    if i == 5: break\n    print(i, end=' ')\nelse:\n    print('no')\nprint(i)",
    "functions": "def f(a, b=2, *rest, c=3): return a, b, rest, c\nprint(f(1), f(1, 5, 6, 7, c=8), f(b=1, a=0), f(*[1, 2]))",
    "closures": "def counter():\n    n = 0\n    def more():\n        nonlocal n\n        n += 1\n        return n\n    return more\na, b = counter(), counter()\nprint(a(), a(), b())\nfs = [lambda: i for i in range(3)]\nprint([g() for g in fs])",
    "globals": "x = 1\ndef f():\n    global x\n    x += 1\n    return x\ndef g():\n    x = 10\n    return x\nprint(f(), g(), x)",
    "recursion": "def gcd(a, b): return a if b == 0 else gcd(b, a % b)\ndef fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)\nprint(gcd(1071, 462), fib(15))",
    "memory": "from functools import lru_cache, reduce\n@lru_cache(maxsize=None)\ndef fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)\nprint(fib(90), reduce(lambda a, b: a * b, range(1, 11)))",
    "comprehensions": "x = 5\nprint([x * y for x in range(3) for y in range(x) if y % 2 == 0], {c: len(c) for c in ['a', 'bb']}, sorted({n % 3 for n in range(10)}), x, [[j for j in range(i)] for i in range(3)])",
    "generators": "g = (n * n for n in range(10 ** 9))\nprint(next(g), next(g), sum(n for n in range(100) if n % 7 == 0), any(n > 5 for n in range(10 ** 9)), all(n < 5 for n in range(9)), max((n, -n) for n in range(4)))",
    "walrus": "total = 0\nif (n := 10) > 5: total = n\nprint(total, [y for x in range(5) if (y := x * x) > 3], y)",
    "iterators": "print(list(zip('ab', [1, 2, 3])), list(enumerate('ab', 1)), list(map(lambda a, b: a + b, [1, 2], [3, 4])), list(filter(None, [0, 1, 2])), list(reversed([1, 2])), sorted('bca', reverse=True))",
    "extremes": "print(min(3, 1, 2), max([1, 5, 2]), min('bca'), max(['aa', 'b'], key=len), min([], default=7), sum([[1], [2]], []), sum([0.5, 1]))",
    "errors": "for x in (0, 'a', []):\n    try:\n        print(1 / x)\n    except ZeroDivisionError as e:\n        print('zero', e)\n    except (TypeError, ValueError):\n        print('type')\n    else:\n        print('else')\n    finally:\n        print('end')",
    "raising": "def f(x):\n    if x < 0: raise ValueError('negative')\n    return x\ntry:\n    f(-1)\nexcept Exception as e:\n    print('caught', e)\ntry:\n    assert 1 == 2, 'no'\nexcept AssertionError as e:\n    print(e)\ntry:\n    [][0]\nexcept LookupError:\n    print('lookup')\ntry:\n    {}['k']\nexcept KeyError:\n    print('key')",
    "returning from try": "def f():\n    try:\n        return 1\n    finally:\n        print('last')\nprint(f())\ndef g():\n    for i in range(3):\n        try:\n            if i == 1: return i\n        except ValueError: pass\nprint(g())",
    "errors in handlers": "def f(x):\n    try:\n        try:\n            1 / x\n        except ZeroDivisionError:\n            raise ValueError('worse')\n        else:\n            [][0]\n        finally:\n            print('last')\n    except (ValueError, IndexError) as e:\n        return str(e)\nprint(f(0), f(1))\ndef g():\n    try: return 1 / 0\n    finally: return 'over'\nprint(g())",
    "maths": "import math\nfrom math import sqrt, gcd, factorial, comb, pi\nprint(sqrt(16), gcd(12, 18, 8), factorial(20), comb(10, 3), math.perm(5, 2), round(pi, 4), math.isqrt(99), math.floor(-1.5), math.ceil(1.2), math.lcm(4, 6), math.prod([1, 2, 3]), math.log2(8), math.inf > 1, math.hypot(3, 4))",
    "fractions": "from fractions import Fraction\nx = Fraction(1, 3) + Fraction('1/6') * 2\nprint(x, x.numerator, x.denominator, float(x), x ** 2, x > 0.5, Fraction(0.5), 1 / Fraction(3), x == Fraction(2, 3), Fraction(22, 7).limit_denominator(3))",
    "itertools": "from itertools import permutations, combinations, product, accumulate, chain, count, islice, combinations_with_replacement as cwr\nprint(len(list(permutations(range(4)))), list(combinations('abc', 2)), list(product([0, 1], repeat=2)), list(accumulate([1, 2, 3])), list(chain([1], (2,))), list(islice(count(5, 2), 3)), len(list(cwr('abc', 2))))",
    "conversion": "print(int('12'), int('ff', 16), int(3.9), float('1.5'), str(1.0), repr('a'), list('ab'), tuple([1]), bool(0), int('-7'), bin(10), hex(255), oct(8), isinstance(1, int), isinstance(True, int), isinstance('a', (int, str)), isinstance({1}, dict), pow(3, 100, 7))",
    "a sieve": "n = 1000\ns = [True] * (n + 1)\ns[0:2] = [False, False]\nfor i in range(2, int(n ** 0.5) + 1):\n    if s[i]:\n        s[i * i :: i] = [False] * len(s[i * i :: i])\nprint(sum(s), [i for i, p in enumerate(s) if p][-3:])",
    "a table": "from functools import cache\n@cache\ndef ways(n, k):\n    if n == 0: return 1\n    if n < 0 or k == 0: return 0\n    return ways(n - k, k) + ways(n, k - 1)\nprint(ways(30, 30))",
    "a queue": "grid = ['..#', '.#.', '...']\nqueue, seen = [(0, 0, 0)], {(0, 0)}\nwhile queue:\n    x, y, d = queue.pop(0)\n    if (x, y) == (2, 2): print(d); break\n    for dx, dy in ((0, 1), (1, 0), (0, -1), (-1, 0)):\n        a, b = x + dx, y + dy\n        if 0 <= a < 3 and 0 <= b < 3 and grid[b][a] == '.' and (a, b) not in seen:\n            seen.add((a, b)); queue.append((a, b, d + 1))",
    "printing": "print(1, 'a', None, True, [1, 'x', (1,), {}], 1.5, sep='|', end='.\\n'); print(); print({'a': [1, {2: 'b'}]}, set(), (), 1e100, float('inf'))",
    "annotations": "x: int = 3\ny: float\ndef f(a: int, b: list[int] = []) -> str: return str(a)\nprint(f(x))",
    "deletion": "d = {1: 2, 3: 4}; a = [1, 2, 3, 4]; del d[1], a[1:3]; x = 1; del x\ntry: x\nexcept NameError: print('gone', d, a)",
}  # fmt: skip


def python(program: str) -> str:
    """What Python prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(program, {"__name__": "__main__"})
    return out.getvalue()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_prints_what_it_prints_in_python(name) -> None:
    ran = run(PROGRAMS[name])
    assert (ran.text, ran.error) == (python(PROGRAMS[name]), "")


@pytest.mark.parametrize(
    ("program", "text"),
    [
        ("6 * 7", "42\n"), ("'a'", "'a'\n"), ("x = 1", ""), ("None", ""), ("", ""), ("print(1)\n2", "1\n2\n"), ("print(1)", "1\n"),
        ("def f(): return 3\nf()", "3\n"), ("print", "<function print>\n"), ("{'b', 'a', 'b'}", "{'b', 'a'}\n"),
        ("import math\n[math, (x for x in []), lambda: 1]", "[<module math>, <iterator>, <function <lambda>>]\n"),
    ],
)  # fmt: skip
def test_the_value_of_the_last_line_is_shown(program, text) -> None:
    ran = run(program)
    assert (ran.text, ran.error) == (text, "")


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("x = 1\nprint(x)\ny", "line 3: NameError: name 'y' is not defined"),
        ("def f():\n    return 1 / 0\n\nf()", "line 2: ZeroDivisionError: division by zero"),
        ("1 +", "line 1: SyntaxError: invalid syntax"),
        ("return 1", "line 1: SyntaxError: 'return' outside function"),
        ("import numpy", "can't import numpy; there are: math, fractions, functools, itertools"),
        ("from math import tau, foo", "can't import foo from math; there are: acos, "),
        ("class A: pass", "classes are not supported (line 1)"),
        ("1 + 'a'", "line 1: TypeError: unsupported operand type(s) for +: 'int' and 'str'"),
        ("[] < 1", "line 1: TypeError: '<' not supported between instances of 'list' and 'int'"),
        ("a, b = 1, 2, 3", "line 1: ValueError: too many values to unpack (expected 2)"),
        ("f = lambda x: x\nf()", "line 2: TypeError: <lambda>() missing the argument 'x'"),
        ("'a'.foo", "line 1: AttributeError: 'str' object has no attribute 'foo'"),
        ("'%d' % 3", "line 1: TypeError: % formats no texts here; take an f-string"),
        ("d = {1: 2}\nfor k in d: d[k + 1] = 1", "line 2: RuntimeError: dictionary changed size during iteration"),
        ("raise ValueError('no')", "line 1: ValueError: no"),
    ],
)  # fmt: skip
def test_errors_name_their_line(program, error) -> None:
    assert run(program).error.startswith(error)


def test_what_was_printed_before_an_error_is_kept() -> None:
    ran = run("for i in range(3):\n    print(i)\n    1 / (1 - i)")
    assert ran.text == "0\n1\n" and ran.error == "line 3: ZeroDivisionError: division by zero"


def test_a_program_takes_the_same_steps_each_time() -> None:
    program = PROGRAMS["a queue"] + "\nprint({'b', 'a', 'c'}, {print, len, sum})"
    first = run(program)
    assert first == run(program) and 0 < first.steps < 10_000
    assert (
        run(program, first.steps).error == ""
        and run(program, first.steps - 1).error == "more work than a program may take"
    )


def test_nothing_of_a_program_is_left_for_the_next() -> None:
    run("x = 5\nimport math\nmath.sqrt(4)\nprint = 3")
    assert run("print(x)").error == "line 1: NameError: name 'x' is not defined"
    assert run("math").error and run("print(1)").text == "1\n"


def test_all_that_can_be_called_is_ours() -> None:
    """No function of Python's own is ever a value of a program, and no method's name begins with _."""
    members = [value for module in MODULES.values() for value in module.members.values()]
    for value in (*BUILT_IN.values(), *members):
        assert type(value) in (Callee, float)
    assert not [name for methods in METHODS.values() for name in methods if name.startswith("_")]


PIECES = [
    *"abx 0 1 2 9 10 '' 'a' [] {} () None True print len range sum list set dict str int min max sorted map filter zip iter next enumerate".split(),
    *"x=1 a=[] b={} x+=1 def_f(): lambda: return if_x: else: for_x_in_a: while_x: try: except: finally: import_math from_math_import_* pass".split(),
    *"+ - * / // % ** << & | ^ ~ == < in not is and or ( ) [ ] { } , : . = := * ** @ -> ; !".split(),
    *".append(x) .sort() .join(a) .format(x) .items() .upper() [0] [::2] [x] (x) (a,b) f'{x}' f'{x:>{x}}' (x_for_x_in_a) [x_for_x_in_a] __class__ 9**99".split(),
    "\n", "\n    ", "\n        ", " ",
]  # fmt: skip


@settings(max_examples=300)
@given(
    st.lists(
        st.sampled_from([piece.replace("_", " ") if piece != "__class__" else piece for piece in PIECES]), max_size=25
    )
)
def test_no_text_hangs_or_raises(pieces) -> None:
    limit = sys.getrecursionlimit()
    ran = run(" ".join(pieces), 100_000)
    assert ran.steps <= 100_000 and len(ran.text) <= MAX_OUTPUT and "Traceback" not in ran.error
    assert sys.getrecursionlimit() == limit


@settings(max_examples=100)
@given(st.text(st.characters() | st.sampled_from(string.printable), max_size=60))
def test_no_characters_hang_or_raise(text) -> None:
    assert run(text, 100_000).steps <= 100_000


def test_the_default_budget_is_enough_for_what_models_write() -> None:
    program = "best = 0\nfor a in range(1, 300):\n    for b in range(a, 300):\n        c = int((a * a + b * b) ** 0.5)\n        if c * c == a * a + b * b:\n            best += 1\nbest"
    ran = run(program)
    assert ran.text == "245\n" and ran.steps < MAX_STEPS
