"""The examples in the docstrings of `rewards` are tests."""

import doctest
import importlib
import pkgutil

import pytest

import rewards

MODULES = ["rewards"] + [
    m.name for m in pkgutil.walk_packages(rewards.__path__, "rewards.") if "__main__" not in m.name
]


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings(module: str) -> None:
    assert not doctest.testmod(importlib.import_module(module)).failed


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = [e for m in MODULES for t in finder.find(importlib.import_module(m)) for e in t.examples]
    assert len(examples) > 10
