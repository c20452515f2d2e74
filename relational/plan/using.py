"""JOIN … USING and NATURAL JOIN, and the joins of the fluent API: by columns of equal names, each of which comes once
in the result.

The column that comes is that of the left relation, or of the side whose rows are all there; of a full join the first
that is not NULL. The columns of both sides can still be named with their relations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from relational.errors import BindError
from relational.expr.bind import call
from relational.expr.expression import Expression, InputRef, OuterRef, conjunction, input_refs
from relational.expr.scope import FromItem, Scope
from relational.expr.unbound import Name, TextSpan
from relational.plan.logical import Join, JoinKind, LogicalPlan, Project
from relational.types.schema import Field, Schema


def shared_names(left: Sequence[FromItem], right: Sequence[FromItem]) -> list[str]:
    """The names of columns that both sides show."""
    others = {column.name for column in Scope.of_items(right).star((), None)}
    return list(dict.fromkeys(each.name for each in Scope.of_items(left).star((), None) if each.name in others))


def join_using(
    pairs: Join, names: Sequence[tuple[str, TextSpan | None]], left: Sequence[FromItem], right: Sequence[FromItem]
) -> tuple[LogicalPlan, list[FromItem]]:
    """`pairs`, all of both sides, joined by the columns `names`, each with its span; and the names of the result.
    BindError for a column that a side has not, or twice."""
    if not names:
        return pairs, [*left, *right]
    chosen = [tuple(_column(name, span, side) for side in (left, right)) for name, span in names]
    on = conjunction([call("equal", pair, span) for pair, (_, span) in zip(chosen, names, strict=True)])
    join = replace(pairs, on=on)
    merged = [_merged(one, other, pairs.kind) for one, other in chosen]
    width = len(join.schema)
    columns = input_refs(join.schema.types)
    titles = [name for name, _ in names]
    plan = Project(join, (*columns, *merged), (*join.schema.names, *titles), join.hidden)
    schema = Schema(Field(name, each.data_type) for name, each in zip(titles, merged, strict=True))
    omitted = {column.index for pair in chosen for column in pair}
    return plan, [FromItem(schema, first=width), *(_without(item, omitted) for item in (*left, *right))]


def _column(name: str, span: TextSpan | None, side: Sequence[FromItem]) -> InputRef:
    found = Scope.of_items(side).resolve(Name(name, span=span))
    assert not isinstance(found, OuterRef), "a side has no scope around it"
    return found


def _merged(one: InputRef, other: InputRef, kind: JoinKind) -> Expression:
    if kind is JoinKind.FULL or one.data_type != other.data_type:
        return call("coalesce", [one, other])
    return other if kind is JoinKind.RIGHT else one


def _without(item: FromItem, omitted: set[int]) -> FromItem:
    """The item, of which these columns of the row need a qualifier."""
    own = {column - item.first for column in omitted if item.first <= column < item.first + len(item.schema)}
    return replace(item, merged=item.merged | own)


def join_by(
    left: LogicalPlan, right: LogicalPlan, pairs: Sequence[tuple[str, str]], kind: JoinKind, suffix: str
) -> LogicalPlan:
    """The join of two plans by equal columns, named in pairs of a left and a right one. The columns of the left plan,
    then those of the right one, where the kind has them, without the ones that are called as their left ones; a name
    that the left plan has gets the `suffix`. BindError."""
    width = len(left.schema)
    scopes = [FromItem(left.schema, left.hidden)], [FromItem(right.schema, right.hidden, first=width)]
    chosen = [(_column(one, None, scopes[0]), _column(other, None, scopes[1])) for one, other in pairs]
    on = conjunction([call("equal", pair) for pair in chosen]) if chosen else None
    join = Join(left, right, kind, on)
    if not kind.has_pairs:
        return join
    merged = {
        one.index: _merged(one, other, kind)
        for (one, other), (name, other_name) in zip(chosen, pairs, strict=True) if name == other_name
    }  # fmt: skip
    omitted = {other.index for (one, other) in chosen if one.index in merged}
    types, names = join.schema.types, join.schema.names
    shown = [column for column in range(len(types)) if column not in join.hidden and column not in omitted]
    taken = {names[column] for column in shown if column < width}
    titles = [names[at] + suffix if at >= width and names[at] in taken else names[at] for at in shown]
    twice = [title for title, count in Counter(titles).items() if count > 1]
    if twice:
        raise BindError(f"both relations have a column {twice[0]!r}: select others, or give another suffix")
    return Project(join, tuple(merged.get(column, InputRef(column, types[column])) for column in shown), tuple(titles))
