"""Nothing that a model or a data set wrote is ever run: by reading our code, and by grading with the evaluators taken away."""

import ast
import builtins
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import hostile_texts
import pytest
from fallback_ready import fallback_ready

from rewards import Tags, grade
from rewards.maths import fallback

ROOT = Path(__file__).parents[2]
FILES = sorted(file for package in ("rewards", "rlvr") for file in (ROOT / package).rglob("*.py"))

RUNS_TEXT = frozenset(
    "__import__ execfile sympify parse_expr parse_latex literal_eval exec_module import_module run_path run_module "
    "unsafe_load full_load eval_expr lambdify".split()
)
"""Never called, whatever they are called on."""
BUILT_INS = frozenset({"eval", "exec", "compile", "breakpoint", "input"})
"""Never mentioned as names; as methods (`model.eval()`, `re.compile(...)`) they are others'."""
UNPICKLES = frozenset("pickle cloudpickle dill joblib marshal shelve cPickle _pickle".split())

ALLOWED = {
    ("rlvr/models/loading.py", "import_module"): "a module of transformers, named there",
    ("rewards/registry.py", "import_module"): "a reward plugin, which the user names",
    ("rewards/registry.py", "exec_module"): "a reward plugin, which the user names",
    (
        "rewards/pool/forkserver.py",
        "import_module",
    ): "the user's own modules, which the pool's owner has loaded already",
    ("rewards/pool/forkserver.py", "pickle.load"): "settings that the parent wrote into a file of its own",
    (
        "rewards/pool/worker_main.py",
        "pickle.loads",
    ): "samples that the parent sends through a pipe; answers go back as JSON",
    (
        "rewards/environment.py",
        "pickle.loads",
    ): "the state of the user's environment, in a worker process, as one of the same pool wrote it",
    ("rewards/pool/pickling.py", "pickle.loads"): "the user's reward function, which the parent sends",
    **{
        ("rewards/python/inside.py", name): "a model's program, in a sandbox of the system that the user asks for"
        for name in ("exec", "eval", "compile")
    },
    ("rewards/adapters/game.py", "import_module"): "another package's environments, named there",
    (
        "rewards/adapters/openenv.py",
        "pickle.loads",
    ): "the state of an environment, within the state above, as a worker of the same pool wrote it",
    ("rlvr/__init__.py", "import_module"): "our own modules, from a table in the same file",
    ("rlvr/chat/loop.py", "input"): "a line that the user types, as text",
    ("rlvr/boost/lean_import.py", "import_module"): "peft and bitsandbytes, which ColossalAI asks for by name",
    ("rlvr/cli/commands.py", "import_module"): "our own modules, from a table in the same file",
}
"""File and call -> whose text or code it is that is loaded there."""


def calls(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of everything that turns text or bytes into code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if name := _of_call(node):
                yield node.lineno, name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in BUILT_INS | RUNS_TEXT:
            yield node.lineno, node.id  # also as a value: map(eval, texts)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.name in RUNS_TEXT - {"import_module"} or (
                    node.module in UNPICKLES and alias.name in ("load", "loads", "Unpickler")
                ):
                    yield node.lineno, f"import {alias.name}"


def _of_call(node: ast.Call) -> str:
    function = node.func
    arguments = {k.arg: k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)}
    if arguments.get("shell") or arguments.get("allow_pickle"):
        return "shell" if arguments.get("shell") else "allow_pickle"
    if not isinstance(function, ast.Attribute):
        return ""
    owner = function.value.id if isinstance(function.value, ast.Name) else ""
    name = f"{owner}.{function.attr}"
    if function.attr in RUNS_TEXT:
        return function.attr
    if owner == "builtins" or name in ("os.system", "os.popen") or (function.attr in ("eval", "exec") and node.args):
        return name
    if owner in UNPICKLES and function.attr in ("load", "loads", "Unpickler", "open"):
        return name
    if name == "yaml.load" or (name == "torch.load" and arguments.get("weights_only") is not True):
        return name
    return ""


def test_the_code_never_runs_text() -> None:
    assert len(FILES) > 50
    found = {}
    for file in FILES:
        place = file.relative_to(ROOT).as_posix()
        for line, name in calls(ast.parse(file.read_text(encoding="utf-8"))):
            found[(place, name)] = line
    surprises = {f"{place}:{line}: {name}" for (place, name), line in found.items() if (place, name) not in ALLOWED}
    assert not surprises
    assert not set(ALLOWED) - set(found), "no longer needed"


@pytest.mark.parametrize(
    "code",
    [
        "eval(x)", "map(eval, xs)", "builtins.exec(x)", "f = compile", "__import__(x)", "sympy.sympify(x)", "sympify(x)", "parse_expr(x)", "pickle.loads(x)", "cloudpickle.load(f)",
        "yaml.load(f)", "yaml.load(f, Loader=yaml.Loader)", "torch.load(f)", "torch.load(f, weights_only=False)", "df.eval('a + b')", "os.system(x)", "from sympy import sympify as s",
        "from pickle import loads", "subprocess.run(x, shell=True)", "np.load(f, allow_pickle=True)", "importlib.import_module(x)", "ast.literal_eval(x)", "pickle.Unpickler(f)",
    ],
)  # fmt: skip
def test_the_reading_of_the_code_sees(code: str) -> None:
    assert list(calls(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    ["model.eval()", "re.compile('x')", "json.loads(x)", "yaml.safe_load(f)", "torch.load(f, weights_only=True)", "math_verify.parser.parse_expr = refuse"],
)  # fmt: skip
def test_the_reading_of_the_code_lets_pass(code: str) -> None:
    assert not list(calls(ast.parse(code)))


def refuse(*arguments: Any, **_: Any) -> NoReturn:
    raise AssertionError(f"code was about to run: {arguments[:1]!r:.200}")


def only_code(evaluate: Any) -> Any:
    """Imports and dataclasses may run compiled code: text may not be."""
    return lambda source, *rest, **named: (refuse if isinstance(source, str | bytes) else evaluate)(
        source, *rest, **named
    )


@pytest.fixture
def no_evaluators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever evaluates text fails; what is loaded at first use has been loaded before."""
    import sympy
    import sympy.parsing.sympy_parser as parser

    fallback_ready()
    grade(r"\boxed{\sqrt{2}+\sin x}", r"\sin x + \sqrt{2}")
    grade(r"\boxed{\frac{1}{2}}", r"\int_0^1 x dx")
    monkeypatch.setattr(parser, "parse_expr", refuse)
    monkeypatch.setattr(parser, "eval_expr", refuse)
    monkeypatch.setattr(sympy, "sympify", refuse)
    monkeypatch.setattr(sympy, "parse_expr", refuse)
    monkeypatch.setattr(builtins, "eval", refuse)
    monkeypatch.setattr(builtins, "exec", only_code(exec))


def test_hostile_texts_are_graded_without_evaluators(
    no_evaluators: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where some of the texts would write
    marker = tmp_path / "MARKER"
    for name, text in itertools.chain(hostile_texts.from_data(), hostile_texts.generated(str(marker))):
        if name not in hostile_texts.SLOW:
            for response, gold, tags in ((text, "42", None), ("\\boxed{42}", text, None), (text, "42", Tags.default())):
                grade(response, gold, tags=tags)
    assert list(tmp_path.iterdir()) == []


def test_labelled_rows_are_graded_alike_without_evaluators(request: pytest.FixtureRequest, shared_data: Path) -> None:
    fallback_ready()
    rows = []
    for file in sorted((shared_data / "rewards").glob("*.jsonl")):
        if file.stem != "hostile":
            rows += [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()[:60]]
    before = [grade(row["response"], row["gold"]).status for row in rows]
    request.getfixturevalue("no_evaluators")
    assert [grade(row["response"], row["gold"]).status for row in rows] == before
    assert len(rows) > 300


def test_the_fallback_process_runs_no_text(tmp_path: Path) -> None:
    """It is asked directly: most of these texts never get that far."""
    fallback_ready()
    marker = tmp_path / "M"
    texts = [text for _, text in hostile_texts.code(str(marker))][::5]
    inside = ["{}", "\\operatorname{{{}}}(x)", "\\text{{{}}}", "x_{{{}}}", "\\int_0^1 {} dx", "\\variable{{{}}}"]
    texts += [wrapping.format(f"open('{marker}','w')") for wrapping in inside]
    for text in texts:
        fallback.verify(text, r"\frac{1}{2}")
        fallback.verify(r"\frac{1}{2}", text[: fallback.MAX_CHARACTERS])
    assert not marker.exists()
    fallback_ready()
    assert fallback.verify(r"\frac{1}{2}", r"\int_0^1 x dx") is True, "it still answers"
