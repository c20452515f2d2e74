"""DuckDB's answer to each flights view over the first `offset` changes of the year.

The state of a flight after `offset` changes is computed from the phases alone, without the connector's chunks; DuckDB
then evaluates the SQL of the view on those rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stream.examples.flights.connector import ARRIVED, CANCELLED, DEPARTED, SCHEDULED, SCHEMA, Year
from stream.examples.flights.views import VIEWS

LAST_STATUS = pa.array(["scheduled", "departed", "arrived", "diverted"])
DEPARTURE, ARRIVAL = ("departed", "dep_delay"), ("arrived", "arr_delay", "air_time")


def state_after(year: Year, offset: int) -> pa.Table:
    """The rows of the table after `offset` changes."""
    happened = {phase: np.zeros(len(year.is_diverted), dtype=bool) for phase in range(4)}
    flight, phase = year.flight[:offset], year.phase[:offset]
    for number, flags in happened.items():
        flags[flight[phase == number]] = True
    live = happened[SCHEDULED] & ~happened[CANCELLED]
    progress = happened[DEPARTED].astype(int) + happened[ARRIVED]
    status = LAST_STATUS.take(pa.array(progress + (happened[ARRIVED] & year.is_diverted)))
    columns = {name: status if name == "status" else year.columns[name] for name in SCHEMA.names}
    for names, moment in ((DEPARTURE, DEPARTED), (ARRIVAL, ARRIVED)):
        for name in names:
            columns[name] = pc.if_else(pa.array(happened[moment]), columns[name], None)
    return pa.table(columns).filter(pa.array(live))


def expected_views(year: Year, offset: int) -> dict[str, pa.Table]:
    """View name -> rows that DuckDB computes."""
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("flights", state_after(year, offset))
    return {name: connection.sql(sql).to_arrow_table() for name, sql in VIEWS.items()}


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Sorted rows in a form that both engines share: numbers to 6 decimals, instants in UTC seconds."""
    return sorted((tuple(comparable(row)) for row in zip(*table.to_pydict().values(), strict=True)), key=repr)


def comparable(row: tuple[Any, ...]) -> Iterator[Any]:
    for value in row:
        if isinstance(value, int | float | Decimal):
            yield f"{float(value):.6f}"
        elif hasattr(value, "astimezone"):
            yield value.timestamp()
        else:
            yield value
