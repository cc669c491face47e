"""Where the names of a program are found, and how much of it there is."""

import ast


class Scope:
    """The names of a function, a comprehension or the module, and where others are found.

    Attributes:
        level: its place among the frames.
        names: that it binds.
        elsewhere: names that it declares to be of another scope, with their level.
    """

    def __init__(self, outer: "Scope | None", names: set[str], *, comprehension: bool = False) -> None:
        self.outer, self.names, self.comprehension = outer, names, comprehension
        self.level: int = 0 if outer is None else outer.level + 1
        self.elsewhere: dict[str, int] = {}

    def level_of(self, name: str) -> int:
        """Of the frame that a name is found in; 0 also for built-in names."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.elsewhere:
                return scope.elsewhere[name]
            if name in scope.names:
                return scope.level
            scope = scope.outer
        return 0


class Names(ast.NodeVisitor):
    """The names that a function's statements bind, and those that it declares to be of others."""

    def __init__(self) -> None:
        self.bound: set[str] = set()
        self.of_module: set[str] = set()
        self.of_outer: set[str] = set()

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.bound.add(node.id)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.bound.add(node.name)
        for outside in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(outside)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for outside in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(outside)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for outside in (node.iter, *node.ifs):  # the target is the comprehension's own
            self.visit(outside)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        self.bound |= {alias.asname or alias.name for alias in node.names}

    visit_ImportFrom = visit_Import

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.bound.add(node.name)
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        self.of_module |= set(node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.of_outer |= set(node.names)


def names_of(body: list[ast.stmt]) -> Names:
    found = Names()
    for node in body:
        found.visit(node)
    return found


def count(node: ast.AST) -> int:
    return sum(1 for _ in ast.walk(node))
