"""Temporal joins: each row of a stream with the row that a table has under its key at that time [R25].

    FROM bids AS b JOIN rates FOR SYSTEM_TIME AS OF PROCTIME() AS r ON b.currency = r.currency

A row of the left input is joined once, with the version of the table as of the beginning of its epoch; later changes of
the table change no result. In a batch query it is a join like any other.
"""

from __future__ import annotations

from dataclasses import dataclass

from relational.errors import BindError
from relational.expr.expression import Expression, InputRef, conjuncts, equality, remap
from relational.plan.logical import Filter, Join, JoinKind, Scan
from relational.types.schema import Schema


@dataclass(frozen=True, slots=True)
class TemporalLookup:
    """The rows of `scan` are looked up by `keys`, over the left columns, in the order of its primary key. `rest`: what
    must be true besides, over the columns of both sides."""

    scan: Scan
    keys: tuple[Expression, ...]
    rest: tuple[Expression, ...]

    @property
    def schema(self) -> Schema:
        """Of the right columns."""
        return self.scan.schema


def temporal_lookup(join: Join) -> TemporalLookup:
    """How the right rows of a temporal join are found. BindError if it is none."""
    if join.kind not in (JoinKind.INNER, JoinKind.LEFT):
        raise BindError("a temporal join is a JOIN or a LEFT JOIN")
    if not join.left.is_append_only:
        raise BindError("the left side of a temporal join has rows that are changed later: it must be append-only")
    width, right = len(join.left.schema), join.right
    terms: list[Expression] = []
    while isinstance(right, Filter):
        moved = {column: width + column for column in range(len(right.schema))}
        terms += (remap(term, moved) for term in conjuncts(right.predicate))
        right = right.input
    if not isinstance(right, Scan) or not right.table.pk:
        raise BindError("the right side of a temporal join is a table or a materialized view")
    pairs, rest = join.equalities
    by_column = {right.columns[each.right.index]: each for each in pairs if isinstance(each.right, InputRef)}
    key = right.table.pk_indices
    if not all(column in by_column for column in key):
        names = ", ".join(right.table.columns[column].name for column in key)
        raise BindError(f"a temporal join needs an equality for each column of the right side's primary key ({names})")
    used = [by_column[column] for column in key]
    shift = {column: width + column for column in range(len(right.schema))}
    others = [equality(each.left, remap(each.right, shift), is_null_safe=each.is_null_safe)
              for each in pairs if each not in used]
    return TemporalLookup(right, tuple(each.left for each in used), (*rest, *others, *terms))
