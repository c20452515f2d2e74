"""Frames and streaming queries that insert into a table through the inbox, with two local slots."""

import datetime
import os
import random
import shutil
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import stream
from relational.errors import RequestRefused
from relational.inbox.records import ANSWERS, InboxAnswer, Outcome
from tests.simulation.child import KILLED
from tests.simulation.inbox_child import main
from tests.simulation.inbox_world import TABLE, VIEW, rows_of, stored
from tests.support.drivers.seeds import run_seed
from tests.support.drivers.spawned import Spawned

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
SCHEMA = "id long, v long"
ENDS_SECONDS = 60.0


@pytest.fixture(scope="module")
def hummock(spark):
    from relational.spark.source import register

    register(spark)
    return spark


class Pipeline:
    """Files of rows, and queries that insert them into table `t` of a store."""

    def __init__(self, spark, directory: Path):
        self.spark, self.files, self.checkpoint = spark, directory / "files", directory / "checkpoint"
        self.url, self.expected, self._made = f"file://{directory}/store", [], 0
        self._begun = time.time()
        self.files.mkdir()

    def session(self):
        return stream.connect(self.url, create=True, inbox_poll_ms=20)

    def created(self):
        session = self.session()
        session.sql(TABLE)
        session.sql(VIEW)
        return session

    def add(self, rows):
        """A file with so many rows of new ids. Spark reads files by their time, and those of one millisecond in any
        order: each is a second younger than the one before."""
        first = self._made * 10_000
        self._made += 1
        path = self.files / f"{self._made:05}.parquet"
        pq.write_table(rows_of(range(first, first + rows)), path)
        os.utime(path, times=(self._begun + self._made,) * 2)
        self.expected += range(first, first + rows)

    def writer(self, **options):
        files = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(self.files))
        return (files.writeStream.trigger(availableNow=True).options(**options)
                .option("checkpointLocation", str(self.checkpoint)))

    def run(self, **options):
        """A query over all files that its checkpoint does not have."""
        given = {"url": self.url, "table": "t", "writer": "files"} | options
        return self.writer(**given).format("hummock").start()

    def forget_last(self):
        """The query dies after its batch was inserted and before Spark records that: then it repeats the batch."""
        (last,) = sorted((self.checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))[-1:]
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


@pytest.fixture
def pipeline(hummock, tmp_path):
    return Pipeline(hummock, tmp_path)


def outcomes(session):
    rows = session._playground.meta_store.list(ANSWERS)
    return Counter(InboxAnswer.from_bytes(key, row).outcome for key, row in rows)


def failure(query):
    try:
        query.awaitTermination(120)
    except Exception as error:
        return str(error)
    raise AssertionError("the query did not fail")


@pytest.mark.parametrize("turns", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_a_query_that_is_started_again_and_again_writes_each_row_once(pipeline, turns):
    rng = random.Random(f"restarts {run_seed()}")
    with pipeline.created() as session:
        for turn in range(turns):
            for _ in range(rng.randrange(1, 4)):
                pipeline.add(rng.randrange(1, 60))
            pipeline.run().awaitTermination(120)
            assert stored(session) == pipeline.expected
            if turn % 5 in (1, 3):
                pipeline.forget_last()
        assert outcomes(session)[Outcome.REPEATED] == 2 * turns // 5


def test_a_query_goes_on_while_its_session_is_killed_at_the_commit_and_started_again(pipeline):
    rng = random.Random(f"kills {run_seed()}")
    pipeline.created().close()
    for _ in range(6):
        pipeline.add(rng.randrange(1, 60))
    query = pipeline.run()
    codes = [Spawned(main, pipeline.url, point, nth).ended(ENDS_SECONDS) for point, nth in
             (("commit", 1), ("committed", 1), ("transaction:before", 2), ("notify", 2), ("sync", 1))]
    server = Spawned(main, pipeline.url, "none", 0)
    query.awaitTermination(120)
    server.finish()
    assert query.exception() is None and codes == [KILLED] * 5 and server.ended(ENDS_SECONDS) == 0
    with pipeline.session() as session:
        assert stored(session) == pipeline.expected


def test_a_deleted_checkpoint_is_refused_with_advice_and_another_writer_begins_anew(pipeline):
    with pipeline.created() as session:
        pipeline.add(10)
        pipeline.run().awaitTermination(120)
        shutil.rmtree(pipeline.checkpoint)
        pipeline.add(10)
        text = failure(pipeline.run())
        assert "CheckpointChanged" in text and "restore the checkpoint; or begin with another writer name" in text
        assert stored(session) == pipeline.expected[:10]
        session.sql("DELETE FROM t")
        shutil.rmtree(pipeline.checkpoint)
        pipeline.run(writer="anew").awaitTermination(120)
        assert stored(session) == pipeline.expected


def test_rows_that_the_table_refuses_end_the_query_and_change_nothing(pipeline):
    with pipeline.created() as session:
        pipeline.add(10)
        pipeline.run().awaitTermination(120)
        pq.write_table(rows_of([500, 3]), pipeline.files / "x.parquet")
        assert "DuplicateKey" in failure(pipeline.run())
        assert stored(session) == pipeline.expected
        session.sql("DELETE FROM t WHERE id = 3")
        pipeline.run().awaitTermination(120)
        assert stored(session) == sorted([*pipeline.expected, 500])


def test_batches_of_foreach_batch_are_there_once(pipeline):
    """It fails after a batch was inserted, and Spark repeats the batch."""
    with pipeline.created() as session:
        reports, fails_after = [], {1, 2}

        def ingest(frame, number):
            reports.append(session.ingest(frame, table="t", writer="files", batch_id=number))
            if number in fails_after:
                fails_after.discard(number)
                raise RuntimeError("after the batch")

        for _ in range(4):
            pipeline.add(25)
        pipeline.add(0)
        for _ in range(2):
            assert "after the batch" in failure(pipeline.writer().foreachBatch(ingest).start())
        pipeline.writer().foreachBatch(ingest).start().awaitTermination(120)
        assert stored(session) == pipeline.expected
        assert [(report.batch_id, report.was_repeated) for report in reports] == [
            (0, False), (1, False), (1, True), (2, False), (2, True), (3, False), (4, False)]
        assert sum(report.rows for report in reports if not report.was_repeated) == 100
        shutil.rmtree(pipeline.checkpoint)
        assert "CheckpointChanged" in failure(pipeline.writer().foreachBatch(ingest).start())
        assert stored(session) == pipeline.expected


def test_a_batch_that_is_left_out_is_a_gap(pipeline):
    with pipeline.created() as session:
        for _ in range(3):
            pipeline.add(5)

        def ingest(frame, number):
            if number != 1:
                session.ingest(frame, table="t", writer="files", batch_id=number)

        text = failure(pipeline.writer().foreachBatch(ingest).start())
        assert "BatchGap" in text and "Send batch 1 next" in text
        assert stored(session) == pipeline.expected[:5]


def written(frame, pipeline, mode="append", **options):
    given = {"url": pipeline.url, "table": "t"} | options
    frame.write.format("hummock").mode(mode).options(**given).save()


def test_a_frame_is_inserted_as_a_whole_or_refused_as_a_whole(pipeline):
    def frame(ids, partitions=3):
        return pipeline.spark.createDataFrame(rows_of(ids)).repartition(partitions)

    with pipeline.created() as session:
        written(frame(range(100)), pipeline)
        assert stored(session) == list(range(100))
        with pytest.raises(Exception, match="DuplicateKey"):
            written(frame([*range(100, 150), 7]), pipeline)
        with pytest.raises(Exception, match="there is no column 'w'"):
            written(frame(range(200, 210)).withColumnRenamed("v", "w"), pipeline)
        with pytest.raises(Exception, match="option mode is 'overwrite'"):
            written(frame([300]), pipeline, "overwrite")
        with pytest.raises(Exception, match="NotFound"):
            written(frame([300]), pipeline, table="missing")
        with pytest.raises(Exception, match="option timeout_ms"):
            written(frame([300]), pipeline, timeout_ms="soon")
        written(frame([]), pipeline)
        written(frame(range(500, 510)).select("v", "id"), pipeline)
        assert stored(session) == [*range(100), *range(500, 510)]
        assert outcomes(session) == {Outcome.WRITTEN: 3, Outcome.REFUSED: 3}


def test_a_stream_without_a_name_or_in_complete_mode_is_refused(pipeline):
    pipeline.created().close()
    pipeline.add(5)
    assert "option writer" in failure(pipeline.run(writer=""))
    assert "option writer" in failure(pipeline.run(writer="a b"))
    counted = pipeline.spark.readStream.schema(SCHEMA).parquet(str(pipeline.files)).groupBy("id").count()
    query = (counted.writeStream.format("hummock").outputMode("complete").trigger(availableNow=True)
             .options(url=pipeline.url, table="t", writer="w", checkpointLocation=f"{pipeline.checkpoint}-2").start())
    assert "use update with foreachBatch and Session.ingest into a table with ON CONFLICT OVERWRITE" in failure(query)


@pytest.mark.slow
def test_updates_of_an_aggregation_replace_the_rows_of_their_keys(pipeline):
    with pipeline.session() as session:
        session.sql("CREATE TABLE counts (v BIGINT PRIMARY KEY, n BIGINT) ON CONFLICT OVERWRITE")
        for _ in range(4):
            pipeline.add(40)
            files = pipeline.spark.readStream.schema(SCHEMA).parquet(str(pipeline.files))
            counts = files.groupBy("v").count().withColumnRenamed("count", "n")
            (counts.writeStream.outputMode("update").trigger(availableNow=True)
             .foreachBatch(lambda frame, number: session.ingest(frame, "counts", writer="w", batch_id=number))
             .option("checkpointLocation", str(pipeline.checkpoint)).start().awaitTermination(120))
        expected = Counter(number * 7 % 101 for number in pipeline.expected)
        assert {row["v"]: row["n"] for row in session.sql("SELECT * FROM counts").rows()} == expected


TYPES = {
    "a": ("SMALLINT", pa.int16(), [-5, None]), "b": ("INT", pa.int32(), [1 << 30, 0]),
    "c": ("BIGINT", pa.int64(), [1 << 60, None]), "d": ("REAL", pa.float32(), [0.5, None]),
    "e": ("DOUBLE", pa.float64(), [0.1, -1e300]), "f": ("BOOLEAN", pa.bool_(), [True, None]),
    "g": ("VARCHAR", pa.string(), ["ä€\U0001f600", ""]), "h": ("BYTEA", pa.binary(), [b"\0\xff", None]),
    "i": ("DATE", pa.date32(), [datetime.date(1969, 12, 31), None]),
    "j": ("TIMESTAMPTZ", pa.timestamp("us", "UTC"), [datetime.datetime(2024, 2, 29, 1, 2, 3, 4, datetime.UTC), None]),
    "k": ("NUMERIC(12, 3)", pa.decimal128(12, 3), [Decimal("123456789.125"), None]),
}


def test_values_of_all_common_types_arrive_as_they_are(pipeline):
    rows = pa.table({"id": pa.array([1, 2], pa.int64())} | {
        name: pa.array(values, kind) for name, (_, kind, values) in TYPES.items()})
    with pipeline.session() as session:
        columns = ", ".join(f"{name} {kind}" for name, (kind, _, _) in TYPES.items())
        session.sql(f"CREATE TABLE typed (id BIGINT PRIMARY KEY, {columns})")
        written(pipeline.spark.createDataFrame(rows), pipeline, table="typed")
        found = session.sql("SELECT * FROM typed ORDER BY id").to_arrow()
        assert found.to_pydict() == rows.to_pydict()


def test_intervals_arrive_if_they_have_no_months(pipeline):
    days = pipeline.spark.sql("SELECT 1L AS id, INTERVAL '-1 10:00:00' DAY TO SECOND AS i")
    with pipeline.session() as session:
        session.sql("CREATE TABLE spans (id BIGINT PRIMARY KEY, i INTERVAL)")
        written(days, pipeline, table="spans")
        session.bulk_load(days.selectExpr("id + 1 AS id", "i"), "spans")
        found = session.query("SELECT id, i = INTERVAL '-34 hours' FROM spans ORDER BY id")
        assert found.fetchall() == [(1, True), (2, True)]
        months = pipeline.spark.sql("SELECT 3L AS id, INTERVAL '1-2' YEAR TO MONTH AS i")
        with pytest.raises(Exception, match="column 'i' is interval year to month"):
            written(months, pipeline, table="spans")
        with pytest.raises(Exception, match="column 'i' is interval year to month"):
            session.bulk_load(months, "spans")


def test_nobody_serves(pipeline):
    pipeline.created().close()
    pipeline.add(5)
    assert "RequestUnanswered" in failure(pipeline.run(timeout_ms="300"))
    with pipeline.session() as session:          # the request is still there, and the query repeats the batch
        pipeline.run().awaitTermination(120)
        assert stored(session) == pipeline.expected


def test_a_session_with_a_spark_engine_carries_out_requests_and_batches_once(pipeline):
    with stream.connect(pipeline.url, create=True, engine=pipeline.spark, inbox_poll_ms=20) as session:
        session.sql(TABLE)
        session.sql(VIEW)
        for _ in range(3):
            pipeline.add(20)
        pipeline.run().awaitTermination(120)
        pipeline.forget_last()
        pipeline.run().awaitTermination(120)
        assert stored(session) == pipeline.expected and outcomes(session)[Outcome.REPEATED] == 1
        report = session.ingest(rows_of(range(900, 950)), "t", writer="w", checkpoint="c", batch_id=0)
        assert session.ingest(rows_of([1]), "t", writer="w", checkpoint="c", batch_id=0).was_repeated
        with stream.Inbox(pipeline.url) as inbox, pytest.raises(RequestRefused, match="DuplicateKey"):
            inbox.insert("t", rows_of([990, 901]))
        assert report.rows == 50 and stored(session) == sorted([*pipeline.expected, *range(900, 950)])
