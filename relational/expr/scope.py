"""Scope: the names that expressions of one SELECT can use.

A scope has the from items of its FROM, whose columns together are the row over which expressions are evaluated, and the
scope of the query around it. A from item is called by its alias, or by the parts of its table's name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from relational.errors import BindError
from relational.expr.expression import InputRef, OuterRef
from relational.expr.unbound import Name, TextSpan, UnboundColumn
from relational.types.schema import Schema

MAX_SUGGESTED = 64
"""Characters of a name for which suggestions are sought."""


@dataclass(frozen=True, slots=True)
class FromItem:
    """A relation of a FROM clause.

    `schema`: its columns under the names that the query gives them. `hidden`: those that `*` omits. `path`: what it can
    be called, from right to left: (alias,), or (database, schema, table); () for no name. `first`: the position of its
    first column in the row of the scope. `merged`: columns for which one of USING stands, unless they are qualified.
    `key`: the primary key, of a table that has declared one.
    """

    schema: Schema
    hidden: frozenset[int] = frozenset()
    path: tuple[str, ...] = ()
    first: int = 0
    merged: frozenset[int] = frozenset()
    key: frozenset[int] = frozenset()

    def is_called(self, qualifier: tuple[str, ...]) -> bool:
        """Whether `qualifier`, a name in parts, denotes this item; without a qualifier every item."""
        return qualifier == self.path[len(self.path) - len(qualifier) :]

    def find(self, name: str, *, is_qualified: bool = False) -> list[int]:
        """The positions in the item of the columns of a name: visible ones, else hidden ones."""
        names = self.schema.names
        omitted = frozenset[int]() if is_qualified else self.merged
        if not omitted and names.count(name) == 1:
            return [names.index(name)]
        found = [position for position, each in enumerate(names) if each == name and position not in omitted]
        return [position for position in found if position not in self.hidden] or found


class Scope:
    """The from items, the scope of the enclosing query (None: there is none), and how many queries enclose it.
    `Scope(schema, hidden, name)` has one relation."""

    __slots__ = ("_columns", "depth", "items", "outer")

    def __init__(self, schema: Schema, hidden: frozenset[int] = frozenset(), name: str | None = None) -> None:
        self.items: tuple[FromItem, ...] = (FromItem(schema, hidden, () if name is None else (name,)),)
        self.outer: Scope | None = None
        self.depth = 0
        self._columns: dict[tuple[tuple[str, ...], str], InputRef | OuterRef] = {}

    @classmethod
    def of_items(cls, items: Iterable[FromItem], outer: Scope | None = None) -> Scope:
        """The scope of a FROM clause."""
        scope = cls(Schema())
        scope.items, scope.outer = tuple(items), outer
        scope.depth = 0 if outer is None else outer.depth + 1
        return scope

    def resolve(self, term: Name) -> InputRef | OuterRef:
        """The column of a name, or of the row of the next enclosing query that has it. BindError with a suggestion if
        there is none, and one that names the relations if there is more than one."""
        key = term.qualifier, term.name
        if key not in self._columns:
            self._columns[key] = self._found(term)
        return self._columns[key]

    def has(self, name: str) -> bool:
        """Whether a from item has a column of this name."""
        return any(name in item.schema.names for item in self.items)

    def star(self, qualifier: tuple[str, ...], span: TextSpan | None) -> list[UnboundColumn]:
        """The visible columns of all from items, or of the one that is called `qualifier`. BindError."""
        return [
            UnboundColumn(item.first + position, field.data_type, field.name, span)
            for item in self._called(qualifier, span)
            for position, field in enumerate(item.schema)
            if position not in item.hidden and (qualifier or position not in item.merged)
        ]

    def knows(self, term: Name) -> bool:
        """Whether a name denotes a column, here or in an enclosing scope."""
        is_qualified = bool(term.qualifier)
        is_here = any(
            item.is_called(term.qualifier) and item.find(term.name, is_qualified=is_qualified) for item in self.items
        )
        return is_here or (self.outer is not None and self.outer.knows(term))

    def _found(self, term: Name) -> InputRef | OuterRef:
        items = [item for item in self.items if item.is_called(term.qualifier)]
        is_qualified = bool(term.qualifier)
        found = [(item, position) for item in items for position in item.find(term.name, is_qualified=is_qualified)]
        if not found and self.outer is not None and self.outer.knows(term):
            column = self.outer.resolve(term)
            is_further = isinstance(column, OuterRef)
            return column if is_further else OuterRef(column.index, column.data_type, self.outer.depth)
        if len(items) != 1:
            self._called(term.qualifier, term.span)
        if len(found) == 1:
            item, position = found[0]
            return InputRef(item.first + position, item.schema.types[position])
        if found:
            owners = list(dict.fromkeys(".".join(item.path) for item, _ in found))
            among = f": {' and '.join(map(repr, owners))} have one" if len(owners) > 1 else ""
            raise BindError(f"column {term.name!r} is ambiguous{among}", **error_span(term.span))
        visible = [column.name for column in self.star(term.qualifier, term.span)]
        raise BindError(unknown("column", term.name, visible), **error_span(term.span))

    def _called(self, qualifier: tuple[str, ...], span: TextSpan | None) -> list[FromItem]:
        """The from items that a qualifier denotes. BindError if there is none, or more than one."""
        found = [item for item in self.items if item.is_called(qualifier)]
        name = ".".join(qualifier)
        if qualifier and len(found) > 1:
            raise BindError(f"relation {name!r} is ambiguous", **error_span(span))
        if qualifier and not found:
            known = [item.path[-1] for item in self.items if item.path]
            raise BindError(unknown("relation", name, known), **error_span(span))
        return found


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """The message for an unknown name, with the closest known one."""
    near = get_close_matches(name, list(known), n=1, cutoff=0.6) if len(name) <= MAX_SUGGESTED else []
    return f"there is no {what} {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")


def error_span(span: TextSpan | None) -> dict[str, Any]:
    """The keyword arguments of an error at a span of SQL text; the SQL front end adds the text itself."""
    return {} if span is None else {"start": span[0], "end": span[1]}
