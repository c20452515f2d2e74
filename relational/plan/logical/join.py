"""Join: pairs of rows of two inputs, or the rows of one that have a partner in the other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum, auto

from relational.expr.disjunctions import implied_terms
from relational.expr.distance_bounds import DistanceBounds
from relational.expr.expression import Expression, Literal, conjunction, conjuncts, input_columns, input_refs, remap
from relational.plan.logical.equalities import Equality, equalities
from relational.plan.logical.filter import where
from relational.plan.logical.join_watermarks import marked_columns, marked_distance, marked_pairs
from relational.plan.logical.node import NONE, AddKeys, LogicalPlan, Positions, Properties, Prune, Push
from relational.plan.logical.project import Project, hidden_name, only
from relational.types.data_type import DataType
from relational.types.schema import Schema


class JoinKind(StrEnum):
    """Which rows are the result: the pairs, and with NULL for the other side the rows without a partner of neither
    side, of one, or of both; or the left rows that have a partner, or none, without the right columns."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"

    @property
    def has_pairs(self) -> bool:
        return self not in (JoinKind.SEMI, JoinKind.ANTI)

    @property
    def keeps_left(self) -> bool:
        """Whether left rows without a partner are in the result."""
        return self in (JoinKind.LEFT, JoinKind.FULL, JoinKind.ANTI)

    @property
    def keeps_right(self) -> bool:
        """Whether right rows without a partner are in the result."""
        return self in (JoinKind.RIGHT, JoinKind.FULL)

    @property
    def counts_partners(self) -> tuple[bool, bool]:
        """Of the left and of the right rows, whether it matters, beyond the pairs, if one has a partner."""
        return self.keeps_left or not self.has_pairs, self.keeps_right


@dataclass(frozen=True, slots=True)
class Join(LogicalPlan):
    """The pairs of a left and a right row for which `on`, over the columns of both, is true; None: all pairs. The
    columns of the left input come first; those of the right one are absent where the kind has no pairs.

    `is_keyed`: the rows of the inputs are kept as state, so these have their stream keys. The stream key of the result
    has the keys of both sides, without right (or left) columns that an equality determines, and the columns by which
    the rows are distributed [R8]. Where rows of both sides may come without a partner, each side must have a column
    without NULL in it.

    `is_temporal`: a view joins each left row once, with the right rows of that time (relational/plan/temporal_join.py).
    `is_delta`: a view keeps no rows for it, but reads those of its inputs (relational/plan/delta_join.py).
    """

    left: LogicalPlan
    right: LogicalPlan
    kind: JoinKind
    on: Expression | None
    is_temporal: bool = False
    is_delta: bool = False
    is_keyed: bool = field(default=False, compare=False, repr=False)

    def _derived(self) -> Properties:
        left, right, width = self.left.properties, self.right.properties, len(self.left.schema)
        if not self.kind.has_pairs:
            return self._derived_of_left(left, right)
        return Properties(
            schema=Schema((*left.schema, *right.schema)),
            hidden=left.hidden | _moved(right.hidden, width),
            stream_key=self._stream_key(left, right),
            is_append_only=self._is_append_only,
            unique_keys=self._unique_keys(left, right),
            constants=self._where_always(left.constants, right.constants),
            shares=left.shares | right.shares,
            watermarks=left.watermarks if self.is_temporal else self._where_always(*self._marked_columns),
            not_null=self._where_always(left.not_null, right.not_null),
        )

    def _derived_of_left(self, left: Properties, right: Properties) -> Properties:
        key = left.stream_key
        if key is not None:
            (pairs, _) = self.equalities
            key = (*key, *(column for column in _columns(each.left for each in pairs) if column not in key))
        return Properties(
            schema=left.schema,
            hidden=left.hidden,
            stream_key=key,
            is_append_only=self.kind is JoinKind.SEMI and self._is_append_only,
            unique_keys=left.unique_keys,
            constants=left.constants,
            shares=left.shares | right.shares,
            watermarks=self._marked_columns[0],
            not_null=left.not_null,
        )

    @property
    def _is_append_only(self) -> bool:
        if self.is_temporal:
            return self.left.is_append_only
        inputs_are = self.left.is_append_only and self.right.is_append_only
        return inputs_are and self.kind in (JoinKind.INNER, JoinKind.SEMI)

    @property
    def marked_terms(self) -> tuple[tuple[int, ...], DistanceBounds | None]:
        """The numbers of the equalities of columns with a watermark; without any, the bounded distance of two columns
        with a watermark."""
        left, right = self.left.watermarks, self.right.watermarks
        if self.is_temporal or not left or not right:
            return (), None
        pairs, rest = self.equalities
        marked = marked_pairs(pairs, left, right)
        return marked, None if marked else marked_distance(rest, left, right, len(self.left.schema))

    @property
    def _marked_columns(self) -> tuple[frozenset[int], frozenset[int]]:
        marked, distance = self.marked_terms
        return marked_columns(self.equalities[0], marked, distance) if marked or distance else (NONE, NONE)

    def _where_always(self, left: frozenset[int], right: frozenset[int]) -> frozenset[int]:
        """Columns of those sides whose columns are never NULL for want of a partner."""
        found = NONE if self.kind.keeps_right else left
        return found if self.kind.keeps_left else found | _moved(right, len(self.left.schema))

    def _stream_key(self, left: Properties, right: Properties) -> tuple[int, ...] | None:
        if left.stream_key is None or right.stream_key is None:
            return None
        pairs, _ = self.equalities
        width = len(left.schema)
        left_columns = _columns(each.left for each in pairs)
        right_columns = [width + column for column in _columns(each.right for each in pairs)]
        left_key = list(left.stream_key)
        right_key = [width + column for column in right.stream_key]
        if self.kind is JoinKind.FULL:
            of_left, of_right = _presence(left), _presence(right)
            if of_left is None or of_right is None:
                return None
            present = [of_left, width + of_right]
            return tuple(dict.fromkeys([*left_key, *right_key, *left_columns, *right_columns, *present]))
        equal_left = {each.columns[0] for each in pairs if each.columns[1] is not None}
        equal_right = {each.columns[1] for each in pairs if each.columns[0] is not None}
        keys = []
        if not self.kind.keeps_right:
            rest = [column for column in right_key if column - width not in equal_right]
            keys.append(tuple(dict.fromkeys([*left_key, *left_columns, *rest])))
        if not self.kind.keeps_left:
            rest = [column for column in left_key if column not in equal_left]
            keys.append(tuple(dict.fromkeys([*rest, *right_key, *right_columns])))
        return min(keys, key=len)

    def _unique_keys(self, left: Properties, right: Properties) -> tuple[frozenset[int], ...]:
        if self.kind is JoinKind.FULL:
            return ()
        pairs, _ = self.equalities
        width = len(left.schema)
        found: list[frozenset[int]] = []
        if not self.kind.keeps_right and right.is_unique(_known(each.columns[1] for each in pairs)):
            found += left.unique_keys
        if not self.kind.keeps_left and left.is_unique(_known(each.columns[0] for each in pairs)):
            found += (_moved(key, width) for key in right.unique_keys)
        if not found:       # else each pair of keys contains one of these
            found += (one | _moved(other, width) for one in left.unique_keys for other in right.unique_keys)
        return tuple(dict.fromkeys(found))

    @property
    def inputs(self) -> tuple[LogicalPlan, ...]:
        return self.left, self.right

    def with_inputs(self, inputs: tuple[LogicalPlan, ...]) -> Join:
        left, right = inputs
        return replace(self, left=left, right=right)

    @property
    def evaluated(self) -> tuple[Expression, ...]:
        return () if self.on is None else (self.on,)

    @property
    def summary(self) -> str:
        names = (*self.left.schema.names, *self.right.schema.names)
        condition = "" if self.on is None else f" on {self.on.describe(names)}"
        name = "Temporal join" if self.is_temporal else "Delta join" if self.is_delta else "Join"
        return f"{name} {self.kind}{condition}"

    @property
    def terms(self) -> tuple[Expression, ...]:
        """The conjuncts of `on`."""
        return () if self.on is None else conjuncts(self.on)

    @property
    def equalities(self) -> tuple[tuple[Equality, ...], tuple[Expression, ...]]:
        """The terms that are equalities of both sides, and the other ones."""
        return equalities(self.terms, len(self.left.schema))

    @property
    def passing(self) -> tuple[bool, bool]:
        """For each input whether its rows are needed only until they find their partner: the other input then has at
        most one row for each key, which never goes. Rows without a partner wait for it [R46]."""
        if self.kind is not JoinKind.INNER or self.is_temporal:
            return False, False
        pairs, _ = self.equalities
        left = self.right.is_append_only and self.right.properties.is_unique(_known(each.columns[1] for each in pairs))
        right = self.left.is_append_only and self.left.properties.is_unique(_known(each.columns[0] for each in pairs))
        return left, right and not left

    def pruned(self, wanted: frozenset[int], prune: Prune) -> tuple[LogicalPlan, Positions]:
        """What is wanted, what the condition needs, and the keys of rows that are kept, on each side."""
        width = len(self.left.schema)
        needed = wanted | (frozenset() if self.on is None else input_columns(self.on))
        if self.is_keyed:
            needed |= frozenset(self.left.stream_key or ()) | _moved(self.right.stream_key or (), width)
            needed |= frozenset(self.stream_key or ())
        left, left_positions = prune(self.left, frozenset(column for column in needed if column < width))
        right, right_positions = prune(self.right, frozenset(column - width for column in needed if column >= width))
        moved = {width + old: len(left.schema) + new for old, new in right_positions.items()}
        positions = left_positions | moved if self.kind.has_pairs else left_positions
        if left is self.left and right is self.right:
            return self, positions
        on = None if self.on is None else remap(self.on, left_positions | moved)
        return replace(self, left=left, right=right, on=on), positions

    def filtered(self, terms: tuple[Expression, ...], push: Push) -> LogicalPlan:
        """Of the condition, what concerns one side alone goes below that side, unless its rows are kept without a
        partner too. Of the terms above, what concerns one side alone goes below, unless that side may be NULL; what
        concerns both joins the condition where no row is kept without a partner. What an OR over both implies about one
        goes below in the same way, beside the OR."""
        width = len(self.left.schema)
        of_right = range(width, width + len(self.right.schema))
        low_left: list[Expression] = []
        low_right: list[Expression] = []
        on: list[Expression] = []
        above: list[Expression] = []
        for term in self.terms:
            side = _side_of(term, width)
            if side is _Side.LEFT and not self.kind.keeps_left:
                low_left.append(term)
            elif side is _Side.RIGHT and not self.kind.keeps_right:
                low_right.append(term)
            else:
                on.append(term)
                low_left += () if self.kind.keeps_left else implied_terms(term, range(width))
                low_right += () if self.kind.keeps_right else implied_terms(term, of_right)
        for term in terms:
            side = _side_of(term, width)
            if side is _Side.LEFT and not self.kind.keeps_right:
                low_left.append(term)
            elif side is _Side.RIGHT and not self.kind.keeps_left:
                low_right.append(term)
            else:
                kept = on if side is _Side.BOTH and self.kind is JoinKind.INNER else above
                kept.append(term)
                low_left += () if self.kind.keeps_right else implied_terms(term, range(width))
                low_right += () if self.kind.keeps_left else implied_terms(term, of_right)
        on = list(dict.fromkeys(on))
        moved = {width + column: column for column in range(len(self.right.schema))}
        left = push(self.left, tuple(dict.fromkeys(low_left)))
        right = push(self.right, tuple(remap(term, moved) for term in dict.fromkeys(low_right)))
        if left is self.left and right is self.right and tuple(on) == self.terms:
            return where(self, tuple(above))
        condition = conjunction(tuple(on)) if on else None
        return where(replace(self, left=left, right=right, on=condition), tuple(above))

    def keyed(self, is_needed: bool, add: AddKeys) -> LogicalPlan:
        """With the keys of both sides, whoever needs them. What that appends to the left one comes after all
        columns."""
        left, right = (self._identified(add(child, True)) for child in self.inputs)
        width, more = len(self.left.schema), len(left.schema) - len(self.left.schema)
        if self.is_keyed and not more:
            return self.over((left, right))
        moved = {width + column: width + more + column for column in range(len(self.right.schema))}
        on = None if self.on is None else remap(self.on, dict(enumerate(range(width))) | moved)
        join = Join(left, right, self.kind, on, self.is_temporal, self.is_delta, is_keyed=True)
        if not self.kind.has_pairs:
            return join
        return only(join, [*range(width), *range(width + more, len(join.schema)), *range(width, width + more)])

    def _identified(self, side: LogicalPlan) -> LogicalPlan:
        """An input with a column without NULL, if its absence must be seen."""
        if self.kind is not JoinKind.FULL or side.stream_key is None or _presence(side.properties) is not None:
            return side
        columns = input_refs(side.schema.types)
        names = (*side.schema.names, hidden_name(PRESENT, side.schema.names))
        return Project(side, (*columns, Literal(True, DataType.BOOLEAN)), names, side.hidden | {len(columns)})


PRESENT = "_present"


class _Side(Enum):
    """The inputs whose columns a term has."""

    NEITHER = auto()
    LEFT = auto()
    RIGHT = auto()
    BOTH = auto()


def _side_of(term: Expression, width: int) -> _Side:
    columns = input_columns(term)
    if not columns:
        return _Side.NEITHER
    if max(columns) < width:
        return _Side.LEFT
    return _Side.RIGHT if min(columns) >= width else _Side.BOTH


def _presence(side: Properties) -> int | None:
    """A column without NULL, one of the key if possible; None if none is known."""
    in_key = [column for column in side.stream_key or () if column in side.not_null]
    return min(in_key or side.not_null, default=None)


def _moved(columns: Iterable[int], by: int) -> frozenset[int]:
    return frozenset(by + column for column in columns)


def _columns(expressions: Iterable[Expression]) -> list[int]:
    """All columns of the expressions, each once."""
    return list(dict.fromkeys(column for each in expressions for column in sorted(input_columns(each))))


def _known(columns: Iterable[int | None]) -> frozenset[int]:
    return frozenset(column for column in columns if column is not None)
