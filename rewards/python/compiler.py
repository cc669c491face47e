"""A program's syntax tree as functions of ours that do what its nodes say, in a subset of Python.

    statement(frames) -> None, or BREAK, CONTINUE or a `Return`
    expression(frames) -> value

`frames` are dicts of names: of the module, and of each function and comprehension around a node. What is not supported is refused before
anything runs: classes, `with`, `async`, `yield`, `match`, names that begin with two underscores and attributes that begin with one. Text
is parsed by `ast`, which runs nothing, and neither `eval`, `exec` nor a compiled program is used anywhere.

A turn of a loop and a call draw as many steps as they have nodes, so that every node that runs is paid for.
"""

import ast
from collections.abc import Callable
from typing import Any

from rewards.maths.limits import spend
from rewards.python.expressions import Expressions, Frames, Statement
from rewards.python.functions import CATCHABLE, EXCEPTIONS, call
from rewards.python.modules import imported, member
from rewards.python.operators import add_in_place, delete_item, item_of, set_item
from rewards.python.scope import Scope, count, names_of
from rewards.python.values import (
    Callee,
    Caught,
    Machine,
    NotSupportedError,
    is_true,
    iterate,
    text_of,
)

BREAK, CONTINUE = object(), object()
MAX_DEPTH = 200
"""Of a program's syntax tree."""


class Return:
    """The end of a function."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Compiler(Expressions):
    """Compiles one program for one machine.

    Raises:
        NotSupportedError: the program has something that is not in the subset.
    """

    def program(self, tree: ast.Module) -> Callable[[], Any]:
        """The whole program: runs it, and returns the value of its last line where that is an expression."""
        _check_depth(tree)
        scope = Scope(None, names_of(tree.body).bound)
        body, last = tree.body, None
        if body and isinstance(body[-1], ast.Expr):
            last = self.expression(body[-1].value, scope)
            line, body = body[-1].lineno, body[:-1]
        run, nodes = self.block(body, scope), count(tree)

        def program() -> Any:
            frames: Frames = ({},)
            spend(nodes)
            run(frames)
            if last is None:
                return None
            self.machine.line = line
            return last(frames)

        return program

    # Statements.

    def block(self, body: list[ast.stmt], scope: Scope) -> Statement:
        steps = [(node.lineno, self.statement(node, scope)) for node in body]
        machine = self.machine

        def run(frames: Frames) -> Any:
            for line, step in steps:
                machine.line = line
                ended = step(frames)
                if ended is not None:
                    return ended
            return None

        return run

    def statement(self, node: ast.stmt, scope: Scope) -> Statement:
        return self._of(node, "statement")(node, scope)

    def statement_Expr(self, node: ast.Expr, scope: Scope) -> Statement:
        value = self.expression(node.value, scope)

        def run(frames: Frames) -> None:
            value(frames)

        return run

    def statement_Pass(self, node: ast.Pass, scope: Scope) -> Statement:
        return lambda _: None

    def statement_Break(self, node: ast.Break, scope: Scope) -> Statement:
        return lambda _: BREAK

    def statement_Continue(self, node: ast.Continue, scope: Scope) -> Statement:
        return lambda _: CONTINUE

    def statement_Return(self, node: ast.Return, scope: Scope) -> Statement:
        if scope.outer is None:
            raise SyntaxError("'return' outside function")
        value = self._maybe(node.value, scope)
        return lambda frames: Return(value(frames))

    def statement_Assign(self, node: ast.Assign, scope: Scope) -> Statement:
        value, targets = self.expression(node.value, scope), [self.target(target, scope) for target in node.targets]

        def run(frames: Frames) -> None:
            found = value(frames)
            for assign in targets:
                assign(frames, found)

        return run

    def statement_AnnAssign(self, node: ast.AnnAssign, scope: Scope) -> Statement:
        if node.value is None:
            return lambda _: None
        value, assign = self.expression(node.value, scope), self.target(node.target, scope)
        return lambda frames: assign(frames, value(frames))

    def statement_AugAssign(self, node: ast.AugAssign, scope: Scope) -> Statement:
        change, value, machine = self._change(node.op), self.expression(node.value, scope), self.machine
        if isinstance(node.target, ast.Name):
            target = self.target(node.target, scope)
            read = self.expression_Name(ast.Name(node.target.id, ast.Load()), scope)
            return lambda frames: target(frames, change(read(frames), value(frames)))
        if not isinstance(node.target, ast.Subscript):
            raise NotSupportedError("attributes can't be assigned to")
        whole, place = self.expression(node.target.value, scope), self.expression(node.target.slice, scope)

        def run(frames: Frames) -> None:
            owner, where = whole(frames), place(frames)
            set_item(machine, owner, where, change(item_of(owner, where), value(frames)))

        return run

    def _change(self, sign: ast.operator) -> Callable[[Any, Any], Any]:
        if isinstance(sign, ast.Add):
            return lambda a, b: add_in_place(self.machine, a, b)
        return self._binary(sign)

    def statement_Delete(self, node: ast.Delete, scope: Scope) -> Statement:
        steps = [self._deletion(target, scope) for target in node.targets]

        def run(frames: Frames) -> None:
            for step in steps:
                step(frames)

        return run

    def _deletion(self, node: ast.expr, scope: Scope) -> Statement:
        if isinstance(node, ast.Name):
            name, level = self._checked(node.id), scope.level_of(node.id)
            read = self.expression_Name(ast.Name(name, ast.Load()), scope)

            def forget(frames: Frames) -> None:
                read(frames)
                frames[level].pop(name, None)

            return forget
        if not isinstance(node, ast.Subscript):
            raise NotSupportedError("only names and items can be deleted")
        whole, place = self.expression(node.value, scope), self.expression(node.slice, scope)
        return lambda frames: delete_item(whole(frames), place(frames))

    def statement_If(self, node: ast.If, scope: Scope) -> Statement:
        test, body, other = (
            self.expression(node.test, scope),
            self.block(node.body, scope),
            self.block(node.orelse, scope),
        )
        return lambda frames: body(frames) if is_true(test(frames)) else other(frames)

    # Not one loop for both, over values: a `while` as a generator would turn a StopIteration that its test raises into a RuntimeError.

    def statement_While(self, node: ast.While, scope: Scope) -> Statement:
        test, body, other = (
            self.expression(node.test, scope),
            self.block(node.body, scope),
            self.block(node.orelse, scope),
        )
        nodes = count(node)

        def run(frames: Frames) -> Any:
            while is_true(test(frames)):
                spend(nodes)
                ended = body(frames)
                if ended is BREAK:
                    return None
                if ended is not None and ended is not CONTINUE:
                    return ended
            return other(frames)

        return run

    def statement_For(self, node: ast.For, scope: Scope) -> Statement:
        values, assign = self.expression(node.iter, scope), self.target(node.target, scope)
        body, other = self.block(node.body, scope), self.block(node.orelse, scope)
        nodes, machine = count(node), self.machine

        def run(frames: Frames) -> Any:
            for value in iterate(machine, values(frames)):
                spend(nodes)
                assign(frames, value)
                ended = body(frames)
                if ended is BREAK:
                    return None
                if ended is not None and ended is not CONTINUE:
                    return ended
            return other(frames)

        return run

    def statement_Import(self, node: ast.Import, scope: Scope) -> Statement:
        found = [(self._checked(alias.asname or alias.name), imported(alias.name)) for alias in node.names]
        return self._bind(found, scope)

    def statement_ImportFrom(self, node: ast.ImportFrom, scope: Scope) -> Statement:
        module = imported("." * node.level + (node.module or ""))
        if [alias.name for alias in node.names] == ["*"]:
            scope.names |= module.members.keys()
            return self._bind(list(module.members.items()), scope)
        found = [(self._checked(alias.asname or alias.name), member(module.name, alias.name)) for alias in node.names]
        return self._bind(found, scope)

    def _bind(self, found: list[tuple[str, Any]], scope: Scope) -> Statement:
        levels = [(scope.level_of(name), name, value) for name, value in found]

        def run(frames: Frames) -> None:
            for level, name, value in levels:
                frames[level][name] = value

        return run

    def statement_Global(self, node: ast.Global | ast.Nonlocal, scope: Scope) -> Statement:
        return lambda _: None  # `_names` has seen it

    statement_Nonlocal = statement_Global

    def statement_Assert(self, node: ast.Assert, scope: Scope) -> Statement:
        test, text = self.expression(node.test, scope), self._maybe(node.msg, scope)

        def run(frames: Frames) -> None:
            if not is_true(test(frames)):
                said = text(frames)
                raise AssertionError("" if said is None else text_of(said))

        return run

    def statement_Raise(self, node: ast.Raise, scope: Scope) -> Statement:
        if node.exc is None:
            raise NotSupportedError("raise without an exception is not supported")
        what, machine = self.expression(node.exc, scope), self.machine

        def run(frames: Frames) -> None:
            value = what(frames)
            if type(value) is Callee and value.name in EXCEPTIONS:
                value = call(machine, value)
            if type(value) is not Caught:
                raise TypeError("exceptions must derive from BaseException")
            raise value.kind(value.text)

        return run

    def statement_Try(self, node: ast.Try, scope: Scope) -> Statement:
        body, other, last = (self.block(part, scope) for part in (node.body, node.orelse, node.finalbody))
        handlers = [self._handler(handler, scope) for handler in node.handlers]
        machine = self.machine

        def handled(frames: Frames) -> Any:
            waiting = machine.waiting
            try:
                ended = body(frames)
            except CATCHABLE as error:
                machine.waiting = waiting
                handle = next((handle for kinds, handle in handlers if isinstance(error, kinds)), None)
                if handle is None or isinstance(error, RecursionError):
                    raise
                return handle(frames, error)
            return other(frames) if ended is None else ended

        def run(frames: Frames) -> Any:
            try:
                ended = handled(frames)
            except CATCHABLE as error:
                if isinstance(error, RecursionError) or (ended := last(frames)) is None:
                    raise
                return ended
            after = last(frames)
            return ended if after is None else after

        return run

    def _handler(self, node: ast.ExceptHandler, scope: Scope) -> tuple[Any, Callable[[Frames, Exception], Any]]:
        named = [] if node.type is None else node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        kinds = CATCHABLE if node.type is None else ()
        for one in named:
            if not isinstance(one, ast.Name) or one.id not in EXCEPTIONS:
                raise NotSupportedError(f"except takes names of exceptions; there are: {', '.join(EXCEPTIONS)}")
            kinds += EXCEPTIONS[one.id]
        body = self.block(node.body, scope)
        level = scope.level_of(self._checked(node.name)) if node.name else 0
        name = node.name

        def run(frames: Frames, error: Exception) -> Any:
            if name:
                frames[level][name] = Caught(type(error), str(error)[:1000])
            return body(frames)

        return kinds, run

    def statement_FunctionDef(self, node: ast.FunctionDef, scope: Scope) -> Statement:
        make = self.function(node, self._checked(node.name), node.body, scope)
        decorators = [self.expression(decorator, scope) for decorator in reversed(node.decorator_list)]
        level, name, machine = scope.level_of(node.name), node.name, self.machine

        def run(frames: Frames) -> None:
            made = make(frames)
            for decorator in decorators:
                made = call(machine, decorator(frames), made)
            frames[level][name] = made

        return run

    # Functions.

    def function(
        self, node: ast.FunctionDef | ast.Lambda, name: str, body: list[ast.stmt], outer: Scope
    ) -> Callable[[Frames], Callee]:
        a = node.args
        if a.kwarg is not None:
            raise NotSupportedError("functions with ** are not supported")
        names = [self._checked(arg.arg) for arg in (*a.posonlyargs, *a.args)]
        only_named = [self._checked(arg.arg) for arg in a.kwonlyargs]
        rest = self._checked(a.vararg.arg) if a.vararg else None
        found = names_of(body)
        scope = Scope(outer, found.bound - found.of_module - found.of_outer)
        scope.names |= {*names, *only_named, *([rest] if rest else [])}
        scope.elsewhere = dict.fromkeys(found.of_module, 0) | {n: outer.level_of(n) for n in found.of_outer}
        defaults = [self.expression(default, outer) for default in a.defaults]
        of_named = [(arg, default) for arg, default in zip(only_named, a.kw_defaults, strict=True)]
        named_defaults = [(arg, self.expression(value, outer)) for arg, value in of_named if value is not None]
        run, nodes = self.block(body, scope), 5 + count(node)

        def make(frames: Frames) -> Callee:
            spend(20)
            known = dict(zip(names[len(names) - len(defaults) :], [value(frames) for value in defaults], strict=True))
            known |= {arg: value(frames) for arg, value in named_defaults}

            def called(_: Machine, arguments: list[Any], named: dict[str, Any]) -> Any:
                spend(nodes)
                local = dict(zip(names, arguments, strict=False))
                if rest is not None:
                    local[rest] = tuple(arguments[len(names) :])
                elif len(arguments) > len(names):
                    raise TypeError(f"{name}() takes {len(names)} positional arguments but {len(arguments)} were given")
                for arg, value in named.items():
                    if arg in local or arg not in (*names, *only_named):
                        raise TypeError(f"{name}() got an unexpected argument '{arg}'")
                    local[arg] = value
                for arg in (*names, *only_named):
                    if arg not in local:
                        if arg not in known:
                            raise TypeError(f"{name}() missing the argument '{arg}'")
                        local[arg] = known[arg]
                ended = run((*frames, local))
                return ended.value if type(ended) is Return else None

            return Callee(name, called)

        return make


def _check_depth(tree: ast.AST) -> None:
    level, depth = [tree], 0
    while level:
        if depth > MAX_DEPTH:
            raise NotSupportedError(f"a program with more than {MAX_DEPTH} levels")
        depth += 1
        level = [child for node in level for child in ast.iter_child_nodes(node)]
