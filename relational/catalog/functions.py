"""FunctionCatalog: a user function as an object of a schema, and the changes of the catalog that concern it.

Functions have names of their own: a table may have the same one. A schema has one function of a name. The plans of
views, indexes and sinks hold the functions that they call, each in its version, so what needs a function is read from
them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hummock.base.json_fields import check_format
from hummock.meta.store.base import MetaOperations
from relational.catalog.names import PUBLIC, check_name
from relational.catalog.objects import TableCatalog
from relational.catalog.records import function_key, schema_key
from relational.errors import CatalogError, Duplicate, NotFound
from relational.udf.function import UserFunction, stored_functions

if TYPE_CHECKING:
    from relational.catalog.snapshot import CatalogSnapshot

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class FunctionCatalog:
    """The current version of a function, in the schema `schema_id`."""

    function: UserFunction
    schema_id: int = PUBLIC.id

    @property
    def id(self) -> int:
        return self.function.id

    @property
    def name(self) -> str:
        return self.function.name

    def to_json(self) -> dict[str, Any]:
        """A record for `from_json`."""
        return {"version": FORMAT_VERSION, "schema_id": self.schema_id, "function": self.function.to_json()}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> FunctionCatalog:
        """The record written by `to_json`. FormatTooNew."""
        check_format("the catalog of a function", record["version"], FORMAT_VERSION, FORMAT_VERSION)
        return cls(UserFunction.from_json(record["function"]), record["schema_id"])


def functions_of(table: TableCatalog) -> dict[int, str]:
    """The names of the user functions that the plan of a view, index or sink calls, by id."""
    return _functions_in(table.plan)


def running_functions(snapshot: CatalogSnapshot, table: TableCatalog) -> dict[int, str]:
    """As `functions_of`, with those of the stored plan by which a job runs."""
    record = snapshot.job_record(table.id)
    return functions_of(table) | ({} if record is None else _functions_in(record.plan))


def _functions_in(plan: str) -> dict[int, str]:
    """Those of the text of a plan; of a text that is no JSON, which nothing can run, there are none."""
    try:
        return stored_functions(json.loads(plan)) if plan else {}
    except (ValueError, RecursionError):
        return {}


def callers(snapshot: CatalogSnapshot, function_id: int) -> tuple[TableCatalog, ...]:
    """The views, indexes and sinks whose plans call a function, in whatever version, by name."""
    return tuple(table for table in snapshot.list() if function_id in functions_of(table))


def next_version(
    snapshot: CatalogSnapshot, draft: FunctionCatalog, new_id: Callable[[], int], *, replaces: bool
) -> FunctionCatalog:
    """The draft as the next version of the function that has its name, if it `replaces` it, or else as the first one of
    a new function. Duplicate, CatalogError, NotFound."""
    check_name(draft.name, "a function")
    if draft.schema_id not in snapshot.schemas:
        raise NotFound(f"the schema of function {draft.name!r} was dropped meanwhile", name=draft.name)
    known = snapshot.find_function(draft.schema_id, draft.name)
    if known is None:
        return replace(draft, function=replace(draft.function, id=new_id(), version=1))
    if not replaces:
        raise Duplicate(f"there is already {known.function.kind.one} {draft.name!r}: CREATE OR REPLACE makes its next "
                        "version, which views that exist do not call", name=draft.name)
    if known.function.kind is not draft.function.kind:
        raise CatalogError(f"{draft.name!r} is {known.function.kind.one}, and is replaced by another one only",
                           name=draft.name)
    version = known.function.version + 1
    return replace(draft, function=replace(draft.function, id=known.id, version=version))


def put_function(snapshot: CatalogSnapshot, function: FunctionCatalog) -> MetaOperations:
    """Stores a version of a function."""
    key, schema = function_key(function.id), schema_key(function.schema_id)
    within = {} if function.schema_id == PUBLIC.id else {schema: snapshot.rows[schema]}
    value = json.dumps(function.to_json(), sort_keys=True).encode()
    return MetaOperations(require={key: snapshot.rows.get(key), **within}, put={key: value})


def delete_functions(snapshot: CatalogSnapshot, functions: tuple[FunctionCatalog, ...]) -> MetaOperations:
    """Deletes functions."""
    keys = [function_key(each.id) for each in functions]
    return MetaOperations(require={key: snapshot.rows[key] for key in keys}, delete=tuple(keys))
