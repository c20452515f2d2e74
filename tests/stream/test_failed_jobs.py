"""Only the failed job is set aside; it can be resumed, dropped, and read at the epoch of its failure."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress

import pytest

import stream
from hummock.base.key import KeyRange
from hummock.errors import EpochTooOld
from relational.catalog.names import ObjectName
from relational.errors import CatalogError
from stream.errors import InvalidStatement, JobFailed, JobNotRunning, StatementsLost
from stream.executor.hash_agg import HashAggExecutor
from stream.executor.statement import StatementEvaluator
from stream.message import DeleteRows
from stream.meta.job_planner import JobPlanner
from tests.support.drivers import feed
from tests.support.drivers.seeds import amount
from tests.support.drivers.waiting import SOON_SECONDS, eventually

DIGESTIBLE = [each for each in feed.KINDS if each != feed.BROKEN]


def connected(url, **options):
    return stream.connect(
        url, create=True, **{"barrier_interval_ms": amount(50, 10), "recovery_backoff_ms": 1, **options})


@pytest.fixture
def db(tmp_path):
    with connected(f"file://{tmp_path / 'store'}") as session:
        yield session


def states(db):
    return {row["name"]: row["state"] for row in db.sql("SHOW JOBS").to_pylist()}


def job(db, name):
    (row,) = [row for row in db.jobs().to_pylist() if row["name"] == name]
    return row


def count_of(db, name):
    return db.sql(f"SELECT COUNT(*) AS n FROM {name}").rows()[0]["n"]


def table_id(db, name):
    return db._playground.catalog.resolve(ObjectName.parse(name)).id


def poisoned(db, record, **options):
    """A table `t` whose feed has `record` after its first rows, a view `v` of it, and an unrelated table and view."""
    made = feed.feeds(["t"])["t"]
    feed.create(db, "t", **options)
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT name, COUNT(*) AS n FROM t GROUP BY name")
    db.sql("CREATE TABLE other (id BIGINT PRIMARY KEY, v BIGINT)")
    db.sql("CREATE MATERIALIZED VIEW beside AS SELECT COUNT(*) AS n FROM other")
    made.add(*range(5))
    eventually(lambda: count_of(db, "t") == 5)
    made.add(5, 6, record, *range(7, 10))
    return made


def failed(db, record, **options):
    made = poisoned(db, record, **options)
    eventually(lambda: states(db).get("t") == "FAILED")
    return made


def test_the_others_go_on_and_the_failure_is_reported(db):
    failed(db, feed.UNDECODABLE)
    assert states(db) == {"t": "FAILED", "v": "FAILED", "other": "RUNNING", "beside": "RUNNING"}
    table, view = job(db, "t"), job(db, "v")
    assert "these bytes are no record" in table["reason"] and "reads 't'" in view["reason"]
    assert table["position"] is not None and table["epoch"] == view["epoch"] and table["since"] is not None
    assert [each.job_id for each in db.failed_jobs] == sorted(each.job_id for each in db.failed_jobs)
    db.sql("INSERT INTO other VALUES (1, 1)")
    db.flush()
    assert count_of(db, "other") == 1 and db.sql("SELECT n FROM beside").rows() == [{"n": 1}]
    for statement in ("SELECT * FROM t", "SELECT * FROM v", "CREATE MATERIALIZED VIEW w AS SELECT id FROM t",
                      "INSERT INTO other SELECT id, 1 FROM t"):
        with pytest.raises(JobFailed, match="was set aside") as caught:
            answer = db.sql(statement)
            answer.to_arrow()
        assert caught.value.since == table["epoch"]
    with db.at(table["epoch"]) as then:
        count = then.sql("SELECT COUNT(*) AS n FROM t").to_arrow()["n"][0].as_py()
    assert 5 <= count <= 7
    assert count_of(db, f"t FOR SYSTEM_TIME AS OF {table['epoch']}") == count
    db.sql(f"SET query_epoch = {table['epoch']}")
    assert count_of(db, "t") == count


def test_a_failure_that_is_recorded_while_the_jobs_are_listed_is_listed(db, monkeypatch):
    """The snapshot of the catalog that the list began with does not have it, and no one else keeps it any more."""
    made, at = poisoned(db, 10), db.at

    def at_after_the_failure():
        made.add(feed.UNDECODABLE)
        eventually(lambda: db._playground.catalog.snapshot.failed.keys() >= {table_id(db, "t"), table_id(db, "v")})
        assert len(db.failed_jobs) == 2
        return at()

    monkeypatch.setattr(db, "at", at_after_the_failure)
    listed = {row["name"]: row["state"] for row in db.jobs().to_pylist()}
    assert listed == {"t": "FAILED", "v": "FAILED", "other": "RUNNING", "beside": "RUNNING"}


@pytest.mark.parametrize("record", DIGESTIBLE)
def test_skip_leaves_out_the_malformed_record_alone(db, record):
    failed(db, record)
    db.sql("ALTER TABLE t RESUME SKIP 1 ROWS")
    eventually(lambda: count_of(db, "t") == 10)
    assert states(db) == dict.fromkeys(("t", "v", "other", "beside"), "RUNNING")
    assert sum(row["n"] for row in db.sql("SELECT n FROM v").rows()) == 10
    (counted,) = db.errors().to_pylist()
    assert counted["job"] == "t" and counted["rows"] == 1 and "malformed" in counted["reason"]


@pytest.mark.parametrize("record", DIGESTIBLE)
def test_malformed_records_are_skipped_and_counted_where_the_table_says_so(db, record):
    poisoned(db, record, malformed="skip").add(record, 10)
    eventually(lambda: count_of(db, "t") == 11)
    assert set(states(db).values()) == {"RUNNING"}
    eventually(lambda: [row["rows"] for row in db.sql("SHOW ERRORS").to_pylist()] == [2])


def test_resume_without_a_cure_fails_again_at_the_same_record(db):
    failed(db, feed.UNDECODABLE)
    db.sql("ALTER TABLE t RESUME")
    eventually(lambda: states(db)["t"] == "FAILED")
    db.sql("ALTER TABLE t RESUME SKIP 1 ROWS")
    eventually(lambda: count_of(db, "t") == 10)


def test_a_reader_that_was_mended_goes_on_without_loss(db):
    made = failed(db, feed.BROKEN)
    assert "cannot go on" in job(db, "t")["reason"]
    made.mend()
    db.resume_job("t")
    eventually(lambda: count_of(db, "t") == 10)


def test_skip_passes_over_the_next_rows_where_no_record_is_to_blame(db):
    made = failed(db, feed.BROKEN)
    made.mend()
    db.sql("ALTER TABLE t RESUME SKIP 2 ROWS")
    eventually(lambda: db.source_offsets("t") == {feed.SPLIT: "11"})
    assert count_of(db, "t") == 8       # wherever the last commit was: the broken record is not a row


@contextmanager
def held_recovery():
    """Blocks a recovery that sets jobs aside until the event is set."""
    known_jobs, go_on = JobPlanner.known_jobs, threading.Event()

    def held(self, skipped=(), **options):
        if skipped:
            assert go_on.wait(SOON_SECONDS)
        return known_jobs(self, skipped, **options)

    JobPlanner.known_jobs = held
    try:
        yield go_on
    finally:
        go_on.set()
        JobPlanner.known_jobs = known_jobs


@pytest.mark.parametrize("commit", ["made", "failed"])
def test_a_job_may_be_resumed_while_the_recovery_that_set_it_aside_runs(db, monkeypatch, commit):
    barriers = db._playground.meta._barriers
    with held_recovery() as go_on:
        made = failed(db, feed.BROKEN)
        made.mend()
        resume = threading.Thread(target=db.sql, args=["ALTER TABLE t RESUME SKIP 2 ROWS"])
        resume.start()
        eventually(lambda: barriers._schedule._commands)
        if commit == "failed":
            committer, first = barriers._committer._committer, iter([True])
            original = committer.commit

            def fails_once(*arguments):
                if next(first, False):
                    raise OSError("injected")
                original(*arguments)

            monkeypatch.setattr(committer, "commit", fails_once)
        go_on.set()
        resume.join(SOON_SECONDS)
    eventually(lambda: db.source_offsets("t") == {feed.SPLIT: "11"})
    assert count_of(db, "t") == 8
    assert set(states(db).values()) == {"RUNNING"}


@pytest.mark.parametrize("how", ["a recovery", "another process"])
def test_what_resume_allows_to_skip_is_allowed_after(how, tmp_path):
    url = f"file://{tmp_path / 'store'}"
    with connected(url) as db:
        failed(db, feed.UNDECODABLE)
        db.pause()          # the resumed job does not read the record yet
        db.sql("ALTER TABLE t RESUME SKIP 1 ROWS")
        assert db.source_offsets("t").keys() == {feed.SPLIT}
        if how == "a recovery":
            db._playground.meta._barriers.fail(OSError("injected"))
            db.flush()
            db.resume()
            eventually(lambda: count_of(db, "t") == 10)
    with connected(url) as db:
        eventually(lambda: count_of(db, "t") == 10)
        assert set(states(db).values()) == {"RUNNING"}
        feed.FEEDS["t"].add(feed.UNDECODABLE)
        eventually(lambda: states(db)["t"] == "FAILED")        # the skip was for one row


def test_a_failed_job_can_be_dropped(db):
    failed(db, feed.UNDECODABLE)
    with pytest.raises(CatalogError, match="v"):
        db.sql("DROP TABLE t")
    db.sql("DROP TABLE t CASCADE")
    assert states(db) == {"other": "RUNNING", "beside": "RUNNING"}
    db.sql("INSERT INTO other VALUES (1, 1)")
    db.flush()
    assert count_of(db, "other") == 1


def test_what_can_be_resumed_is_said(db):
    failed(db, feed.UNDECODABLE)
    with pytest.raises(InvalidStatement, match="nothing to resume"):
        db.sql("ALTER TABLE other RESUME")
    with pytest.raises(JobNotRunning):
        db.sql("ALTER MATERIALIZED VIEW v RESUME")


@contextmanager
def broken_view(name):
    """The aggregation of the view `name` fails on every chunk, of rows or of states."""
    originals = HashAggExecutor._apply, HashAggExecutor._merge

    def failing(original):
        def broken(self, chunk):
            if self._state_table.catalog.name.startswith(f"{name}."):
                raise ZeroDivisionError("injected")
            original(self, chunk)

        return broken

    HashAggExecutor._apply, HashAggExecutor._merge = map(failing, originals)
    try:
        yield
    finally:
        HashAggExecutor._apply, HashAggExecutor._merge = originals


def break_view(db, number):
    """Sets the view `v` and its readers aside; `v` misses the row `number` of the table `s`."""
    with broken_view("v"):
        db.sql(f"INSERT INTO s VALUES ({number}, 'broken')")
        eventually(lambda: states(db)["v"] == "FAILED")
    assert {name for name, state in states(db).items() if state == "FAILED"} == {"v", "upon"}


def with_views(db):
    db.sql("CREATE TABLE s (id BIGINT PRIMARY KEY, name VARCHAR)")
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT name, COUNT(*) AS n FROM s GROUP BY name")
    db.sql("CREATE MATERIALIZED VIEW upon AS SELECT n, COUNT(*) AS names FROM v GROUP BY n")
    rows = ", ".join(f"({number}, 'name {number % 5}')" for number in range(10))
    db.sql(f"INSERT INTO s VALUES {rows}")
    db.flush()


def check_resumed(db):
    db.sql("ALTER MATERIALIZED VIEW v RESUME")
    assert set(states(db).values()) == {"RUNNING"}
    db.flush()
    wanted = db.sql("SELECT name, COUNT(*) AS n FROM s GROUP BY name ORDER BY name").rows()
    assert db.sql("SELECT name, n FROM v ORDER BY name").rows() == wanted
    upon = db.sql("SELECT SUM(names) AS n FROM upon").rows()[0]["n"]
    assert int(upon or 0) == len(wanted)


def test_skip_is_for_what_has_a_source(db):
    with_views(db)
    break_view(db, 100)
    with pytest.raises(InvalidStatement, match="has none"):
        db.sql("ALTER MATERIALIZED VIEW v RESUME SKIP 1 ROWS")
    with pytest.raises(JobNotRunning):
        db.sql("ALTER MATERIALIZED VIEW upon RESUME")
    check_resumed(db)


@pytest.mark.parametrize("history_ms", [3_600_000, 0])
def test_a_view_catches_up_with_what_its_table_did_meanwhile(tmp_path, history_ms, caplog):
    """From the kept changes since its failure, else by a rebuild; also after reopening."""
    url = f"file://{tmp_path / 'store'}"
    with connected(url, failed_job_history_ms=history_ms) as db:
        with_views(db)
        break_view(db, 100)
        db.sql("DELETE FROM s WHERE id < 5")
        db.sql("INSERT INTO s VALUES (101, 'later')")
        db.flush()
        check_resumed(db)
        break_view(db, 102)
        db.sql("DELETE FROM s WHERE id >= 100")
        db.sql("UPDATE s SET name = 'other' WHERE id = 7")
        db.flush()
    with connected(url, failed_job_history_ms=history_ms) as db:
        assert states(db) == {"s": "RUNNING", "v": "FAILED", "upon": "FAILED"}
        check_resumed(db)
        db.sql("DELETE FROM s")
        db.flush()
        assert count_of(db, "v") == 0 and count_of(db, "upon") == 0
    built_anew = [record for record in caplog.records if "built anew" in record.getMessage()]
    assert bool(built_anew) == (history_ms == 0)


def test_a_view_is_rescaled_while_one_of_its_readers_is_set_aside(tmp_path):
    with connected(f"file://{tmp_path / 'store'}") as db:
        with_views(db)
        barriers = db._playground.meta._barriers
        with held_recovery() as go_on, broken_view("upon"):
            db.sql("INSERT INTO s VALUES (100, 'new')")
            eventually(lambda: db._playground.meta.failures._new)
            rescale = threading.Thread(target=db.sql, args=["ALTER MATERIALIZED VIEW v SET PARALLELISM = 3"])
            rescale.start()
            eventually(lambda: barriers._schedule._commands)
            go_on.set()
            rescale.join(SOON_SECONDS)
        assert {name for name, state in states(db).items() if state == "FAILED"} == {"upon"}
        assert sum(figures.actors for figures in db._playground.fragments() if figures.job == "v") > 3
        db.sql("ALTER MATERIALIZED VIEW upon RESUME")
        db.sql("INSERT INTO s VALUES (101, 'newer')")
        db.flush()
        assert db.sql("SELECT SUM(names)::BIGINT AS n FROM upon").rows() == [{"n": 7}]


def test_malformed_records_of_several_splits_are_skipped_one_after_the_other(db):
    feeds = feed.feeds(["f", "g"])
    for name in feeds:
        db.sql(f"CREATE SOURCE {name} ({feed.COLUMNS.split(', PRIMARY KEY')[0]}) "
               f"WITH (connector = 'feed', name = '{name}')")
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT id FROM f UNION ALL SELECT id FROM g")
    for made in feeds.values():
        made.add(feed.UNDECODABLE, 1, 2)
    for _ in feeds:
        eventually(lambda: states(db)["v"] == "FAILED")
        db.sql("ALTER MATERIALIZED VIEW v RESUME SKIP 1 ROWS")
    eventually(lambda: count_of(db, "v") == 4)
    assert states(db)["v"] == "RUNNING" and db.source_offsets("v") == {"f/all": "3", "g/all": "3"}


def is_too_old(db, epoch):
    """Whether an epoch cannot be read any more, after a compaction."""
    db.flush()
    db._playground.manager.compact_range(KeyRange())
    try:
        db.at(epoch).close()
    except EpochTooOld:
        return True
    return False


@pytest.mark.parametrize("history_ms", [3_600_000, 0])
def test_a_reader_catches_up_with_a_table_that_did_not_fail(tmp_path, history_ms):
    """From the changes since the job that it also reads was set aside, else by a rebuild of the reader alone."""
    url = f"file://{tmp_path / 'store'}"
    with connected(url, failed_job_history_ms=history_ms) as db:
        made = feed.feeds(["t"])["t"]
        feed.create(db, "t")
        db.sql("CREATE TABLE other (id BIGINT PRIMARY KEY, v BIGINT)")
        db.sql("CREATE MATERIALIZED VIEW both AS SELECT id FROM t UNION ALL SELECT id FROM other")
        made.add(*range(5), feed.BROKEN, *range(5, 10))
        eventually(lambda: states(db)["both"] == "FAILED")
        db.sql("INSERT INTO other VALUES (101, 0), (102, 0)")
        db.flush()
        db.sql("DELETE FROM other WHERE id = 101")
        if not history_ms:
            eventually(lambda: is_too_old(db, job(db, "both")["epoch"]))
        made.mend()
        db.sql("ALTER TABLE t RESUME")
        eventually(lambda: count_of(db, "t") == 10)
        db.sql("INSERT INTO other VALUES (103, 0)")
        db.flush()
        assert set(states(db).values()) == {"RUNNING"}
        assert sorted(row["id"] for row in db.sql("SELECT id FROM both").rows()) == [*range(10), 102, 103]


@pytest.mark.parametrize("history_ms", [3_600_000, 0])
def test_a_record_that_follows_does_not_undo_the_resume(tmp_path, history_ms):
    """The job gets on from each record that it cannot read to the next."""
    with connected(f"file://{tmp_path / 'store'}", failed_job_history_ms=history_ms) as db:
        failed_with_a_source(db, 1, feed.BROKEN, feed.UNDECODABLE, 2)
        feed.FEEDS["f"].mend()
        with suppress(JobFailed):       # where it is rebuilt, the statement waits for the rows of the table
            db.sql("ALTER MATERIALIZED VIEW v RESUME")
        eventually(lambda: db.failed_jobs and db.failed_jobs[0].is_malformed)
        db.sql("ALTER MATERIALIZED VIEW v RESUME SKIP 1 ROWS")
        db.wait_created()
        check_ids(db, 1, 2, 100)


def failed_with_a_source(db, *records):
    """The view `v` of a table and a source fails at one of the records, and cannot catch up with the table."""
    made = feed.feeds(["f"])["f"]
    columns = feed.COLUMNS.split(", PRIMARY KEY")[0]
    db.sql(f"CREATE SOURCE f ({columns}) WITH (connector = 'feed', name = 'f')")
    db.sql("CREATE TABLE s (id BIGINT PRIMARY KEY)")
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT id FROM s UNION ALL SELECT id FROM f")
    db.sql("CREATE MATERIALIZED VIEW upon AS SELECT COUNT(*) AS n FROM v")
    made.add(*records)
    eventually(lambda: states(db)["v"] == "FAILED")
    db.sql("INSERT INTO s VALUES (100)")
    db.flush()


def check_ids(db, *ids):
    eventually(lambda: count_of(db, "v") == len(ids))
    assert sorted(row["id"] for row in db.sql("SELECT id FROM v").rows()) == sorted(ids)
    assert db.sql("SELECT n FROM upon").rows() == [{"n": len(ids)}]


def test_a_rebuilt_job_skips_the_malformed_rows_of_its_source(tmp_path):
    with connected(f"file://{tmp_path / 'store'}", failed_job_history_ms=0) as db:
        failed_with_a_source(db, 1, feed.UNDECODABLE, 2)
        db.sql("ALTER MATERIALIZED VIEW v RESUME SKIP 1 ROWS")
        check_ids(db, 1, 2, 100)


def test_a_rebuilt_job_skips_what_it_was_allowed_to_skip_before(tmp_path):
    """Of two splits, one after the other, each time from the beginning of both."""
    with connected(f"file://{tmp_path / 'store'}", failed_job_history_ms=0) as db:
        feeds = feed.feeds(["f", "g"])
        for name in feeds:
            db.sql(f"CREATE SOURCE {name} ({feed.COLUMNS.split(', PRIMARY KEY')[0]}) "
                   f"WITH (connector = 'feed', name = '{name}')")
        db.sql("CREATE TABLE s (id BIGINT PRIMARY KEY)")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT id FROM s UNION ALL SELECT id FROM f UNION ALL SELECT id FROM g")
        for first, made in enumerate(feeds.values()):
            made.add(10 * first, feed.UNDECODABLE, 10 * first + 1, feed.UNDECODABLE, 10 * first + 2)
        ids = set()
        for resumed in range(4):
            eventually(lambda: states(db)["v"] == "FAILED")
            db.sql(f"INSERT INTO s VALUES ({100 + resumed})")
            db.flush()
            ids.add(table_id(db, "v"))
            with suppress(JobFailed):       # as long as it fails before it is created
                db.sql("ALTER MATERIALIZED VIEW v RESUME SKIP 1 ROWS")
        db.wait_created()
        assert len(ids) == 4 and table_id(db, "v") not in ids
        eventually(lambda: count_of(db, "v") == 10)
        assert states(db)["v"] == "RUNNING"
        found = sorted(row["id"] for row in db.sql("SELECT id FROM v").rows())
        assert found == [0, 1, 2, 10, 11, 12, 100, 101, 102, 103]


def test_a_job_whose_rebuild_fails_is_set_aside_and_not_dropped(tmp_path):
    url = f"file://{tmp_path / 'store'}"
    with connected(url, failed_job_history_ms=0) as db:
        failed_with_a_source(db, 1, feed.UNDECODABLE, 2, feed.UNDECODABLE, 3)
        for skip in ("", " SKIP 1 ROWS"):
            with suppress(JobFailed):       # if it fails before it is created
                db.sql(f"ALTER MATERIALIZED VIEW v RESUME{skip}")
            eventually(lambda: states(db)["v"] == states(db)["upon"] == "FAILED")
    with connected(url, failed_job_history_ms=0) as db:
        assert states(db)["v"] == "FAILED"
        db.sql("ALTER MATERIALIZED VIEW v RESUME SKIP 2 ROWS")
        db.wait_created()
        check_ids(db, 1, 2, 3, 100)


NEVER_MS = 3_600_000


def test_acknowledged_statements_of_other_tables_stay(tmp_path):
    """Also those of the table whose view failed, with no commit in between."""
    with connected(f"file://{tmp_path / 'store'}", barrier_interval_ms=NEVER_MS) as db:
        with_views(db)
        db.sql("CREATE TABLE other (id BIGINT PRIMARY KEY, name VARCHAR)")
        for number in range(20):
            db.sql(f"INSERT INTO other VALUES ({number}, 'x')")
            db.sql(f"INSERT INTO s VALUES ({1_000 + number}, 'x')")
        db.sql("UPDATE other SET name = 'y' WHERE id < 5")
        db.sql("DELETE FROM other WHERE id >= 15")
        break_view(db, 100)
        db.flush()
        assert count_of(db, "other") == 15 and count_of(db, "s") == 31
        assert len(db.sql("SELECT id FROM other WHERE name = 'y'").rows()) == 5
        check_resumed(db)


def test_a_lost_statement_is_reported_by_the_next_call_of_any_kind(tmp_path, monkeypatch):
    """A statement that always fails its table's job follows an acknowledged one."""
    original = StatementEvaluator.run

    def broken(self, statement):
        if isinstance(statement, DeleteRows):
            raise ZeroDivisionError("injected")
        return original(self, statement)

    monkeypatch.setattr(StatementEvaluator, "run", broken)
    with connected(f"file://{tmp_path / 'store'}", barrier_interval_ms=NEVER_MS) as db:
        db.sql("CREATE TABLE bad (id BIGINT PRIMARY KEY)")
        db.sql("CREATE TABLE good (id BIGINT PRIMARY KEY)")
        db.sql("INSERT INTO bad VALUES (1)")
        db.flush()
        db.sql("INSERT INTO good VALUES (1)")
        db.sql("INSERT INTO bad VALUES (2)")
        with pytest.raises((StatementsLost, JobFailed), match="bad"):
            db.sql("DELETE FROM bad")
        with pytest.raises(StatementsLost, match="'bad'") as caught:
            db.sql("SELECT 1 AS one").rows()
        assert {each.table for each in caught.value.statements} == {"bad"}
        assert states(db) == {"bad": "FAILED", "good": "RUNNING"}
        with pytest.raises(JobFailed):
            db.sql("INSERT INTO bad VALUES (3)")
        db.flush()
        assert count_of(db, "good") == 1
        db.sql("ALTER TABLE bad RESUME")
        db.sql("INSERT INTO bad VALUES (3)")
        db.flush()
        assert [row["id"] for row in db.sql("SELECT id FROM bad ORDER BY id").rows()] == [1, 3]


BAD_FIRST_ROWS = ['{"op": "c", "after": {"id": 1, "v": 1}}', '{"op": "c", "after": {"id": 1, "v": 2}}']


@pytest.mark.parametrize("attempt", range(3))
def test_a_table_that_cannot_store_its_first_rows_is_created_and_set_aside(tmp_path, attempt):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "0.json").write_text("\n".join(BAD_FIRST_ROWS))
    options = f"WITH (connector = 'ndjson', path = '{tmp_path}/files', format = 'debezium')"
    with stream.connect(f"file://{tmp_path}/store", create=True, recovery_backoff_ms=1, barrier_interval_ms=5) as db:
        db.sql(f"CREATE TABLE t (id BIGINT PRIMARY KEY, v INT) {options}")
        db.sql("CREATE TABLE other (id BIGINT PRIMARY KEY); INSERT INTO other VALUES (1); FLUSH")
        (row,) = [row for row in db.sql("SHOW JOBS").to_pylist() if row["name"] == "t"]
        assert row["state"] == "FAILED" and "DuplicateKey" in row["reason"]
        with pytest.raises(JobFailed, match="DuplicateKey"):
            db.sql("SELECT * FROM t").to_arrow()
        assert db.sql("SELECT * FROM other").rows() == [{"id": 1}]
        (tmp_path / "files" / "0.json").write_text(BAD_FIRST_ROWS[0])
        db.sql("ALTER TABLE t RESUME; FLUSH")
        eventually(lambda: db.sql("SELECT * FROM t").rows() == [{"id": 1, "v": 1}])


OVER_SOURCE = ("MATERIALIZED VIEW v AS SELECT id FROM s", "SINK v FROM s WITH (connector = 'digest')")


@pytest.mark.parametrize("kind", OVER_SOURCE)
def test_a_job_over_a_source_whose_first_record_is_malformed_is_set_aside(tmp_path, kind):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "0.json").write_text('{"id": "no number"}\n{"id": 2}\n')
    with stream.connect(f"file://{tmp_path}/store", create=True, recovery_backoff_ms=1, barrier_interval_ms=5) as db:
        db.sql(f"CREATE SOURCE s (id BIGINT) WITH (connector = 'ndjson', path = '{tmp_path}/files')")
        db.sql(f"CREATE {kind}")
        eventually(lambda: [row["state"] for row in db.sql("SHOW JOBS").to_pylist()] == ["FAILED"])
        assert "MalformedRows" in db.sql("SHOW JOBS").to_pylist()[0]["reason"]
        db.sql(f"ALTER {kind.split(' v ')[0]} v RESUME SKIP 1 ROWS; FLUSH")
        eventually(lambda: db.sql("SHOW JOBS").to_pylist()[0]["state"] == "RUNNING")
