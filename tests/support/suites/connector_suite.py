"""ConnectorSuite: what every connector promises, checked over one whose splits end.

A subclass gives `connector`, a fixture that returns a function that opens the connector anew, and `schema`. The rows of
a split are what a first pass over it returns.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from relational.chunk import Op, StreamChunk
from relational.types import Schema
from stream.connector import Connector, SplitReader, validated
from stream.errors import ConnectorError, InvalidOffset

Change = tuple[int, tuple]


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
    rows = zip(*(column.array.to_pylist() for column in chunk.columns), strict=True)
    return list(zip(ops, rows, strict=True))


class ConnectorSuite:
    @pytest.fixture
    def connector(self) -> Callable[[], Connector]:
        raise NotImplementedError

    @pytest.fixture
    def schema(self) -> Schema:
        raise NotImplementedError

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
            for _ in range(12):
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

    def test_a_reader_delivers_the_columns_of_the_request_in_its_order(self, connector, schema):
        rng = random.Random(23)
        split = connector().enumerator().list_splits()[0]
        whole = read(connector().open_split(split, self.all_columns(schema)), schema, rng)
        for _ in range(8):
            columns = rng.sample(range(len(schema)), rng.randint(1, len(schema)))
            reader = connector().open_split(split, columns)
            assert read(reader, schema.project(columns), rng) == [
                (op, tuple(row[column] for column in columns)) for op, row in whole]
            reader.close()

    def test_promises_about_changes_are_kept(self, connector, schema):
        opened = connector()
        for split in opened.enumerator().list_splits():
            changes = read(opened.open_split(split, self.all_columns(schema)), schema, random.Random(1))
            if opened.is_append_only:
                assert {op for op, _ in changes} <= {Op.INSERT}

    def test_offsets_of_others_and_unknown_splits_are_refused(self, connector, schema):
        split = connector().enumerator().list_splits()[0]
        for offset in ("", "not an offset", "-1", "1:2:3:4", "99999999999999"):
            with pytest.raises(InvalidOffset, match="cannot seek"):
                connector().open_split(split, self.all_columns(schema)).seek(offset)
        with pytest.raises(ConnectorError):
            connector().open_split("no such split", self.all_columns(schema))
