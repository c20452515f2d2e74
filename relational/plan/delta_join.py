"""Delta joins: joins of stored tables that keep no rows of their own.

Both inputs are rows of tables or views that are stored in the order of the join key: by their primary key, or in an
index that has all columns which are needed. The changes of each input meet the stored rows of the other one [R25]. A
view is planned with such joins where they are possible, if its session says so (`streaming_enable_delta_join`); all
other joins keep the rows of both inputs. The plan of the view names the indexes, on which it depends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from relational.catalog.objects import TableCatalog, TableKind
from relational.expr.expression import Expression, InputRef, conjuncts, equality, remap
from relational.plan.descent import transformed
from relational.plan.logical import Filter, Join, JoinKind, LogicalPlan, Scan

Indexes = Callable[[int], Sequence[TableCatalog]]
"""The complete indexes of a table, by its id."""


@dataclass(frozen=True, slots=True)
class DeltaLookup:
    """`scans`: of both inputs, in whose columns rows are changed and looked up. `keys`: a column of the left scan, and
    one of the right, that are equal. `prefixes`: for each input the numbers of `keys` that are the first columns of
    its primary key, in their order. `rest`: what must be true besides, over the columns of both sides."""

    scans: tuple[Scan, Scan]
    keys: tuple[tuple[int, int], ...]
    prefixes: tuple[tuple[int, ...], tuple[int, ...]]
    rest: tuple[Expression, ...]


def with_delta_joins(plan: LogicalPlan, indexes: Indexes) -> LogicalPlan:
    """The optimized plan of a view, in which each join that can be is a delta join."""
    return transformed(plan, lambda node: _delta_join(node, indexes) if isinstance(node, Join) else node)


def _delta_join(join: Join, indexes: Indexes) -> Join:
    for left in _stored_orders(join.left, indexes):
        for right in _stored_orders(join.right, indexes):
            delta = replace(join, left=left, right=right, is_delta=True)
            if delta_lookup(delta) is not None:
                return delta
    return join


def delta_lookup(join: Join) -> DeltaLookup | None:
    """How the rows of a delta join find each other; None if it cannot be one."""
    scans, terms = _scans_below(join)
    if scans is None or join.kind is not JoinKind.INNER or join.is_temporal or join.marked_terms != ((), None):
        return None
    width = len(join.left.schema)
    pairs, rest = join.equalities
    plain = [each for each in pairs if isinstance(each.left, InputRef) and isinstance(each.right, InputRef)
             and not each.is_null_safe]
    keys = tuple((each.left.index, each.right.index) for each in plain
                 if isinstance(each.left, InputRef) and isinstance(each.right, InputRef))
    prefixes = []
    for side, scan in enumerate(scans):
        prefix = _prefix(scan, [pair[side] for pair in keys])
        if not prefix or not set(scan.table.distribution_key) <= set(scan.table.pk_indices[: len(prefix)]):
            return None
        prefixes.append(prefix)
    moved = {column: width + column for column in range(len(join.right.schema))}
    compared = [each for each in pairs if each not in plain or not _is_in_both(plain.index(each), prefixes)]
    others = [equality(each.left, remap(each.right, moved), is_null_safe=each.is_null_safe) for each in compared]
    return DeltaLookup(scans, keys, (prefixes[0], prefixes[1]), (*rest, *others, *terms))


def _is_in_both(number: int, prefixes: Sequence[Sequence[int]]) -> bool:
    return all(number in prefix for prefix in prefixes)


def _prefix(scan: Scan, columns: Sequence[int]) -> tuple[int, ...]:
    """The positions in `columns`, of the scan, of the first columns of the primary key of its table."""
    stored = [scan.columns[column] for column in columns]
    found: list[int] = []
    for column in scan.table.pk_indices:
        if column not in stored:
            break
        found.append(stored.index(column))
    return tuple(found)


def _scans_below(join: Join) -> tuple[tuple[Scan, Scan] | None, list[Expression]]:
    """The scans below filters, whose conditions are over the columns of both sides then; None if there are others."""
    terms: list[Expression] = []
    scans: list[Scan] = []
    for input, first in ((join.left, 0), (join.right, len(join.left.schema))):
        while isinstance(input, Filter) and not input.has_state:
            moved = {column: first + column for column in range(len(input.schema))}
            terms += (remap(term, moved) for term in conjuncts(input.predicate))
            input = input.input
        if not isinstance(input, Scan) or input.table.kind is TableKind.SOURCE or not input.table.pk:
            return None, terms
        scans.append(input)
    left, right = scans
    return (None if left.table.id == right.table.id else (left, right)), terms


def _stored_orders(input: LogicalPlan, indexes: Indexes) -> list[LogicalPlan]:
    """The same rows as they are stored: by the table itself, and by each of its indexes with all columns."""
    if isinstance(input, Filter):
        return [input.over((child,)) for child in _stored_orders(input.input, indexes)]
    if not isinstance(input, Scan):
        return [input]
    found: list[LogicalPlan] = [input]
    for index in indexes(input.table.id):
        by_name = {column.name: at for at, column in enumerate(index.columns)}
        names = [input.table.columns[column].name for column in input.columns]
        if all(name in by_name for name in names):
            found.append(Scan(index, tuple(by_name[name] for name in names)))
    return found
