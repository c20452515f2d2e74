"""Examples whose comments state values: a comment behind an expression that is itself an expression states the value of
that one, `1 + 1    # 2`."""

from __future__ import annotations

import ast


class Stating(ast.NodeTransformer):
    """Expressions whose line ends in a stated value become calls of `check(value, stated, text)`."""

    def __init__(self, source: str) -> None:
        self.lines = source.splitlines()
        self.stated = 0

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        text = self.lines[node.end_lineno - 1][node.end_col_offset :].strip().removeprefix("#").strip()
        try:
            value = ast.parse(text, mode="eval").body
        except SyntaxError:
            return node
        self.stated += 1
        check = ast.Name("check", ast.Load())
        call = ast.Call(check, [node.value, value, ast.Constant(f"{ast.unparse(node.value)}  # {text}")], [])
        return ast.fix_missing_locations(ast.copy_location(ast.Expr(call), node))


def check(value: object, stated: object, text: str) -> None:
    assert value == stated, text
