"""Access paths: how the rows of a table are found that a query selects, or reads in an order.

Each path is a stored table, the table itself or one of its indexes, with the condition on its key that the predicate
has. The paths are compared by what of the key is fixed; sizes of tables are not known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from relational.batch.plan import BatchFilter, BatchIndexLookup, BatchNode, BatchProject, BatchScan, ScanOrder
from relational.catalog.objects import TableCatalog
from relational.expr.expression import Expression, conjunction, conjuncts, input_columns, input_refs, remap
from relational.expr.key_condition import KeyCondition, key_condition, most_combinations, narrowed
from relational.plan.logical import Scan, table_schema
from relational.types.ordering import OrderType, SortKey

Indexes = Callable[[int], Sequence[TableCatalog]]
"""The complete indexes of a table, by its id."""
MANY_LOOKUPS = 10_000
"""Rows found in an index from which on the whole table is read instead."""


def no_indexes(table_id: int) -> Sequence[TableCatalog]:
    """Of a table without indexes."""
    return ()


@dataclass(frozen=True, slots=True)
class AccessPath:
    """`table` has the columns `columns` of its own at the positions of the scan's, None where it lacks one. `rest`:
    terms over the scan that `keys` does not imply."""

    table: TableCatalog
    columns: tuple[int | None, ...]
    keys: KeyCondition | None
    rest: tuple[Expression, ...]
    order: ScanOrder | None
    is_index: bool

    @property
    def is_covering(self) -> bool:
        return None not in self.columns

    @property
    def rank(self) -> tuple[bool, bool, int, bool, bool, bool, bool]:
        """Higher for a better path."""
        width = 0 if self.keys is None else self.keys.width
        has_bounds = self.keys is not None and bool(self.keys.bounds)
        pk = self.table.pk_indices
        is_point = 0 < width == len(pk)
        is_in_one_vnode = width > 0 and set(self.table.distribution_key) <= set(pk[:width])
        return is_point, is_in_one_vnode, width, has_bounds, self.order is not None, self.is_covering, not self.is_index


def access(
    scan: Scan,
    predicate: Expression | None,
    indexes: Indexes = no_indexes,
    *,
    order: Sequence[SortKey] = (),
    limit: int | None = None,
) -> tuple[BatchNode, bool]:
    """The rows of `scan` for which `predicate` is true, and whether they are in `order`. `limit`: of rows that are
    needed."""
    terms = () if predicate is None else conjuncts(predicate)
    own = _path(scan, scan.table, scan.columns, terms, order)
    paths = [own]
    for index in indexes(scan.table.id) if (terms or order) and scan.epoch is None else ():  # it may be younger
        path = _path(scan, index, _columns_in(index, scan), terms, order)
        is_short = limit is not None and limit <= MANY_LOOKUPS and not path.rest
        if path.keys is not None or (path.order is not None and (path.is_covering or is_short)):
            paths.append(path)
    best = max(paths, key=lambda path: path.rank)
    most = limit if best.order is not None or not order else None
    if best.is_covering:
        return _scanned(scan, best, most), best.order is not None
    is_short = most is not None and most <= MANY_LOOKUPS and not best.rest
    return _looked_up(scan, best, own, most if is_short else None), best.order is not None and is_short


def _path(
    scan: Scan,
    table: TableCatalog,
    columns: Sequence[int | None],
    terms: tuple[Expression, ...],
    order: Sequence[SortKey],
) -> AccessPath:
    """The path of a stored table that has the columns of the scan at `columns` of its own."""
    pk = table.pk_indices
    positions = [columns.index(column) if column in columns else None for column in pk]
    types = [table.columns[column].data_type for column in pk]

    def most(width: int) -> int:
        return most_combinations(width, pk, table.distribution_key, table.vnode_count)

    keys, rest = key_condition(terms, positions, types, most) if terms and pk else (None, terms)
    fixed = 0 if keys is None else sum(len(alternatives) == 1 for alternatives in keys.equal)
    is_single = keys is None or fixed == keys.width
    along = _order_along(table, positions, fixed, order) if order and is_single else None
    return AccessPath(table, tuple(columns), keys, rest, along, table is not scan.table)


def _order_along(
    table: TableCatalog, positions: Sequence[int | None], fixed: int, order: Sequence[SortKey]
) -> ScanOrder | None:
    """Whether rows in the order of the key, whose first `fixed` columns have one value each, are in an `order` of
    positions of the scan."""
    constants = set(positions[:fixed])
    wanted = [key for key in order if key.column not in constants]
    if len(wanted) > len(positions) - fixed:
        return None
    pairs = list(zip(wanted, positions[fixed:], table.pk[fixed:], strict=False))
    if any(key.column != position for key, position, _ in pairs):
        return None
    if all(key.order == stored.order for key, _, stored in pairs):
        return ScanOrder.FORWARD
    if all(key.order == _reversed(stored.order) for key, _, stored in pairs):
        return ScanOrder.REVERSE
    return None


def _reversed(order: OrderType) -> OrderType:
    return OrderType(not order.descending, not order.nulls_first)


def _scanned(scan: Scan, path: AccessPath, limit: int | None) -> BatchNode:
    columns = tuple(column for column in path.columns if column is not None)
    most = None if path.rest else limit
    node: BatchNode = BatchScan(scan.schema, path.table, columns, most, path.keys, path.order, scan.epoch)
    return BatchFilter(scan.schema, node, conjunction(list(map(narrowed, path.rest)))) if path.rest else node


def _looked_up(scan: Scan, path: AccessPath, own: AccessPath, limit: int | None) -> BatchNode:
    """The rows whose keys an index has that lacks some of the columns; `limit`: of a path that implies all terms."""
    table, index = scan.table, path.table
    found = [_column_of(index, table.columns[column].name) for column in table.pk_indices]
    key = tuple(column for column in found if column is not None)
    assert len(key) == len(found), index
    known = {position: column for position, column in enumerate(path.columns) if column is not None}
    terms = [term for term in path.rest if input_columns(term) <= known.keys()]
    added = sorted({known[position] for term in terms for position in input_columns(term)} - set(key))
    read = (*key, *added)
    node: BatchNode = BatchScan(table_schema(index, read), index, read, limit, path.keys, path.order)
    if terms:
        moved = {position: read.index(known[position]) for term in terms for position in input_columns(term)}
        node = BatchFilter(node.schema, node, conjunction([remap(term, moved) for term in terms]))
    if added:
        schema = node.schema.project(range(len(key)))
        node = BatchProject(schema, node, input_refs(schema.types))
    if limit is not None:
        return BatchIndexLookup(scan.schema, node, table, scan.columns, None)
    otherwise = BatchScan(scan.schema, table, scan.columns, None, own.keys)
    looked_up = BatchIndexLookup(scan.schema, node, table, scan.columns, otherwise)
    return BatchFilter(scan.schema, looked_up, conjunction(own.rest)) if own.rest else looked_up


def _columns_in(index: TableCatalog, scan: Scan) -> tuple[int | None, ...]:
    """The column of an index that each column of the scan is."""
    return tuple(_column_of(index, scan.table.columns[column].name) for column in scan.columns)


def _column_of(table: TableCatalog, name: str) -> int | None:
    return next((at for at, column in enumerate(table.columns) if column.name == name), None)
