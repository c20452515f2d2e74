"""Arrow streams of this process as sources: the suite of connectors, what is held and for how long, what is lost."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

import stream
from relational.types import Schema
from stream.connector.arrow_streams import ArrowStreamConnector, arrow_source, batches_of
from stream.errors import ConnectorError, InvalidOffset
from tests.support.drivers.waiting import eventually
from tests.support.suites.connector_suite import ConnectorSuite

SCHEMA = Schema.of(id="bigint", name="varchar")


def batch(first, rows=10):
    ids = range(first, first + rows)
    return pa.record_batch({"name": [f"n{each}" for each in ids], "id": pa.array(ids, pa.int32())})


def connector():
    return ArrowStreamConnector({"name": "s"}, SCHEMA)


class Fed:
    """An endless iterator that tests feed."""

    def __init__(self):
        self.batches, self.changed, self.taken, self.is_over = [], threading.Condition(), 0, False

    def add(self, *batches):
        with self.changed:
            self.batches += batches
            self.changed.notify_all()

    def end(self):
        with self.changed:
            self.is_over = True
            self.changed.notify_all()

    def __iter__(self):
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.batches or self.is_over)
                if not self.batches:
                    return
                found = self.batches.pop(0)
                self.taken += 1
            yield found


class TestArrowStream(ConnectorSuite):
    @pytest.fixture
    def schema(self):
        return SCHEMA

    @pytest.fixture
    def connector(self):
        with arrow_source("s", [batch(0), batch(10, 500), batch(510, 0), batch(510, 1)]):
            reader = connector().open_split("all", range(len(SCHEMA)))
            eventually(lambda: reader._stream.has_ended_at(3))  # else more may come after a reader has begun at the end
            reader.close()
            yield connector


def delivered(reader, rows):
    """The ids of so many rows."""
    found = []
    while len(found) < rows:
        chunk = reader.next_chunk(min(7, rows - len(found)))
        found += [] if chunk is None else chunk.columns[0].array.to_pylist()
    return found


@pytest.mark.parametrize("source", [
    batch(0), pa.table(batch(0)), pa.RecordBatchReader.from_batches(batch(0).schema, [batch(0, 4), batch(4, 6)]),
    [batch(0, 4), pa.table(batch(4, 6))], (each for each in [batch(0)]), [batch(0, 5).to_struct_array(), batch(5, 5)],
])
def test_kinds_of_sources(source):
    assert [each for found in batches_of(source) for each in found["id"].to_pylist()] == list(range(10))


@pytest.mark.parametrize("source", [5, [1, 2], [{"id": 1}], "text"])
def test_other_objects_are_refused(source):
    with pytest.raises(TypeError, match=r"stream of record batches|in a stream"):
        list(batches_of(source))


def test_nothing_is_read_before_a_job_reads_it_and_then_no_more_than_the_buffer_holds():
    fed = Fed()
    fed.add(*(batch(10 * number) for number in range(20)))
    with arrow_source("s", fed, buffer_bytes=3 * batch(0).nbytes):
        assert fed.taken == 0
        reader = connector().open_split("all", (0,))
        assert delivered(reader, 30) == list(range(30))
        eventually(lambda: reader.needs_commit)
        assert reader.next_chunk(10) is None and fed.taken <= 4
        reader.committed(reader.offset)
        assert delivered(reader, 30) == list(range(30, 60))
        assert fed.taken <= 7


def test_a_batch_is_held_for_the_slowest_open_reader():
    fed = Fed()
    fed.add(*(batch(10 * number) for number in range(4)))
    with arrow_source("s", fed) as source:
        fast, slow = connector().open_split("all", (0,)), connector().open_split("all", (0,))
        begin = slow.offset
        delivered(fast, 40)
        fast.committed(fast.offset)
        assert source.first == 0
        assert delivered(slow, 25) == list(range(25))
        middle = slow.offset
        slow.committed(middle)
        assert source.first == 2
        delivered(slow, 15)
        slow.seek(middle)
        assert delivered(slow, 15) == list(range(25, 40))
        with pytest.raises(InvalidOffset):
            slow.seek(begin)
        slow.close()
        fast.committed(fast.offset)
        assert source.first == 4
        late = connector().open_split("all", (0,))
        fed.add(batch(40))
        fed.end()
        assert delivered(late, 10) == list(range(40, 50))
        eventually(lambda: late.is_finished)
        assert not fast.is_finished


def test_a_stream_that_is_gone_is_followed_by_the_next_of_its_name():
    with arrow_source("s", [batch(0, 30)]):
        reader = connector().open_split("all", (0,))
        delivered(reader, 12)
        offset = reader.offset
    with pytest.raises(ConnectorError, match="'s' was closed"):
        reader.next_chunk(5)
    with pytest.raises(ConnectorError, match="this process has no stream 's'"):
        connector()
    with arrow_source("s", [batch(100, 5)]):
        again = connector().open_split("all", (0,))
        again.seek(offset)
        assert delivered(again, 5) == list(range(100, 105))


def test_a_name_is_that_of_one_stream():
    with arrow_source("s", []), pytest.raises(ConnectorError, match="registered already"):
        arrow_source("s", [])


def test_errors_of_the_stream_come_after_its_rows():
    def failing():
        yield batch(0)
        raise RuntimeError("the sensor is off")

    with arrow_source("s", failing()):
        reader = connector().open_split("all", (0,))
        assert delivered(reader, 10) == list(range(10))
        with pytest.raises(ConnectorError, match="ended with an error: RuntimeError"):
            eventually(lambda: reader.next_chunk(5) is not None)
        assert not reader.is_finished


def test_batches_without_a_column_or_of_another_type_are_refused():
    for given, fault in ((pa.record_batch({"x": [1]}), "has no column 'id'; it has x"),
                         (pa.record_batch({"id": ["a"]}), "column 'id' of 's' is string, not BIGINT")):
        with arrow_source("s", [given]):
            reader = connector().open_split("all", (0,))
            with pytest.raises(ConnectorError, match=fault):
                eventually(lambda reader=reader: reader.next_chunk(5) is not None)


def connected(directory, **options):
    return stream.connect(f"file://{directory}", create=True,
            **{"barrier_interval_ms": 20, "recovery_backoff_ms": 1, **options})


def test_views_read_a_stream_each_for_itself_and_free_it_by_their_commits(tmp_path):
    fed = Fed()
    with arrow_source("s", fed, buffer_bytes=200_000) as source, connected(tmp_path) as db:
        db.sql("CREATE SOURCE s (id BIGINT, name VARCHAR) WITH (connector = 'arrow_stream', name = 's')")
        db.sql("CREATE SINK a AS SELECT id FROM s WITH (connector = 'digest')")
        db.sql("CREATE SINK b AS SELECT name FROM s WITH (connector = 'blackhole')")
        for number in range(100):
            fed.add(batch(1_000 * number, 1_000))
        for name in "ab":
            eventually(lambda name=name: db.sql(f"SELECT inserted FROM {name}").rows() == [{"inserted": 100_000}])
        eventually(lambda: source.first == 100)
        db.sql("CREATE SINK latest AS SELECT id FROM s WITH (connector = 'blackhole')")
        fed.add(batch(0, 5))
        eventually(lambda: db.sql("SELECT inserted FROM latest").rows() == [{"inserted": 5}])
        fed.end()


def test_a_recovery_loses_nothing_and_a_new_process_what_was_not_committed(tmp_path):
    fed = Fed()
    with arrow_source("s", fed) as source:
        db = connected(tmp_path)
        db.sql("CREATE SOURCE s (id BIGINT, name VARCHAR) WITH (connector = 'arrow_stream', name = 's')")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n, sum(id) AS total FROM s")
        for number in range(50):
            fed.add(batch(100 * number, 100))
            if number % 10 == 9:
                db._playground.meta.fail(RuntimeError("a recovery"))
        eventually(lambda: db.sql("SELECT n FROM v").rows() == [{"n": 5_000}])
        assert int(db.sql("SELECT total FROM v").rows()[0]["total"]) == sum(range(5_000))
        db.flush()
        eventually(lambda: source.first == 50)
        db.close()
    with connected(tmp_path) as db:
        eventually(lambda: [row["state"] for row in db.sql("SHOW JOBS").to_pylist()] == ["FAILED"])
        with arrow_source("s", [batch(0, 7)]):
            db.sql("ALTER MATERIALIZED VIEW v RESUME")
            eventually(lambda: db.sql("SELECT n FROM v").rows() == [{"n": 5_007}])
