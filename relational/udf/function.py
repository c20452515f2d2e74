"""UserFunction: one version of a function that a user wrote in Python.

An expression holds the whole value, and so does a stored plan: a view goes on with the version that it was created
with [R34], and a task in another process needs no catalog.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from relational.types.data_type import DataType, Field

RECORD = "user_function"
"""The key of a stored plan's node under which it has the record of a function, and no other value."""
LANGUAGE = "python"
MOST_ARGUMENTS = 100
MOST_SOURCE_CHARACTERS = 1 << 20


class FunctionKind(StrEnum):
    """A value for each row; any number of rows for each row; a value for each group of rows."""

    SCALAR = "function"
    TABLE = "table function"
    AGGREGATE = "aggregate"

    @property
    def one(self) -> str:
        """A noun with its article, for messages."""
        return f"an {self}" if self is FunctionKind.AGGREGATE else f"a {self}"


class Volatility(StrEnum):
    """Whether equal arguments always have equal results, have them within a statement, or need not have them."""

    IMMUTABLE = "immutable"
    STABLE = "stable"
    VOLATILE = "volatile"


@dataclass(frozen=True, slots=True)
class UserFunction:
    """`source` is the text of a Python module, of which `handler` is called. `arguments`: names, which may be empty,
    and types. `returns`: the type of the result; of a table function that of one row, a STRUCT of several columns.
    `column`: the name of the only column of a table function; empty: its rows have no name of their own.

    `state`: of an aggregate whose source has the functions `accumulate` and `finish` instead of a handler, and if it
    `retracts` also `retract`: the type of the state of a group.

    `is_strict`: it is not called for rows with a NULL argument, whose result is NULL, or no row. `is_row_wise`: it is
    called with Python values, once for each row. `id` and `version`, from 1, are the catalog's; 0 before.
    """

    name: str
    arguments: tuple[Field, ...]
    returns: DataType
    source: str
    handler: str
    kind: FunctionKind = FunctionKind.SCALAR
    volatility: Volatility = Volatility.VOLATILE
    is_strict: bool = False
    is_row_wise: bool = False
    column: str = ""
    state: DataType | None = None
    retracts: bool = False
    id: int = 0
    version: int = 0

    @property
    def types(self) -> tuple[DataType, ...]:
        """Those of the arguments."""
        return tuple(each.data_type for each in self.arguments)

    @property
    def call_type(self) -> DataType:
        """The type of a call as an expression: that of a table function is the list of its rows."""
        return DataType.list_of(self.returns) if self.kind is FunctionKind.TABLE else self.returns

    @property
    def is_volatile(self) -> bool:
        """Whether each row of a statement may have another result."""
        return self.volatility not in (Volatility.IMMUTABLE, Volatility.STABLE)

    @property
    def signature(self) -> str:
        """`(a bigint, varchar)`"""
        return f"({', '.join(f'{each.name} {each.data_type}'.strip() for each in self.arguments)})"

    @property
    def result(self) -> str:
        """What follows RETURNS."""
        if self.kind is not FunctionKind.TABLE:
            return str(self.returns)
        if not self.column and not self.returns.fields:
            return f"SETOF {self.returns}"
        columns = self.returns.fields if not self.column else (Field(self.column, self.returns),)
        return f"TABLE ({', '.join(map(str, columns))})"

    def to_json(self) -> dict[str, Any]:
        """A record for `from_json`."""
        return {
            "name": self.name,
            "arguments": [[each.name, str(each.data_type)] for each in self.arguments],
            "returns": str(self.returns),
            "source": self.source,
            "handler": self.handler,
            "kind": self.kind.value,
            "volatility": self.volatility.value,
            "strict": self.is_strict,
            "row_wise": self.is_row_wise,
            "column": self.column,
            "state": None if self.state is None else str(self.state),
            "retracts": self.retracts,
            "id": self.id,
            "version": self.version,
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> UserFunction:
        """The function written by `to_json`."""
        return cls(
            record["name"],
            tuple(Field(name, DataType.parse(text)) for name, text in record["arguments"]),
            DataType.parse(record["returns"]),
            record["source"],
            record["handler"],
            FunctionKind(record["kind"]),
            Volatility(record["volatility"]),
            record["strict"],
            record["row_wise"],
            record["column"],
            None if record["state"] is None else DataType.parse(record["state"]),
            record["retracts"],
            record["id"],
            record["version"],
        )


def stored_functions(record: Any) -> dict[int, str]:
    """The names of the functions of a stored plan, by id, of its JSON value, which is not trusted: a function is found
    wherever it is, also where no reader of the plan looks, and -1 is the id of one that has none."""
    found: dict[int, str] = {}
    todo = [record]
    while todo:
        each = todo.pop()
        if isinstance(each, dict):
            if RECORD in each:
                function = each[RECORD] if isinstance(each[RECORD], dict) else {}
                number = function.get("id")
                found[number if isinstance(number, int) else -1] = str(function.get("name"))
            todo += each.values()
        elif isinstance(each, list):
            todo += each
    return found
