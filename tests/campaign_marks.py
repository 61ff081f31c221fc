"""Which tests are in campaigns only. It is read from their text: to collect all tests takes half a minute."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from suites import CAMPAIGNS

_Values = Mapping[str, ast.expr]
"""By name: what a module assigns to it."""


def campaigns_of(source: str) -> dict[str, set[str]]:
    """By the name of a test of a module: the campaigns that it is in as a whole. None: it is in `make test`."""
    module = ast.parse(source)
    values = {
        target.id: node.value
        for node in module.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    all_of_it = _campaigns(values["pytestmark"], values) if "pytestmark" in values else set()
    return {
        node.name: all_of_it.union(*(_of_decorator(decorator, values) for decorator in node.decorator_list))
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def _of_decorator(decorator: ast.expr, values: _Values) -> set[str]:
    """Where only some of the parameters are marked, the others run in `make test`."""
    if not (isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.parametrize"):
        return _campaigns(decorator, values)
    cases = [_campaigns(case, values) for case in _cases(decorator.args[1], values)]
    return set().union(*cases) if cases and all(cases) else set()


def _cases(argvalues: ast.expr, values: _Values) -> Iterator[ast.expr]:
    if isinstance(argvalues, ast.Name) and argvalues.id in values:
        argvalues = values[argvalues.id]
    if isinstance(argvalues, ast.List | ast.Tuple):
        for case in argvalues.elts:
            yield from _cases(case.value, values) if isinstance(case, ast.Starred) else [case]
    else:
        yield argvalues


def _campaigns(expression: ast.expr, values: _Values) -> set[str]:
    """Those that are named whatever happens: also by the module's own name for a mark, and not after an `if`."""
    if isinstance(expression, ast.IfExp):
        return set()
    if isinstance(expression, ast.Name):
        return _campaigns(values[expression.id], values) if expression.id in values else set()
    if isinstance(expression, ast.Attribute) and ast.unparse(expression.value) == "pytest.mark":
        return {expression.attr} & CAMPAIGNS.keys()
    parts = (part.value if isinstance(part, ast.keyword) else part for part in ast.iter_child_nodes(expression))
    return set().union(*(_campaigns(part, values) for part in parts if isinstance(part, ast.expr)))
