"""Sources and sinks in SQL [R32]: nothing is read before a job names it, each job has its own offsets, and each row
counts once, whatever ends the session."""

from __future__ import annotations

import random
import time

import pyarrow as pa
import pytest

import stream
from hummock.store.storage import HummockStorage
from relational.catalog.objects import TableCatalog, TableKind
from relational.chunk import DataChunk, StreamChunk
from relational.chunk.change_digest import change_digest
from relational.errors import BindError, CatalogError, DependencyError, Duplicate, ParseError
from relational.plan.view import view_of
from stream.errors import BackfillRefused, ConnectorError, UnknownConnector
from stream.meta.barrier_manager import NOTICE_SECONDS
from stream.spark.fragments import backfill_fragments
from stream.worker import compute_node
from tests.stream.connector.test_files import write
from tests.support.drivers import feed
from tests.support.drivers.seeds import seeds
from tests.support.drivers.waiting import eventually

ROWS = 5_000


def connected(directory, **options):
    return stream.connect(f"file://{directory}", create=True,
            **{"barrier_interval_ms": 10, "recovery_backoff_ms": 1, **options})


def bids(rows=ROWS, first=0):
    ids = range(first, first + rows)
    return pa.table({"id": pa.array(ids, pa.int64()), "bidder": pa.array([each % 17 for each in ids], pa.int64()),
                     "price": pa.array([each * 7 % 1_000 for each in ids], pa.int64()),
                     "url": [None if each % 5 == 0 else f"https://a.example/{each}" for each in ids]})


@pytest.fixture
def files(tmp_path):
    directory = tmp_path / "bids"
    directory.mkdir()
    for number in range(3):
        write(directory / f"{number}.arrow", bids(first=number * ROWS), 700)
    return directory


@pytest.fixture
def db(tmp_path):
    with connected(tmp_path / "store") as session:
        yield session


def create_source(db, files, name="bid"):
    db.sql(f"CREATE SOURCE {name} (id BIGINT, bidder BIGINT, price BIGINT, url VARCHAR) "
           f"WITH (connector = 'arrow', path = '{files}')")


def is_read(db, name, files):
    """Whether job `name` has committed all rows of all files."""
    db.flush()
    offsets = db.source_offsets(name)
    ends = {path.name: f"{pa.ipc.open_file(str(path)).num_record_batches}:0" for path in files.iterdir()}
    return offsets == ends


def digest(table):
    """The digest of rows by the reference: each row inserted once."""
    rows = DataChunk.from_arrow(table.combine_chunks().to_batches()[0])
    return f"{change_digest(StreamChunk.inserts(rows))[2]:016x}"


def test_a_source_is_read_by_no_one_until_a_job_names_it(db, files):
    create_source(db, files)
    db.flush()
    assert db.sql("SHOW JOBS").num_rows == 0 and db.sql("SHOW SOURCES")["name"].to_pylist() == ["bid"]
    assert db.sql("SHOW TABLES").num_rows == 0
    for query in ("SELECT * FROM bid", "SELECT count(*) FROM (SELECT id FROM bid WHERE id > 1) t"):
        with pytest.raises(CatalogError, match="source 'bid' stores no rows"):
            db.sql(query).to_arrow()
    described = db.sql("DESCRIBE bid").to_pylist()
    assert [row["name"] for row in described if not row["is_hidden"]] == ["id", "bidder", "price", "url"]
    for change in ("INSERT INTO bid VALUES (1, 1, 1, 'a')", "DELETE FROM bid", "UPDATE bid SET price = 1"):
        with pytest.raises(BindError, match="is a source: it changes with its connector only"):
            db.sql(change)


def test_views_and_sinks_read_it_each_for_itself(db, files):
    create_source(db, files)
    db.sql("CREATE MATERIALIZED VIEW by_bidder AS SELECT bidder, count(*) AS n, sum(price) AS total FROM bid"
           " GROUP BY bidder")
    db.sql("CREATE MATERIALIZED VIEW cheap AS SELECT * FROM bid WHERE price < 10")
    eventually(lambda: is_read(db, "by_bidder", files) and is_read(db, "cheap", files))
    db.sql("CREATE SINK all_bids WITH (connector = 'digest') AS SELECT * FROM bid")
    db.sql("CREATE SINK groups AS SELECT bidder, count(*) AS n FROM bid GROUP BY bidder WITH (connector = 'digest')")
    db.sql("CREATE SINK nothing FROM bid WITH (connector = 'blackhole')")
    for name in ("all_bids", "groups", "nothing"):
        eventually(lambda name=name: is_read(db, name, files))
    whole = bids(3 * ROWS)
    groups = whole.group_by("bidder", use_threads=False).aggregate([("bidder", "count"), ("price", "sum")])
    expected = {row["bidder"]: (row["bidder_count"], row["price_sum"]) for row in groups.to_pylist()}
    assert {row["bidder"]: (row["n"], row["total"]) for row in db.sql("SELECT * FROM by_bidder").rows()} == expected
    cheap = [row for row in whole.to_pylist() if row["price"] < 10]
    assert sorted(db.sql("SELECT * FROM cheap").rows(), key=lambda row: row["id"]) == cheap
    (row,) = db.sql("SELECT * FROM all_bids").rows()
    assert row == {"inserted": 3 * ROWS, "deleted": 0, "digest": digest(whole)}
    (row,) = db.sql("SELECT * FROM groups").rows()
    counts = db.sql("SELECT bidder, n FROM by_bidder").to_arrow()
    assert row["inserted"] - row["deleted"] == 17 and row["digest"] == digest(counts)
    assert db.sql("SELECT * FROM nothing").rows() == [{"inserted": 3 * ROWS, "deleted": 0, "digest": None}]


def test_only_the_named_columns_are_read(db, files):
    for path in files.iterdir():
        write(path, bids(10).drop_columns(["url", "price"]))
    create_source(db, files)
    db.sql("CREATE SINK counted AS SELECT bidder, count(*) AS n FROM bid GROUP BY bidder WITH (connector = 'digest')")
    eventually(lambda: is_read(db, "counted", files))
    assert db.sql("SELECT inserted - deleted AS groups FROM counted").rows() == [{"groups": 10}]
    with pytest.raises(ConnectorError, match="has no column 'url'"):
        db.sql("CREATE SINK wide AS SELECT url FROM bid WITH (connector = 'blackhole')")
    assert db.sql("SHOW SINKS")["name"].to_pylist() == ["counted"]


@pytest.mark.parametrize("seed", seeds(2, 6))
def test_every_row_counts_once_however_often_the_session_ends(tmp_path, files, seed):
    rng = random.Random(seed)
    with connected(tmp_path / "store", chunk_rows=16) as db:
        create_source(db, files)
        db.sql("CREATE SINK delivered AS SELECT id, price, url FROM bid WHERE price <> 7 WITH (connector = 'digest')")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT bidder, max(price) AS top, count(*) AS n FROM bid GROUP BY bidder")
    for _ in range(6):
        options = {"chunk_rows": rng.choice((16, 64, 300)), "barrier_interval_ms": rng.choice((2, 20))}
        db = connected(tmp_path / "store", **options)
        time.sleep(rng.random() * 0.1)
        db.abandon() if rng.random() < 0.7 else db.close()
    db = connected(tmp_path / "store")
    eventually(lambda: all(is_read(db, name, files) for name in ("delivered", "v")))
    whole = bids(3 * ROWS)
    kept = whole.filter(pa.compute.not_equal(whole["price"], 7)).select(["id", "price", "url"])
    (row,) = db.sql("SELECT * FROM delivered").rows()
    assert row == {"inserted": kept.num_rows, "deleted": 0, "digest": digest(kept)}
    assert db.sql("SELECT sum(n) AS n FROM v").rows()[0]["n"] == whole.num_rows
    db.close()


def test_parquet_files_are_read_as_arrow_files_are(db, tmp_path):
    for number in range(2):
        write(tmp_path / f"{number}.parquet", bids(first=number * ROWS), 700)
    db.sql(f"CREATE SOURCE bid (url VARCHAR, id BIGINT) WITH (connector = 'parquet', path = '{tmp_path}')")
    db.sql("CREATE SINK s FROM bid WITH (connector = 'digest')")
    eventually(lambda: db.source_offsets("s") == {"0.parquet": "8:0", "1.parquet": "8:0"})
    (row,) = db.sql("SELECT * FROM s").rows()
    assert row == {"inserted": 2 * ROWS, "deleted": 0, "digest": digest(bids(2 * ROWS).select(["url", "id"]))}


def test_what_reads_a_source_keeps_it_and_drops_with_it(db, files):
    create_source(db, files)
    db.sql("CREATE SINK s AS SELECT id FROM bid WITH (connector = 'blackhole')")
    db.sql("CREATE VIEW few AS SELECT id FROM bid WHERE id < 10")
    db.sql("CREATE MATERIALIZED VIEW m AS SELECT id FROM few")
    db.sql("CREATE SINK of_view FROM few WITH (connector = 'blackhole')")
    with pytest.raises(DependencyError) as caught:
        db.sql("DROP SOURCE bid")
    assert set(caught.value.dependents) == {"s", "few", "m", "of_view"}
    with pytest.raises(BindError, match="use DROP SINK"):
        db.sql("DROP MATERIALIZED VIEW s")
    eventually(lambda: is_read(db, "of_view", files))
    assert db.sql("SELECT inserted FROM of_view").rows() == [{"inserted": 10}]
    db.sql("DROP SINK s")
    db.sql("DROP SOURCE bid CASCADE")
    assert db.sql("SHOW JOBS").num_rows == db.sql("SHOW SOURCES").num_rows == 0
    db.sql("DROP SOURCE IF EXISTS bid")


def test_a_table_that_a_connector_feeds_is_still_shown_with_the_sources(db, files):
    create_source(db, files)
    db.sql(f"CREATE TABLE kept (id BIGINT PRIMARY KEY, price BIGINT) WITH (connector = 'arrow', path = '{files}')")
    assert db.sql("SHOW SOURCES")["name"].to_pylist() == ["bid", "kept"]
    eventually(lambda: is_read(db, "kept", files))
    assert db.sql("SELECT count(*) AS n FROM kept").rows() == [{"n": 3 * ROWS}]
    db.sql("CREATE SINK changes FROM kept WITH (connector = 'digest')")
    (row,) = db.sql("SELECT * FROM changes").rows()
    assert row["inserted"] == 3 * ROWS and row["digest"] == digest(bids(3 * ROWS).select(["id", "price"]))


def test_a_sink_follows_updates_and_deletes(db):
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)")
    db.sql("CREATE SINK s FROM t WITH (connector = 'digest')")
    rng = random.Random(11)
    for number in range(60):
        key = rng.randrange(20)
        db.sql(f"DELETE FROM t WHERE id = {key}")
        if rng.random() < 0.7:
            db.sql(f"INSERT INTO t VALUES ({key}, 'v{number}')")
        db.sql(f"UPDATE t SET v = 'u{number}' WHERE id = {rng.randrange(20)}")
    db.flush()
    rows = db.sql("SELECT id, v FROM t").to_arrow()
    (state,) = db.sql("SELECT * FROM s").rows()
    assert state["inserted"] - state["deleted"] == rows.num_rows and state["deleted"] > 0
    assert state["digest"] == digest(rows)


def test_a_malformed_record_fails_its_readers_alone_and_can_be_skipped(db):
    made = feed.feeds(["bids"])["bids"]
    columns = feed.COLUMNS.rpartition(", PRIMARY KEY")[0]
    db.sql(f"CREATE SOURCE bids ({columns}) WITH (connector = 'feed', name = 'bids')")
    db.sql("CREATE SINK names AS SELECT name FROM bids WITH (connector = 'blackhole')")
    db.sql("CREATE SINK prices AS SELECT id, price FROM bids WITH (connector = 'blackhole')")
    made.add(*range(5), "a text of 9 characters", *range(5, 10))
    states = lambda: {row["name"]: row["state"] for row in db.sql("SHOW JOBS").to_pylist()}  # noqa: E731
    eventually(lambda: states() == {"names": "FAILED", "prices": "RUNNING"})
    eventually(lambda: db.sql("SELECT inserted FROM prices").rows() == [{"inserted": 11}])
    reason = lambda: next(row["reason"] for row in db.sql("SHOW JOBS").to_pylist() if row["name"] == "names")  # noqa: E731
    eventually(lambda: "name" in (reason() or ""))
    db.sql("ALTER SINK names RESUME SKIP 1 ROWS")
    eventually(lambda: db.sql("SELECT inserted FROM names").rows() == [{"inserted": 10}])
    db.sql(f"CREATE SOURCE skipping ({columns}) WITH (connector = 'feed', name = 'bids', malformed = 'skip')")
    db.sql("CREATE SINK counted AS SELECT name FROM skipping WITH (connector = 'blackhole')")
    eventually(lambda: db.sql("SELECT inserted FROM counted").rows() == [{"inserted": 10}])
    (error,) = db.sql("SHOW ERRORS").to_pylist()[-1:]
    assert "malformed" in error["reason"]


@pytest.mark.parametrize(("statement", "kind", "fault"), [
    ("CREATE SOURCE s (a INT)", BindError, "created WITH"),
    ("CREATE SOURCE s (a INT PRIMARY KEY) WITH (connector = 'arrow', path = '/x')", BindError, "primary key"),
    ("CREATE SOURCE s (a INT DEFAULT 1) WITH (connector = 'arrow', path = '/x')", BindError, "DEFAULT"),
    ("CREATE SOURCE s (a INT) ON CONFLICT OVERWRITE WITH (connector = 'arrow', path = '/x')", BindError, "ON CONFLICT"),
    ("CREATE SOURCE s (a INT) WITH (path = '/x')", BindError, "connector"),
    ("CREATE SOURCE s (a INT) WITH (connector = 'nowhere')", UnknownConnector, "nowhere"),
    ("CREATE SOURCE s (a INT) WITH (connector = 'arrow', path = '/not/there')", ConnectorError, "no file or directory"),
    ("CREATE SINK s FROM t", BindError, "created WITH"),
    ("CREATE SINK s AS SELECT * FROM t", BindError, "created WITH"),
    ("CREATE SINK s AS SELECT a AS x, a AS x FROM t WITH (connector = 'digest')", BindError, "appears twice"),
    ("CREATE SINK s AS SELECT 1 AS a WITH (connector = 'digest')", BindError, "FROM"),
    ("CREATE SINK s FROM t WITH (connector = 'kafka')", UnknownConnector, "kafka.*blackhole"),
    ("CREATE SINK s FROM t WITH (connector = 'digest', bits = 128)", ConnectorError, "no option 'bits'"),
    ("CREATE SINK s WITH (connector = 'digest') FROM t WITH (connector = 'digest')", ParseError, "nothing is expected"),
    ("CREATE SINK t FROM t WITH (connector = 'digest')", Duplicate, "already a table"),
])
def test_invalid_statements_are_refused_before_anything_changes(db, statement, kind, fault):
    db.sql("CREATE TABLE t (a INT)")
    with pytest.raises(kind, match=fault):
        db.sql(statement)
    assert db.names() == ("t",) and db.sql("SHOW JOBS").num_rows == 1


def test_bulk_backfill_of_a_source_is_refused(db, files):
    create_source(db, files)
    draft, query = view_of("v", db.sql("SELECT bidder, count(*) AS n FROM bid GROUP BY bidder").plan, "")
    with pytest.raises(BackfillRefused, match="Source cannot run in a task"):
        backfill_fragments(db._playground.meta.planner.explained(draft, query))


def test_the_fluent_face_and_explain(db, files):
    source = db.create_source("bid", {"id": "bigint", "bidder": "bigint", "price": "bigint"},
                              connector={"connector": "arrow", "path": str(files)})
    sink = db.create_sink("s", source.filter(stream.col("price") < 10).select("id"),
                          connector={"connector": "digest"})
    eventually(lambda: is_read(db, "s", files))
    wanted = sum(each * 7 % 1_000 < 10 for each in range(3 * ROWS))
    assert sink.rows()[0]["inserted"] == wanted
    text = db.explain("CREATE SINK x AS SELECT bidder FROM bid WITH (connector = 'blackhole')")
    assert "Sink x connector: blackhole" in text and "(bidder)" in text and "RowIdGen" not in text
    assert "RowIdGen" in db.explain("SELECT bidder FROM bid")


def test_catalog_records_have_the_version_that_first_had_their_kind(db, files):
    create_source(db, files)
    db.sql("CREATE SINK s FROM bid WITH (connector = 'digest')")
    db.sql("CREATE TABLE t (a INT)")
    known = {table.name: table for table in db._playground.catalog.snapshot.tables.values()}
    assert {name: known[name].version for name in ("bid", "s", "t")} == {"bid": 4, "s": 5, "t": 5}
    assert known["bid"].kind is TableKind.SOURCE and known["s"].sink == {"connector": "digest"}
    for table in known.values():
        assert TableCatalog.from_json(table.to_json()) == table


def test_new_files_are_read_by_running_jobs_and_after_a_recovery(tmp_path, files):
    empty = tmp_path / "empty"
    empty.mkdir()
    with connected(tmp_path / "store", split_discovery_ms=5) as db:
        create_source(db, files)
        create_source(db, empty, "later")
        db.sql("CREATE SINK s AS SELECT id FROM bid WITH (connector = 'digest')")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM later")
        eventually(lambda: is_read(db, "s", files))
        for number in range(3, 6):
            part = tmp_path / "part"
            write(part, bids(first=number * ROWS), 700)
            part.rename(files / f"{number}.arrow")
            eventually(lambda: is_read(db, "s", files))
        write(tmp_path / "part", bids(), 700)
        (tmp_path / "part").rename(empty / "0.arrow")
        eventually(lambda: db.sql("SELECT n FROM v").rows() == [{"n": ROWS}])
        (row,) = db.sql("SELECT * FROM s").rows()
        assert row == {"inserted": 6 * ROWS, "deleted": 0, "digest": digest(bids(6 * ROWS).select(["id"]))}
        db.pause()
    write(files / "6.arrow", bids(first=6 * ROWS), 700)
    with connected(tmp_path / "store", split_discovery_ms=0) as db:
        eventually(lambda: is_read(db, "s", files))
        (row,) = db.sql("SELECT * FROM s").rows()
        assert row["inserted"] == 7 * ROWS and row["digest"] == digest(bids(7 * ROWS).select(["id"]))
        write(files / "7.arrow", bids(first=7 * ROWS), 700)
        time.sleep(0.05)
        db.flush()
        assert "7.arrow" not in db.source_offsets("s")


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_job_reads_several_sources_each_with_its_own_splits_and_offsets(tmp_path, parallelism):
    names = {"one": 1, "three": 3}
    for name, splits in names.items():
        (tmp_path / name).mkdir()
        for number in range(splits):
            write(tmp_path / name / f"{number}.arrow", bids(first=number * ROWS), 700)
    with connected(tmp_path / "store", parallelism=parallelism) as db:
        for name in names:
            create_source(db, tmp_path / name, name)
        db.pause()
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT id, 1 AS n FROM one UNION ALL SELECT id, 3 FROM three")
        db.resume()
        db.flush()
    with connected(tmp_path / "store", parallelism=parallelism) as db:
        ends = {f"{name}/{number}.arrow": "8:0" for name, splits in names.items() for number in range(splits)}
        eventually(lambda: db.source_offsets("v") == ends)
        rows = db.sql("SELECT n, COUNT(*) AS c, SUM(id)::BIGINT AS d FROM v GROUP BY n ORDER BY n").rows()
        assert rows == [{"n": n, "c": n * ROWS, "d": sum(range(n * ROWS))} for n in (1, 3)]


def test_rows_are_skipped_in_the_source_that_failed_alone(db):
    feeds = feed.feeds(["f", "g"])
    for name in feeds:
        db.sql(f"CREATE SOURCE {name} ({feed.COLUMNS.split(', PRIMARY KEY')[0]}) "
               f"WITH (connector = 'feed', name = '{name}')")
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT id FROM f UNION ALL SELECT id FROM g")
    feeds["f"].add(1, 2, 3)
    feeds["g"].add(11, feed.BROKEN, 12, 13)
    eventually(lambda: db.failed_jobs)
    assert db.failed_jobs[0].split == "g/all"
    feeds["g"].mend()
    db.sql("ALTER MATERIALIZED VIEW v RESUME SKIP 1 ROWS")
    eventually(lambda: db.source_offsets("v") == {"f/all": "3", "g/all": "4"})
    db.flush()
    assert sorted(row["id"] for row in db.sql("SELECT id FROM v").rows()) in ([1, 2, 3, 12, 13], [1, 2, 3, 11, 13])


def test_the_barrier_behind_the_last_row_is_announced_if_the_actors_have_done_much(tmp_path, files, monkeypatch):
    expected, expect = [], HummockStorage.expect_sync
    monkeypatch.setattr(compute_node, "MUCH_CPU_SECONDS", -1.0)
    monkeypatch.setattr(
        HummockStorage, "expect_sync",
        lambda self, epoch, seconds: expected.append((epoch, seconds)) or expect(self, epoch, seconds))
    with connected(tmp_path / "store", barrier_interval_ms=1_000_000) as db:
        create_source(db, files)
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM bid")
        eventually(lambda: db.sql("SELECT n FROM v").rows() == [{"n": 3 * ROWS}])
        assert {seconds for _, seconds in expected} == {NOTICE_SECONDS}
        assert expected[-1][0] == db.committed_epoch, "of the epoch that the barrier ends"
