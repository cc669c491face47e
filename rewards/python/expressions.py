"""Expressions, assignment and comprehensions: see `compiler`."""

import ast
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from rewards.maths.limits import spend
from rewards.python.functions import BUILT_IN, formatted
from rewards.python.methods import attribute
from rewards.python.operators import BINARY, COMPARE, UNARY, item_of, set_item
from rewards.python.scope import Names, Scope, count
from rewards.python.values import (
    MAX_BITS,
    Callee,
    Lazy,
    Machine,
    NotSupportedError,
    Set,
    as_index,
    is_true,
    iterate,
    key,
    kind_of,
    listed,
    repr_of,
    text_of,
)

Frames = tuple[dict[str, Any], ...]
Expression = Callable[[Frames], Any]
Statement = Callable[[Frames], Any]

MAX_CLAUSES = 5
"""Loops of a comprehension."""


class Expressions:
    """Compiles expressions for one machine. `function` is given by `Compiler`.

    Raises:
        NotSupportedError: the program has something that is not in the subset.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def function(
        self, node: ast.FunctionDef | ast.Lambda, name: str, body: list[ast.stmt], outer: Scope
    ) -> Callable[[Frames], Callee]:
        """What makes a function."""
        raise NotImplementedError

    def expression(self, node: ast.expr, scope: Scope) -> Expression:
        return self._of(node, "expression")(node, scope)

    def _of(self, node: ast.AST, what: str) -> Callable[..., Any]:
        name = type(node).__name__
        method = getattr(self, f"{what}_{name}", None)
        if method is None:
            raise NotSupportedError(f"{_WORDS.get(name, name)} not supported (line {getattr(node, 'lineno', 0)})")
        return method

    def _maybe(self, node: ast.expr | None, scope: Scope) -> Expression:
        return (lambda _: None) if node is None else self.expression(node, scope)

    def expression_Lambda(self, node: ast.Lambda, scope: Scope) -> Expression:
        returned = ast.copy_location(ast.Return(node.body), node.body)
        return self.function(node, "<lambda>", [returned], scope)

    def expression_Call(self, node: ast.Call, scope: Scope) -> Expression:
        function, machine = self.expression(node.func, scope), self.machine
        arguments = self._items(node.args, scope)
        if any(keyword.arg is None for keyword in node.keywords):
            raise NotSupportedError(f"calls with ** are not supported (line {node.lineno})")
        named = [(self._checked(str(k.arg)), self.expression(k.value, scope)) for k in node.keywords]

        def run(frames: Frames) -> Any:
            called = function(frames)
            if type(called) is not Callee:
                raise TypeError(f"'{kind_of(called)}' object is not callable")
            given, by_name = arguments(frames), {name: value(frames) for name, value in named}
            machine.enter()
            line = machine.line
            try:
                found = called.call(machine, given, by_name)
            finally:
                machine.waiting -= 1
            machine.line = line
            return found

        return run

    # Assignment.

    def target(self, node: ast.expr, scope: Scope) -> Callable[[Frames, Any], None]:
        """What assigns to it."""
        machine = self.machine
        if isinstance(node, ast.Name):
            name, level = self._checked(node.id), scope.level_of(node.id)

            def bind(frames: Frames, value: Any) -> None:
                frames[level][name] = value

            return bind
        if isinstance(node, ast.Subscript):
            whole, place = self.expression(node.value, scope), self.expression(node.slice, scope)
            return lambda frames, value: set_item(machine, whole(frames), place(frames), value)
        if isinstance(node, ast.Tuple | ast.List):
            return self._unpacked(node.elts, scope)
        raise NotSupportedError("only names and items can be assigned to")

    def _unpacked(self, nodes: list[ast.expr], scope: Scope) -> Callable[[Frames, Any], None]:
        star = next((place for place, node in enumerate(nodes) if isinstance(node, ast.Starred)), None)
        targets = [self.target(node.value if isinstance(node, ast.Starred) else node, scope) for node in nodes]
        wanted, machine = len(nodes), self.machine

        def assign(frames: Frames, value: Any) -> None:
            # Of an iterator without end, one more than is needed.
            items = (
                listed(machine, value)
                if star is not None
                else list(itertools.islice(iterate(machine, value), wanted + 1))
            )
            if star is not None and len(items) >= wanted - 1:
                end = len(items) - (wanted - 1 - star)
                items = [*items[:star], items[star:end], *items[end:]]
            if len(items) != wanted:
                raise ValueError(
                    f"{'too many' if len(items) > wanted else 'not enough'} values to unpack (expected {wanted})"
                )
            for target, item in zip(targets, items, strict=True):
                target(frames, item)

        return assign

    # Expressions.

    def expression_Constant(self, node: ast.Constant, scope: Scope) -> Expression:
        value = node.value
        if type(value) not in (int, float, str, bool, type(None)):
            raise NotSupportedError(f"{type(value).__name__} is not supported (line {node.lineno})")
        if type(value) is int and value.bit_length() > MAX_BITS:
            raise NotSupportedError(f"a number of more than {MAX_BITS} bits")
        return lambda _: value

    def expression_Name(self, node: ast.Name, scope: Scope) -> Expression:
        name, level = self._checked(node.id), scope.level_of(node.id)

        def load(frames: Frames) -> Any:
            try:
                return frames[level][name]
            except KeyError:
                if level == 0 and name in BUILT_IN:
                    return BUILT_IN[name]
            raise NameError(f"name '{name}' is not defined")

        return load

    def expression_NamedExpr(self, node: ast.NamedExpr, scope: Scope) -> Expression:
        owner = scope
        while owner.comprehension and owner.outer is not None:
            owner = owner.outer
        value, assign = self.expression(node.value, scope), self.target(node.target, owner)

        def run(frames: Frames) -> Any:
            found = value(frames)
            assign(frames, found)
            return found

        return run

    def _binary(self, sign: ast.operator) -> Callable[[Any, Any], Any]:
        name = type(sign).__name__
        if name not in BINARY:
            raise NotSupportedError(f"the operator {name} is not supported")
        return BINARY[name]

    def expression_BinOp(self, node: ast.BinOp, scope: Scope) -> Expression:
        compute = self._binary(node.op)
        left, right = self.expression(node.left, scope), self.expression(node.right, scope)
        return lambda frames: compute(left(frames), right(frames))

    def expression_UnaryOp(self, node: ast.UnaryOp, scope: Scope) -> Expression:
        value = self.expression(node.operand, scope)
        if isinstance(node.op, ast.Not):
            return lambda frames: not is_true(value(frames))
        compute = UNARY[type(node.op).__name__]
        return lambda frames: compute(value(frames))

    def expression_BoolOp(self, node: ast.BoolOp, scope: Scope) -> Expression:
        values, stops = [self.expression(value, scope) for value in node.values], isinstance(node.op, ast.Or)

        def run(frames: Frames) -> Any:
            found = None
            for value in values:
                found = value(frames)
                if is_true(found) is stops:
                    break
            return found

        return run

    def expression_Compare(self, node: ast.Compare, scope: Scope) -> Expression:
        first, machine = self.expression(node.left, scope), self.machine
        rest = [
            (COMPARE[type(sign).__name__], self.expression(value, scope))
            for sign, value in zip(node.ops, node.comparators, strict=True)
        ]

        def run(frames: Frames) -> bool:
            left = first(frames)
            for holds, value in rest:
                right = value(frames)
                if not holds(machine, left, right):
                    return False
                left = right
            return True

        return run

    def expression_IfExp(self, node: ast.IfExp, scope: Scope) -> Expression:
        test, body, other = (self.expression(part, scope) for part in (node.test, node.body, node.orelse))
        return lambda frames: body(frames) if is_true(test(frames)) else other(frames)

    def expression_Attribute(self, node: ast.Attribute, scope: Scope) -> Expression:
        if not isinstance(node.ctx, ast.Load):
            raise NotSupportedError("attributes can't be assigned to")
        if node.attr.startswith("_"):
            raise NotSupportedError(f"attributes that begin with _ are not supported (line {node.lineno})")
        value, name = self.expression(node.value, scope), node.attr
        return lambda frames: attribute(value(frames), name)

    def expression_Subscript(self, node: ast.Subscript, scope: Scope) -> Expression:
        whole, place = self.expression(node.value, scope), self.expression(node.slice, scope)
        return lambda frames: item_of(whole(frames), place(frames))

    def expression_Slice(self, node: ast.Slice, scope: Scope) -> Expression:
        bounds = [self._maybe(bound, scope) for bound in (node.lower, node.upper, node.step)]

        def run(frames: Frames) -> slice:
            found = [bound(frames) for bound in bounds]
            return slice(*(None if value is None else as_index(value, "a slice") for value in found))

        return run

    def _items(self, nodes: list[ast.expr], scope: Scope) -> Callable[[Frames], list[Any]]:
        """The values of several expressions, of which some may be starred."""
        values = [
            (isinstance(n, ast.Starred), self.expression(n.value if isinstance(n, ast.Starred) else n, scope))
            for n in nodes
        ]
        machine = self.machine

        def run(frames: Frames) -> list[Any]:
            spend(4 + len(values))
            found: list[Any] = []
            for starred, value in values:
                if starred:
                    found += listed(machine, value(frames))
                else:
                    found.append(value(frames))
            return found

        return run

    def expression_List(self, node: ast.List, scope: Scope) -> Expression:
        return self._items(node.elts, scope)

    def expression_Tuple(self, node: ast.Tuple, scope: Scope) -> Expression:
        items = self._items(node.elts, scope)
        return lambda frames: tuple(items(frames))

    def expression_Set(self, node: ast.Set, scope: Scope) -> Expression:
        items = self._items(node.elts, scope)

        def run(frames: Frames) -> Set:
            found = items(frames)
            spend(8 * len(found))
            return Set({key(item): None for item in found})

        return run

    def expression_Dict(self, node: ast.Dict, scope: Scope) -> Expression:
        pairs = [
            (None if place is None else self.expression(place, scope), self.expression(value, scope))
            for place, value in zip(node.keys, node.values, strict=True)
        ]

        def run(frames: Frames) -> dict[Any, Any]:
            spend(8 + 12 * len(pairs))
            found: dict[Any, Any] = {}
            for place, value in pairs:
                if place is not None:
                    found[key(place(frames))] = value(frames)
                    continue
                other = value(frames)
                if type(other) is not dict:
                    raise TypeError(f"'{kind_of(other)}' object is not a mapping")
                spend(12 * len(other))
                found.update(other)
            return found

        return run

    def expression_JoinedStr(self, node: ast.JoinedStr, scope: Scope) -> Expression:
        pieces = [self.expression(value, scope) for value in node.values]

        def run(frames: Frames) -> str:
            found = [piece(frames) for piece in pieces]
            spend(4 + sum(map(len, found)) / 4)
            return "".join(found)

        return run

    def expression_FormattedValue(self, node: ast.FormattedValue, scope: Scope) -> Expression:
        value, spec = self.expression(node.value, scope), self._maybe(node.format_spec, scope)
        convert = {-1: lambda found: found, ord("s"): text_of, ord("r"): repr_of, ord("a"): repr_of}[node.conversion]
        return lambda frames: formatted(convert(value(frames)), spec(frames) or "")

    # Comprehensions.

    def expression_ListComp(self, node: ast.ListComp, scope: Scope) -> Expression:
        found = self._comprehension(node.generators, [node.elt], scope)

        def run(frames: Frames) -> list[Any]:
            made = []
            for (value,) in found(frames):
                spend(3)
                made.append(value)
            return made

        return self._within(run)

    def expression_SetComp(self, node: ast.SetComp, scope: Scope) -> Expression:
        found = self._comprehension(node.generators, [node.elt], scope)

        def run(frames: Frames) -> Set:
            made = Set()
            for (value,) in found(frames):
                spend(12)
                made[key(value)] = None
            return made

        return self._within(run)

    def expression_DictComp(self, node: ast.DictComp, scope: Scope) -> Expression:
        found = self._comprehension(node.generators, [node.key, node.value], scope)

        def run(frames: Frames) -> dict[Any, Any]:
            made: dict[Any, Any] = {}
            for place, value in found(frames):
                spend(12)
                made[key(place)] = value
            return made

        return self._within(run)

    def expression_GeneratorExp(self, node: ast.GeneratorExp, scope: Scope) -> Expression:
        found = self._comprehension(node.generators, [node.elt], scope)

        def run(frames: Frames) -> Lazy:
            spend(20)
            rows = found(frames)
            return Lazy(value for (value,) in rows)

        return run

    def _within(self, run: Expression) -> Expression:
        """The same, counted among the calls that wait for one another: each is a call within C."""
        machine = self.machine

        def within(frames: Frames) -> Any:
            machine.enter()
            try:
                return run(frames)
            finally:
                machine.waiting -= 1

        return within

    def _comprehension(
        self, clauses: list[ast.comprehension], results: list[ast.expr], outer: Scope
    ) -> Callable[[Frames], Iterator[list[Any]]]:
        """What yields the results' values for each turn. The first clause's values are found at once, and outside."""
        if len(clauses) > MAX_CLAUSES:
            raise NotSupportedError(f"a comprehension of more than {MAX_CLAUSES} loops")
        scope = Scope(outer, set(), comprehension=True)
        first = self.expression(clauses[0].iter, outer)
        loops = []
        for place, clause in enumerate(clauses):
            if clause.is_async:
                raise NotSupportedError("async is not supported")
            values = None if place == 0 else self.expression(clause.iter, scope)
            bound = Names()
            bound.visit(clause.target)
            scope.names |= bound.bound
            loops.append(
                (values, self.target(clause.target, scope), [self.expression(test, scope) for test in clause.ifs])
            )
        values_of = [self.expression(result, scope) for result in results]
        nodes, machine = sum(map(count, [*clauses, *results])), self.machine

        def turns(frames: Frames, iterator: Iterator[Any], place: int) -> Iterator[list[Any]]:
            _, assign, tests = loops[place]
            for value in iterator:
                spend(nodes)
                assign(frames, value)
                if not all([is_true(test(frames)) for test in tests]):
                    continue
                if place + 1 == len(loops):
                    yield [result(frames) for result in values_of]
                else:
                    inner = loops[place + 1][0]
                    assert inner is not None
                    yield from turns(frames, iterate(machine, inner(frames)), place + 1)

        return lambda frames: turns((*frames, {}), iterate(machine, first(frames)), 0)

    def _checked(self, name: str) -> str:
        if name.startswith("__"):
            raise NotSupportedError("names that begin with __ are not supported")
        return name


_WORDS = {
    "ClassDef": "classes are", "With": "with is", "Yield": "yield is", "YieldFrom": "yield is", "Await": "await is", "Match": "match is",
    "AsyncFunctionDef": "async is", "AsyncFor": "async is", "AsyncWith": "async is", "TryStar": "except* is", "Starred": "a star here is",
}  # fmt: skip
