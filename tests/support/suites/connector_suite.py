"""ConnectorSuite: what every connector promises, checked over one whose splits end.

A subclass gives `connector`, a fixture that returns a function that opens the connector anew, and `schema`. The rows of
a split are what a first pass over it returns. Fixtures that a connector may add:

    add_split   a function that adds a split to the external stream, and returns its name
    malformed   (connector, split, rows, faults): a split with malformed records, the values of the others in order, and
                the column of each malformed record, None if there is none to name
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from relational.chunk import Op, StreamChunk
from relational.expr.comparisons import Comparison, Relation
from relational.types import Schema
from stream.connector import Connector, SplitReader, validated
from stream.connector.base import Start, StartKind, open_reader
from stream.errors import ConnectorError, InvalidOffset, MalformedRows
from tests.support.drivers.seeds import amount, run_seed

Change = tuple[int, tuple]
HOLDS = {Relation.EQUAL: operator.eq, Relation.LESS: operator.lt, Relation.LESS_EQUAL: operator.le,
         Relation.GREATER: operator.gt, Relation.GREATER_EQUAL: operator.ge}
LONG_AGO, FAR_AHEAD = datetime(1980, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
CHECKED_OFFSETS = amount(15, 60)


def read(reader: SplitReader, schema: Schema, rng: random.Random, most: int = 300) -> list[Change]:
    """All further changes, in chunks of random sizes; each chunk is checked."""
    changes: list[Change] = []
    while not reader.is_finished:
        max_rows = rng.randint(2, most)
        chunk = reader.next_chunk(max_rows)
        if chunk is not None:
            assert 0 < chunk.capacity <= max_rows
            changes += changes_of(validated(chunk, schema))
    assert reader.next_chunk(10) is None
    return changes


def changes_of(chunk: StreamChunk) -> list[Change]:
    ops = chunk.ops.tolist()
    for at, op in enumerate(ops):
        if op == Op.UPDATE_DELETE:
            assert ops[at + 1] == Op.UPDATE_INSERT, "an update pair is split"
    values = [column.array.to_pylist() for column in chunk.columns]
    rows = zip(*values, strict=True) if values else [()] * len(ops)
    return list(zip(ops, rows, strict=True))


def comparisons(schema: Schema, rows: Sequence[tuple], rng: random.Random) -> list[Comparison]:
    """One to three comparisons with values that occur."""
    found = []
    for _ in range(rng.randint(1, 3)):
        column = rng.randrange(len(schema))
        value = rng.choice([row[column] for row in rows] or [None])
        if value is not None and value == value:
            found.append(Comparison(column, rng.choice(list(Relation)), value, schema.types[column]))
    return found


class ConnectorSuite:
    @pytest.fixture
    def connector(self) -> Callable[[], Connector]:
        raise NotImplementedError

    @pytest.fixture
    def schema(self) -> Schema:
        raise NotImplementedError

    @pytest.fixture
    def add_split(self) -> Callable[[], str] | None:
        return None

    @pytest.fixture
    def malformed(self) -> tuple[Connector, str, list[tuple], list[str | None]] | None:
        return None

    @staticmethod
    def all_columns(schema: Schema) -> Sequence[int]:
        return range(len(schema))

    def test_splits_are_listed_in_a_stable_order(self, connector):
        splits = list(connector().enumerator().list_splits())
        assert splits and len(set(splits)) == len(splits)
        assert list(connector().enumerator().list_splits()) == splits

    def test_the_same_offset_always_leads_to_the_same_rows(self, connector, schema):
        rng = random.Random(17)
        for split in connector().enumerator().list_splits():
            first = connector().open_split(split, self.all_columns(schema))
            expected = read(first, schema, rng)
            first.close()
            for _ in range(amount(5, 12)):
                reader = connector().open_split(split, self.all_columns(schema))
                seen: list[Change] = []
                wanted = rng.randint(0, len(expected))
                while len(seen) < wanted and not reader.is_finished:
                    chunk = reader.next_chunk(rng.randint(2, 500))
                    seen += [] if chunk is None else changes_of(chunk)
                offset = reader.offset
                assert isinstance(offset, str)
                reader.close()
                again = connector().open_split(split, self.all_columns(schema))
                again.seek(offset)
                assert again.offset == offset
                assert seen + read(again, schema, rng) == expected
                end = again.offset
                again.seek(offset)
                assert seen + read(again, schema, rng) == expected and again.offset == end
                again.close()

    def test_the_offset_after_every_chunk_is_exact(self, connector, schema):
        rng = random.Random(run_seed())
        for split in connector().enumerator().list_splits():
            opened = connector()
            reader = opened.open_split(split, self.all_columns(schema))
            seen, marks = [], [(reader.offset, 0)]
            while not reader.is_finished:
                chunk = reader.next_chunk(rng.randint(2, 40))
                seen += [] if chunk is None else changes_of(chunk)
                marks.append((reader.offset, len(seen)))
            reader.close()
            for offset, count in rng.sample(marks, min(len(marks), CHECKED_OFFSETS)):
                again = opened.open_split(split, self.all_columns(schema))
                again.seek(offset)
                assert read(again, schema, rng, 2_000) == seen[count:], offset
                again.close()

    def test_a_reader_delivers_the_columns_of_the_request_in_its_order(self, connector, schema):
        rng = random.Random(23)
        split = connector().enumerator().list_splits()[0]
        whole = read(connector().open_split(split, self.all_columns(schema)), schema, rng)
        for count in (0, *(rng.randint(1, len(schema)) for _ in range(8))):
            columns = rng.sample(range(len(schema)), count)
            reader = connector().open_split(split, columns)
            assert read(reader, schema.project(columns), rng) == [
                (op, tuple(row[column] for column in columns)) for op, row in whole]
            reader.close()

    def test_filters_leave_out_only_rows_that_do_not_pass_them(self, connector, schema):
        rng = random.Random(run_seed())
        for split in connector().enumerator().list_splits():
            whole = read(connector().open_split(split, self.all_columns(schema)), schema, rng)
            for _ in range(10):
                terms = comparisons(schema, [row for _, row in whole], rng)
                columns = rng.sample(range(len(schema)), rng.randint(1, len(schema)))
                opened = connector()
                reader = open_reader(opened, split, columns, terms)
                found, marks = [], [(reader.offset, 0)]
                while not reader.is_finished:
                    chunk = reader.next_chunk(rng.randint(2, 400))
                    found += [] if chunk is None else changes_of(chunk)
                    marks.append((reader.offset, len(found)))
                passing = [(op, tuple(row[column] for column in columns)) for op, row in whole
                           if all(self.passes(row[term.column], term) for term in terms)]
                rest = iter(found)
                assert all(change in rest for change in passing), terms
                offset, count = rng.choice(marks)
                reader.seek(offset)
                assert read(reader, schema.project(columns), rng) == found[count:]
                reader.close()

    @staticmethod
    def passes(value: Any, term: Comparison) -> bool:
        return value is not None and HOLDS[term.relation](value, term.value)

    def test_a_reader_begins_where_its_start_says(self, connector, schema):
        rng = random.Random(run_seed())
        for split in connector().enumerator().list_splits():
            for kind in connector().starts - {StartKind.EARLIEST}:
                reader = connector().open_split(split, self.all_columns(schema))
                reader.begin_at(Start(kind, FAR_AHEAD if kind is StartKind.MOMENT else None))
                offset = reader.offset
                assert reader.is_finished or reader.next_chunk(100) is None
                reader.seek(offset)
                assert reader.offset == offset
                reader.close()
            if StartKind.MOMENT in connector().starts:
                whole = read(connector().open_split(split, self.all_columns(schema)), schema, rng)
                reader = connector().open_split(split, self.all_columns(schema))
                reader.begin_at(Start(StartKind.MOMENT, LONG_AGO))
                assert read(reader, schema, rng) == whole
                reader.close()

    def test_splits_that_are_added_are_listed_and_the_others_stay(self, connector, schema, add_split):
        if add_split is None:
            return
        enumerator = connector().enumerator()
        before = list(enumerator.list_splits())
        read_before = [read(connector().open_split(split, self.all_columns(schema)), schema, random.Random(1))
                       for split in before]
        added = add_split()
        after = list(enumerator.list_splits())
        assert added not in before and sorted(after) == sorted([*before, added])
        assert [split for split in after if split != added] == before
        assert read(connector().open_split(added, self.all_columns(schema)), schema, random.Random(1))
        for split, changes in zip(before, read_before, strict=True):
            assert read(connector().open_split(split, self.all_columns(schema)), schema, random.Random(2)) == changes

    def test_a_malformed_record_is_one_error_and_the_others_are_delivered(self, malformed, schema):
        if malformed is None:
            return
        opened, split, rows, faults = malformed
        rng = random.Random(run_seed())
        for most in (2, 7, 1_000):
            reader = opened.open_split(split, self.all_columns(schema))
            events: list[tuple] = []
            marks = []
            while not reader.is_finished:
                marks.append((reader.offset, len(events)))
                events += self.next_events(reader, rng.randint(1, most) if most < 1_000 else most)
            assert [event for event in events if isinstance(event, tuple)] == rows
            errors = [event for event in events if isinstance(event, MalformedRows)]
            assert [error.column for error in errors] == faults
            assert all(error.split == split and split in str(error) for error in errors)
            for offset, count in rng.sample(marks, min(len(marks), CHECKED_OFFSETS)):
                reader.seek(offset)
                rest: list[tuple] = []
                while not reader.is_finished:
                    rest += self.next_events(reader, 1_000)
                assert list(map(str, rest)) == list(map(str, events[count:]))
            reader.close()

    @staticmethod
    def next_events(reader: SplitReader, max_rows: int) -> list:
        try:
            chunk = reader.next_chunk(max_rows)
        except MalformedRows as error:
            return [error]
        return [] if chunk is None else [row for _, row in changes_of(chunk)]

    def test_promises_about_changes_are_kept(self, connector, schema):
        opened = connector()
        for split in opened.enumerator().list_splits():
            changes = read(opened.open_split(split, self.all_columns(schema)), schema, random.Random(1))
            if opened.is_append_only:
                assert {op for op, _ in changes} <= {Op.INSERT}

    def test_a_reader_is_closed_at_any_time_and_twice(self, connector, schema):
        split = connector().enumerator().list_splits()[0]
        for chunks in (0, 1):
            reader = connector().open_split(split, self.all_columns(schema))
            for _ in range(chunks):
                reader.next_chunk(2)
            reader.close()
            reader.close()

    def test_offsets_of_others_and_unknown_splits_are_refused(self, connector, schema):
        split = connector().enumerator().list_splits()[0]
        for offset in ("", "not an offset", "-1", "1:2:3:4", "99999999999999"):
            with pytest.raises(InvalidOffset, match="cannot seek"):
                connector().open_split(split, self.all_columns(schema)).seek(offset)
        with pytest.raises(ConnectorError):
            connector().open_split("no such split", self.all_columns(schema))
