"""CatalogManager: which tables and views exist, as rows of the meta store.

DDL is planned here and carried out elsewhere: `plan_create` and `plan_drop` return the operations,
which join the transaction that commits the epoch of the DDL, so that a table exists exactly if the
epoch that made it was committed. Reads answer from a snapshot in memory; `refresh` takes a new one, and
must be called after such a transaction.

Meta keys: `catalog/table/<id>` holds a catalog as JSON, `catalog/name/<quoted name>` the id of a table
or view, `catalog/next_id` the first id never given out. Ids are taken in a transaction of their own and
never come back, even if the DDL that asked for them fails. Thread safe.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from urllib.parse import quote

from hummock.errors import PreconditionFailed
from hummock.meta.store import MetaOperations, MetaStore
from relational.catalog.objects import TableCatalog, TableKind, offset_table_name
from relational.errors import CatalogError, DependencyError, Duplicate, NotFound

TABLE_PREFIX = "catalog/table/"
NAME_PREFIX = "catalog/name/"
NEXT_ID = "catalog/next_id"
FIRST_ID = 1
ID_ATTEMPTS = 16
MAX_NAME_CHARACTERS = 63


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """All catalogs of one moment by id, and the raw bytes they were read from."""

    tables: dict[int, TableCatalog] = field(default_factory=dict)
    rows: dict[int, bytes] = field(default_factory=dict)

    def named(self) -> Iterator[TableCatalog]:
        return (table for table in self.tables.values() if table.kind is not TableKind.INTERNAL)


class CatalogManager:
    """DDL over a meta store. Any process may open one; the transaction decides between two that disagree."""

    def __init__(self, meta_store: MetaStore):
        self._store = meta_store
        self._snapshot = _Snapshot()
        self.refresh()

    def refresh(self) -> None:
        """Read the catalog anew: what was committed before the call is seen after it."""
        rows = {int(key[len(TABLE_PREFIX) :]): value for key, value in self._store.list(TABLE_PREFIX)}
        known = self._snapshot
        tables = {
            number: known.tables[number]
            if known.rows.get(number) == row
            else TableCatalog.from_json(json.loads(row))
            for number, row in rows.items()
        }
        self._snapshot = _Snapshot(tables, rows)

    # ---- what exists ---------------------------------------------------------------------------------------

    def resolve(self, name: str) -> TableCatalog:
        """The table or view called `name`; NotFound with the nearest name there is."""
        snapshot = self._snapshot
        for table in snapshot.named():
            if table.name == name:
                return table
        near = get_close_matches(name, [table.name for table in snapshot.named()], n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise NotFound(f"there is no table or view {name!r}{hint}", name=name)

    def find(self, name: str) -> TableCatalog | None:
        """The table or view called `name`, or None."""
        return next((table for table in self._snapshot.named() if table.name == name), None)

    def get(self, table_id: int) -> TableCatalog:
        """The catalog of an id, internal tables included; NotFound if it was never committed or is
        dropped.
        """
        try:
            return self._snapshot.tables[table_id]
        except KeyError:
            raise NotFound(f"there is no table of id {table_id}", name=str(table_id)) from None

    def list(self, kind: TableKind | None = None) -> tuple[TableCatalog, ...]:
        """All tables and views by name, or all of one kind."""
        tables = self._snapshot.named() if kind is None else self._snapshot.tables.values()
        chosen = (table for table in tables if kind in (None, table.kind))
        return tuple(sorted(chosen, key=lambda table: table.name))

    def jobs(self) -> tuple[TableCatalog, ...]:
        """All tables and views, each after those it reads (ids ascend, and what is read is older)."""
        return tuple(sorted(self._snapshot.named(), key=lambda table: table.id))

    def internal_tables(self, job_id: int) -> tuple[TableCatalog, ...]:
        """The state tables of a table's or view's executors, by id."""
        tables = sorted(self._snapshot.tables.values(), key=lambda table: table.id)
        return tuple(t for t in tables if t.kind is TableKind.INTERNAL and job_id in t.dependencies)

    def offset_table(self, table: TableCatalog) -> TableCatalog:
        """Where the source of `table` keeps its offsets."""
        name = offset_table_name(table)
        return next(state for state in self.internal_tables(table.id) if state.name == name)

    def dependents(self, table_id: int) -> tuple[TableCatalog, ...]:
        """The views that read a table or view directly, by name."""
        return tuple(table for table in self.list() if table_id in table.dependencies)

    # ---- DDL ---------------------------------------------------------------------------------------------

    def allocate_ids(self, count: int) -> range:
        """`count` table ids that nobody had or will have. CatalogError after too many lost races."""
        for _ in range(ID_ATTEMPTS):
            before = self._store.get(NEXT_ID)
            first = FIRST_ID if before is None else int(before)
            try:
                self._store.transaction(
                    MetaOperations(require={NEXT_ID: before}, put={NEXT_ID: str(first + count).encode()})
                )
            except PreconditionFailed:
                continue
            return range(first, first + count)
        raise CatalogError(f"no table id after {ID_ATTEMPTS} attempts: others take them all the time")

    def plan_create(
        self, draft: TableCatalog, internals: Iterable[TableCatalog] = ()
    ) -> tuple[TableCatalog, MetaOperations]:
        """The table under its id (allocated if the draft's is 0) and what a transaction must do to create it.

        `internals` are the state tables of its job. Duplicate if the name is taken; NotFound if
        something it reads is gone. The transaction fails if either comes true in the meantime.
        """
        check_name(draft.name)
        taken = self.find(draft.name)
        if taken is not None:
            raise Duplicate(f"there is already a {taken.kind} {draft.name!r}", name=draft.name)
        table = draft if draft.id else draft.with_id(self.allocate_ids(1)[0])
        require: dict[str, bytes | None] = {name_key(table.name): None}
        for dependency in table.dependencies:
            self.get(dependency)
            require[table_key(dependency)] = self._snapshot.rows[dependency]
        put = {table_key(each.id): encode(each) for each in (table, *internals)}
        require |= dict.fromkeys(put)
        put[name_key(table.name)] = str(table.id).encode()
        return table, MetaOperations(require=require, put=put)

    def plan_drop(
        self, name: str, *, cascade: bool = False
    ) -> tuple[tuple[TableCatalog, ...], MetaOperations]:
        """The tables and views that go, dependents first, and the operations that drop them and their
        state tables.

        DependencyError naming the views that read it, unless `cascade`, which drops those too.
        """
        table = self.resolve(name)
        dropped = self._with_dependents(table)
        if len(dropped) > 1 and not cascade:
            names = [each.name for each in self.dependents(table.id)]
            raise DependencyError(
                f"{table.kind} {name!r} is read by {', '.join(names)}; DROP … CASCADE drops them too",
                name=name,
                dependents=names,
            )
        rows = self._snapshot.rows
        require: dict[str, bytes | None] = {}
        delete: list[str] = []
        for each in dropped:
            gone = (each.id, *(internal.id for internal in self.internal_tables(each.id)))
            require |= {table_key(number): rows[number] for number in gone}
            delete += [*map(table_key, gone), name_key(each.name)]
        return dropped, MetaOperations(require=require, delete=tuple(delete))

    def _with_dependents(self, table: TableCatalog) -> tuple[TableCatalog, ...]:
        """The object and all that reads it, directly or not, readers before what they read."""
        found = {table.id: table}
        waiting = [table]
        while waiting:
            for dependent in self.dependents(waiting.pop().id):
                if dependent.id not in found:
                    found[dependent.id] = dependent
                    waiting.append(dependent)
        return tuple(sorted(found.values(), key=lambda each: -each.id))

    def create(self, draft: TableCatalog, internals: Iterable[TableCatalog] = ()) -> TableCatalog:
        """Create in a transaction of its own."""
        table, operations = self.plan_create(draft, internals)
        self._store.transaction(operations)
        self.refresh()
        return table

    def drop(self, name: str, *, cascade: bool = False) -> tuple[TableCatalog, ...]:
        """Drop in a transaction of its own; what was dropped, dependents first."""
        dropped, operations = self.plan_drop(name, cascade=cascade)
        self._store.transaction(operations)
        self.refresh()
        return dropped


def table_key(table_id: int) -> str:
    """The meta key of a catalog."""
    return f"{TABLE_PREFIX}{table_id:010}"


def name_key(name: str) -> str:
    """The meta key that holds a name."""
    return NAME_PREFIX + quote(name, safe="")


def encode(table: TableCatalog) -> bytes:
    """The row of a catalog."""
    return json.dumps(table.to_json(), sort_keys=True).encode()


def check_name(name: str) -> None:
    """CatalogError unless `name` can name a table: 1 to 63 characters that can be printed."""
    if not 0 < len(name) <= MAX_NAME_CHARACTERS or not name.isprintable():
        raise CatalogError(f"{name!r} cannot name a table: 1 to {MAX_NAME_CHARACTERS} characters", name=name)
