"""Runs a program in the sandbox: the one file of ours that runs what a model wrote. Started by `rewards.python.bubblewrap`, nowhere else.

Limits this process for good, reads the program from stdin, runs it, and ends with status 1 and the error on stderr where it raises.
Imports nothing of this package, which is not there.
"""

import ast
import resource
import sys
import traceback

MEMORY_BYTES = 2**29
FILE_BYTES = 2**20
OPEN_FILES = 32
NAME = "<program>"


def limit(seconds: int) -> None:
    """No way back: soft and hard limits alike."""
    for what, most in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
    ):
        resource.setrlimit(what, (most, most))


def main() -> None:
    limit(int(sys.argv[1]))
    try:
        run(sys.stdin.read())
        sys.stdout.flush()
    except SystemExit:
        sys.stdout.flush()
    except BaseException as error:
        sys.stdout.flush()
        sys.stderr.write(said(error))
        sys.exit(1)


def run(source: str) -> None:
    """Run a program in this process, and print the value of its last line where that is an expression."""
    tree = ast.parse(source, NAME)
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        tree.body.pop()
    names: dict[str, object] = {"__name__": "__main__"}
    exec(compile(tree, NAME, "exec"), names)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), NAME, "eval"), names)
        if value is not None:
            print(repr(value))


def said(error: BaseException) -> str:
    """An error in one line, with the line of the program that it came from."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == NAME]
    line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else lines[-1] if lines else None
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return (f"line {line}: " if line else "") + type(error).__name__ + (f": {text[:500]}" if text else "")


if __name__ == "__main__":
    main()
