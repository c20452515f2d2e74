"""BindContext: the environment in which a statement is bound: the catalog, and the value of now()."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from relational.catalog.functions import FunctionCatalog
from relational.catalog.names import DEFAULT_DATABASE, ObjectName, SchemaCatalog
from relational.catalog.objects import TableCatalog
from relational.catalog.snapshot import CatalogSnapshot
from relational.plan.logical import LogicalPlan
from relational.sql.parameters import Parameters
from relational.sql.settings import is_true_by_default
from relational.types.row_source import RowSource


class CatalogReader(Protocol):
    """Resolution of names; `CatalogManager` is one. A plain string is a name in the schema `public`."""

    @property
    def snapshot(self) -> CatalogSnapshot:
        """The current snapshot."""

    def resolve(self, name: str | ObjectName) -> TableCatalog:
        """The table, view or index of a name; NotFound."""

    def find(self, name: str | ObjectName) -> TableCatalog | None:
        """As `resolve`, but None if there is none."""

    def resolve_schema(self, name: str, database: str = DEFAULT_DATABASE) -> SchemaCatalog:
        """The schema of a name; NotFound."""

    def get(self, table_id: int) -> TableCatalog:
        """The object with this id; NotFound."""

    def find_function(self, name: ObjectName) -> FunctionCatalog | None:
        """The user function of a name, or None. FunctionsNotAllowed."""

    def open_rows(self, form: str, location: str, options: Mapping[str, str]) -> RowSource:
        """The rows of files that a query names. CatalogError, or the errors of what opens them."""

    def check_functions(self, tables: Iterable[TableCatalog]) -> None:
        """FunctionsNotAllowed if the plan of a view calls a function that may not run."""


class VariableRows(NamedTuple):
    """The rows of a variable of the program that executes a statement, and the ids of the views inlined in them."""

    plan: LogicalPlan
    views: frozenset[int] = frozenset()


FindVariable = Callable[[str], VariableRows | None]
"""The rows of the variable of a name, None if there is none that has rows. BindError for rows that no type holds."""


def no_variables(name: str) -> None:
    """A FindVariable: the program has none, or none that a statement may read."""


@dataclass(frozen=True, slots=True)
class BindContext:
    """`now` is the time of the statement; None if an expression outlives it, as in a view: now() is rejected."""

    catalog: CatalogReader
    now: datetime | None = None
    parameters: Parameters | None = None
    """Of queries and data changes; None: there may be none."""
    is_set: Callable[[str], bool] = is_true_by_default
    """Whether a setting of the session is true at this moment."""
    variables: FindVariable = no_variables
    """Of the program: relations of a FROM that the catalog does not have."""

    @property
    def functions(self) -> Callable[[ObjectName], FunctionCatalog | None]:
        """Finds a user function; FunctionsNotAllowed."""
        return self.catalog.find_function
