"""GROUP BY with GROUPING SETS, ROLLUP and CUBE, as a list of sets."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from math import prod

from sqlglot import exp

from relational.errors import BindError
from relational.expr.bind import error_span
from relational.expr.unbound import UnboundExpr
from relational.plan.builder import MAX_SETS
from relational.sql.expressions import Translator

_Set = tuple[exp.Expr, ...]
_LISTS = (exp.GroupingSets, exp.Rollup, exp.Cube)


def grouping_of(
    node: exp.Group | None, translate: Translator
) -> tuple[tuple[UnboundExpr, ...], tuple[tuple[int, ...], ...] | None]:
    """The group expressions, and the grouping sets as positions in them; None for a plain list. BindError for too many
    sets."""
    if node is None:
        return (), None
    parts = node.expressions
    if not any(isinstance(part, (*_LISTS, exp.Tuple)) for part in parts):
        return tuple(map(translate.term, parts)), None
    if prod(map(_count, parts)) > MAX_SETS:
        raise BindError(f"a GROUP BY has at most {MAX_SETS} grouping sets", **error_span(translate.span(node)))
    terms: list[UnboundExpr] = []
    positions: dict[int, int] = {}
    sets = []
    for combined in product(*map(_sets, parts)):
        found = []
        for each in (each for one in combined for each in one):
            if id(each) not in positions:
                positions[id(each)] = len(terms)
                terms.append(translate.term(each))
            found.append(positions[id(each)])
        sets.append(tuple(dict.fromkeys(found)))
    return tuple(terms), tuple(sets)


def _count(node: exp.Expr) -> int:
    """The number of sets of an element of GROUP BY."""
    if isinstance(node, exp.Rollup):
        return len(node.expressions) + 1
    if isinstance(node, exp.Cube):
        return 1 << min(len(node.expressions), MAX_SETS)
    return sum(map(_count, node.expressions)) if isinstance(node, exp.GroupingSets) else 1


def _sets(node: exp.Expr) -> list[_Set]:
    """Those of an element."""
    if isinstance(node, exp.GroupingSets):
        return [each for part in node.expressions for each in _sets(part)]
    if isinstance(node, exp.Rollup | exp.Cube):
        items = [_items(part) for part in node.expressions]
        sizes = range(len(items), -1, -1)
        chosen: Sequence[Sequence[_Set]]
        if isinstance(node, exp.Rollup):
            chosen = [items[:size] for size in sizes]
        else:
            chosen = [each for size in sizes for each in combinations(items, size)]
        return [tuple(part for item in each for part in item) for each in chosen]
    return [_items(node)]


def _items(node: exp.Expr) -> _Set:
    """The expressions of one set: several in parentheses, or one."""
    return tuple(node.expressions) if isinstance(node, exp.Tuple) else (node,)
