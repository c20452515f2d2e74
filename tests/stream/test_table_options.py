"""Tables WITH (ttl, row_format, vnode_count): what statements and queries see, across restarts and compaction."""

from __future__ import annotations

import random
import threading

import pyarrow as pa
import pytest

import stream
from hummock.base.key import KeyRange, vnode_of
from relational.catalog.objects import RowFormat
from relational.errors import BindError, CatalogError, DependencyError
from relational.plan.view import view_of
from stream.errors import BulkLoadRefused, InvalidStatement, StatementError
from tests.support.drivers.seeds import amount, run_seed, seeds
from tests.support.worlds.timed_session import TimedSession

COUNTS = (1, 7, 256, 1_024, 32_768)


@pytest.fixture
def world():
    made = TimedSession(history_ms=60_000)
    yield made
    made.close()


def rows(session, query):
    return sorted((tuple(row.values()) for row in session.sql(query).to_arrow().to_pylist()), key=repr)


def stored(world, name):
    """The user keys of a table's entries in the files, hidden ones too."""
    table, storage = world.table(name), world.session._playground.storage
    return sum(info.rows for info in storage.version.sstables if table.id in info.table_ids)


# -- ttl ---------------------------------------------------------------------------------------------------


def test_a_row_is_there_as_long_as_its_ttl(world):
    db = world.session
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, w TEXT) APPEND ONLY WITH (ttl = '10 seconds')")
    db.sql("CREATE VIEW recent AS SELECT count(*) AS n FROM t")
    world.now_ms += 1_000
    db.flush()                                          # opens the epoch of the row
    db.sql("INSERT INTO t VALUES (1, 'a')")
    born = world.now_ms
    first = db.flush()
    for age, seen in ((0, 1), (5_000, 1), (10_000, 1), (10_001, 0), (20_000, 0)):
        world.now_ms = max(born + age, world.now_ms)
        db.flush()                                      # opens an epoch of that age
        last = db.flush()                               # commits it
        assert (last >> 16) - (first >> 16) in (age, age + 1, age + 2)
        if (last >> 16) - (first >> 16) <= 10_000 or not seen:
            assert len(rows(db, "SELECT * FROM t")) == rows(db, "SELECT * FROM recent")[0][0] == seen, age
    with db.at(first) as snapshot:
        assert snapshot.sql("SELECT id FROM t").to_arrow().to_pylist() == [{"id": 1}], "older epochs still have it"
    world.now_ms += 100_000
    db.flush()
    db.flush()
    world.compact()
    assert stored(world, "t") == 0 and rows(db, "SELECT * FROM t") == []


@pytest.mark.parametrize("seed", seeds(1, 6))
@pytest.mark.parametrize("options", ["", ", row_format = 'cell'", ", vnode_count = 3"])
def test_rows_with_a_ttl_are_those_of_a_model(seed, options):
    """Inserts, repeated keys by every rule, restarts and compaction, at random times."""
    rng = random.Random(f"{run_seed()} {seed} {options}")
    ttl, rule = rng.choice((50, 400, 3_000)), rng.choice(("ERROR", "IGNORE"))
    world = TimedSession(history_ms=rng.choice((0, 1_000)))
    world.session.sql(f"CREATE TABLE t (id INT PRIMARY KEY, v INT) APPEND ONLY ON CONFLICT {rule} "
                      f"WITH (ttl = '{ttl / 1_000} seconds'{options})")
    written, fresh, committed = {}, {}, world.session.committed_epoch >> 16      # key -> (value, epoch ms)
    for _ in range(120):
        action = rng.random()
        if action < 0.5:
            key, value = rng.randrange(12), rng.randrange(1_000)
            # Statements see the rows of the epoch that the last barrier ended, and those of this one.
            is_there = key in fresh or (key in written and committed - written[key][1] <= ttl)
            try:
                count = world.session.sql(f"INSERT INTO t VALUES ({key}, {value})")
            except StatementError:
                assert is_there and rule == "ERROR", (key, committed)
                continue
            assert count == (0 if is_there else 1), (key, committed)
            if not is_there:
                fresh[key] = value
        elif action < 0.9:
            world.now_ms += rng.choice((0, 1, 20, 51, 300, 401, 2_000))
            epoch = world.session.flush() >> 16
            written |= {key: (value, epoch) for key, value in fresh.items()}
            fresh, committed = {}, epoch
        elif action < 0.95:
            world.compact(rng.randint(1, 3))
        else:
            world.restart()
            fresh = {}                                  # the same as a crash: what was not flushed is lost
            committed = world.session.committed_epoch >> 16
        seen = [(key, value) for key, (value, epoch) in written.items() if committed - epoch <= ttl]
        expected = sorted(seen, key=repr)
        assert rows(world.session, "SELECT id, v FROM t") == expected
    world.close()


def test_nothing_follows_a_table_whose_rows_expire(world):
    db = world.session
    db.create_table("t", {"id": "int", "w": "varchar"}, primary_key="id", append_only=True, ttl="1 hour")
    followers = ("CREATE MATERIALIZED VIEW m AS SELECT w, count(*) AS n FROM t GROUP BY w",
                 "CREATE INDEX i ON t (w)", "CREATE SINK k FROM t WITH (connector = 'digest')")
    for text in followers:
        with pytest.raises(BindError, match="rows of table 't' expire"):
            db.sql(text)
    with pytest.raises(BindError, match="rows of table 't' expire"):
        db.create_materialized_view("m", db.table("t"))
    with pytest.raises(BindError, match="rows of table 't' expire"):
        db.create_sink("k", db.table("t"), connector={"connector": "digest"})
    for text in ("UPDATE t SET w = 'x'", "DELETE FROM t"):
        with pytest.raises(BindError, match="append-only"):
            db.sql(text)
    with pytest.raises(BindError, match="APPEND ONLY"):
        db.create_table("u", {"id": "int"}, primary_key="id", ttl="1 hour")
    with pytest.raises(BindError, match="ttl is an interval"):
        db.create_table("u", {"id": "int"}, append_only=True, ttl="soon")
    assert db.names() == ("t",)


def test_a_ttl_that_is_set_later_holds_for_all_rows(world):
    db = world.session
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, w TEXT) APPEND ONLY")
    db.sql("INSERT INTO t VALUES (1, 'a')")
    world.now_ms += 10_000
    db.flush()
    db.sql("INSERT INTO t VALUES (2, 'b')")
    db.flush()
    assert len(rows(db, "SELECT * FROM t")) == 2
    with pytest.raises(StatementError):
        db.sql("INSERT INTO t VALUES (1, 'again')")
    db.sql("ALTER TABLE t SET (ttl = '5 seconds')")
    for _ in range(2):
        db.flush()
    assert rows(db, "SELECT * FROM t") == [(2, "b")]
    assert db.sql("INSERT INTO t VALUES (1, 'again')") == 1
    db.flush()
    db.set_ttl("t", "2 seconds")
    assert world.version.tables[world.table("t").id].ttl_ms == world.table("t").ttl_ms == 2_000
    (definition,) = db.sql("SHOW CREATE TABLE t")["definition"].to_pylist()
    assert definition.endswith("APPEND ONLY WITH (ttl = '00:00:02')")
    world.now_ms += 100_000
    for _ in range(3):
        db.flush()
    assert rows(db, "SELECT * FROM t") == []
    world.compact()
    assert stored(world, "t") == 0
    world.restart()
    db = world.session
    assert db.sql("INSERT INTO t VALUES (1, 'c')") == 1
    db.flush()
    assert rows(db, "SELECT * FROM t") == [(1, "c")]


def test_a_ttl_that_cannot_be_set(world):
    db = world.session
    db.sql("CREATE TABLE t (id INT PRIMARY KEY) APPEND ONLY; CREATE MATERIALIZED VIEW v AS SELECT id FROM t")
    db.sql("CREATE TABLE u (id INT PRIMARY KEY)")
    draft = view_of("w", db.sql("SELECT id FROM t").plan, "")[0]
    with pytest.raises(DependencyError, match="followed by v"):
        db.sql("ALTER TABLE t SET (ttl = '1 hour')")
    db.sql("DROP MATERIALIZED VIEW v; ALTER TABLE t SET (ttl = '1 hour')")
    with pytest.raises(CatalogError, match="only be made shorter"):
        db.set_ttl("t", "2 hours")
    with pytest.raises(CatalogError, match="APPEND ONLY"):
        db.set_ttl("u", "2 hours")
    with pytest.raises(BindError, match="expire by its ttl"):  # bound before
        db._playground.meta.ddl.create_job(draft)


def test_a_ttl_survives_restarts_and_changes_of_columns(world):
    world.session.sql("CREATE TABLE t (id INT PRIMARY KEY) APPEND ONLY WITH (ttl = '1 second')")
    world.session.sql("ALTER TABLE t ADD COLUMN note TEXT DEFAULT 'none'")
    world.restart()
    assert world.version.tables[world.table("t").id].ttl_ms == world.table("t").ttl_ms == 1_000
    definition = world.session.sql("SHOW CREATE TABLE t")["definition"][0].as_py()
    assert definition.endswith("APPEND ONLY WITH (ttl = '00:00:01')")
    world.session.sql("DROP TABLE t")
    assert world.version.tables == {}


# -- row_format --------------------------------------------------------------------------------------------


WIDE = 12


class Wide:
    """The same statements on a table of each format."""

    def __init__(self, world, rng):
        self.world, self.rng, self.added = world, rng, 0
        self.columns = [f"c{number}" for number in range(WIDE)]
        kinds = ("INT", "TEXT", "DOUBLE", "BIGINT[]")
        declared = ", ".join(f"{name} {kinds[at % 4]}" for at, name in enumerate(self.columns))
        for name, options in (("rowed", ""), ("celled", " WITH (row_format = 'cell', vnode_count = 5)")):
            key = "PRIMARY KEY (a, b)"
            self.both(f"CREATE TABLE {name} (a INT, b TEXT, {declared}, {key}) ON CONFLICT OVERWRITE{options}", name)
            self.both(f"CREATE MATERIALIZED VIEW {name}_v AS SELECT b, count(c0) AS n, min(c0) AS lo, max(c1) AS hi "
                      f"FROM {name} GROUP BY b", name)

    def both(self, text, only=None):
        found = [self.world.session.sql(text.replace("@", name)) for name in ("rowed", "celled")
                 if only in (None, name)]
        assert len(set(map(repr, found))) == 1 or only

    def value(self, column):
        at = int(column[1:])
        if self.rng.random() < 0.2:
            return "NULL"
        return (str(self.rng.randrange(99)), f"'{'x' * self.rng.randrange(30)}'", f"{self.rng.random():.3f}",
                f"ARRAY[{self.rng.randrange(9)}::BIGINT]")[at % 4]

    def step(self):
        action, low = self.rng.random(), self.rng.randrange(20)
        if action < 0.35:
            cells = ", ".join(map(self.value, self.columns))
            names = ", ".join(self.columns)
            self.both(f"INSERT INTO @ (a, b, {names}) VALUES ({low}, 'k{self.rng.randrange(3)}', {cells})")
        elif action < 0.65:
            column = self.rng.choice(self.columns)
            self.both(f"UPDATE @ SET {column} = {self.value(column)} WHERE a < {low}")
        elif action < 0.75:
            self.both(f"DELETE FROM @ WHERE a = {low}")
        elif action < 0.8 and len(self.columns) > 2:
            gone = self.columns.pop(self.rng.randrange(2, len(self.columns)))
            self.both(f"ALTER TABLE @ DROP COLUMN {gone}")
        elif action < 0.85:
            self.added += 4
            self.columns.append(f"c{WIDE + self.added}")
            self.both(f"ALTER TABLE @ ADD COLUMN {self.columns[-1]} INT")
        elif action < 0.95:
            self.world.session.flush()
            self.check()
        else:
            self.world.session.flush()
            self.world.compact(self.rng.randint(1, 4))
            if self.rng.random() < 0.5:
                self.world.restart()
            self.check()

    def check(self):
        for query in ("SELECT * FROM @", "SELECT * FROM @_v", "SELECT c0 FROM @ WHERE a = 7 AND b = 'k1'"):
            found = [rows(self.world.session, query.replace("@", name)) for name in ("rowed", "celled")]
            assert found[0] == found[1], query


@pytest.mark.parametrize("seed", seeds(1, 4))
def test_a_table_with_an_entry_per_value_has_the_same_rows(seed):
    world = TimedSession()
    wide = Wide(world, random.Random(f"{run_seed()} {seed}"))
    for _ in range(100):
        wide.step()
    world.session.flush()
    wide.check()
    world.close()


def test_an_update_of_one_column_writes_one_entry(world):
    db = world.session
    columns = ", ".join(f"c{number} BIGINT" for number in range(30))
    written = {}
    for name, options in (("rowed", ""), ("celled", "WITH (row_format = 'cell')")):
        db.sql(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, {columns}) {options}")
        db.table(name).insert(pa.table({"id": range(500), **{f"c{n}": [n] * 500 for n in range(30)}}))
        db.flush()
        before = db._playground.storage.stats()
        assert db.sql(f"UPDATE {name} SET c7 = id") == 500
        db.flush()
        after = db._playground.storage.stats()
        written[name] = (after.ingested_rows - before.ingested_rows, after.ingested_bytes - before.ingested_bytes)
    assert (written["rowed"][0], written["celled"][0]) == (500, 499), "one has the value already"
    assert written["celled"][1] * 4 < written["rowed"][1]


def test_a_lookup_of_one_row_of_entries_is_filtered(world):
    """By the rule that has the key of the row: its entries have longer keys."""
    world.session.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT) WITH (row_format = 'cell')")
    table = world.table("t")
    assert world.version.tables[table.id].prefix.columns
    world.session.sql("INSERT INTO t VALUES (1, 1), (2, 2)")
    world.session.flush()
    assert {info.prefixes for info in world.version.sstables if table.id in info.table_ids} == {
        ((table.id, world.version.tables[table.id].prefix),)}


def test_what_a_table_of_entries_cannot_do_is_refused(world, tmp_path):
    db = world.session
    db.create_table("t", {"id": "int", "v": "int"}, primary_key="id", row_format="cell", defaults={"v": 5})
    assert world.table("t").row_format is RowFormat.CELL
    db.table("t").insert([{"id": 1}, (2, None)])
    db.flush()
    assert rows(db, "SELECT * FROM t") == [(1, 5), (2, None)], "NULL that was inserted is not the default"
    with pytest.raises(CatalogError, match="no entry for NULL"):
        db.add_column("t", "w", "int", default=1)
    with pytest.raises(BindError, match="row_format is 'row' or 'cell'"):
        db.create_table("u", {"id": "int"}, row_format="column")
    with stream.connect(f"file://{tmp_path}/store", create=True) as other:
        other.create_table("t", {"id": "bigint"}, primary_key="id", row_format="cell")
        with pytest.raises(BulkLoadRefused, match="row format is cell"):
            other.bulk_load(None, "t")


# -- vnode_count -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", COUNTS)
def test_tables_and_views_with_any_number_of_vnodes(count):
    world = TimedSession()
    rng = random.Random(f"{run_seed()} {count}")
    for text in (f"CREATE TABLE t (id BIGINT PRIMARY KEY, g INT, v INT) WITH (vnode_count = {count})",
                 f"CREATE TABLE keyless (w TEXT) WITH (vnode_count = {count})",
                 f"CREATE MATERIALIZED VIEW m WITH (vnode_count = {count}) AS "
                 "SELECT g, count(*) AS n, min(v) AS lo, min(v::text) AS low, sum(v) AS total FROM t GROUP BY g",
                 f"CREATE MATERIALIZED VIEW p WITH (vnode_count = {count}) AS SELECT id, v + 1 AS w FROM t WHERE v > 5",
                 "CREATE INDEX i ON t (g)"):
        world.session.sql(text)
    named = ("t", "keyless", "m", "p", "i", "m.agg0.groups", "m.agg0.overflow1", "m.agg0.call2")
    assert {name: world.table(name).vnode_count for name in named} == dict.fromkeys(named, count)
    model, words = {}, 0
    for turn in range(amount(4, 8)):
        for _ in range(30):
            key = rng.randrange(60)
            if key in model and rng.random() < 0.5:
                del model[key]
                world.session.sql(f"DELETE FROM t WHERE id = {key}")
            elif key not in model:
                model[key] = (rng.randrange(5), rng.randrange(20))
                world.session.sql(f"INSERT INTO t VALUES ({key}, {model[key][0]}, {model[key][1]})")
        world.session.sql("INSERT INTO keyless VALUES ('a'), ('b')")
        words += 2
        world.session.flush()
        if turn % 3 == 1:
            world.compact()
            world.restart()
        check_view_of(world.session, model, words)
    assert_vnodes(world, [name for name in named if name != "m.agg0.overflow1"], count)     # it has no rows
    world.close()


def check_view_of(session, model, words):
    assert rows(session, "SELECT * FROM t") == sorted(((key, *row) for key, row in model.items()), key=repr)
    assert rows(session, "SELECT count(*) AS n FROM keyless") == [(words,)]
    groups = {}
    for group, value in model.values():
        groups.setdefault(group, []).append(value)
    assert rows(session, "SELECT g, n, lo, low, total FROM m") == sorted(
        ((group, len(values), min(values), min(map(str, values)), sum(values)) for group, values in groups.items()),
        key=repr)
    assert rows(session, "SELECT id, w FROM p") == sorted(
        ((key, value + 1) for key, (_, value) in model.items() if value > 5), key=repr)
    assert len(rows(session, "SELECT id FROM t WHERE id = 7")) == (7 in model)


def assert_vnodes(world, names, count):
    """Every stored key is in a vnode that the table has, and many of them are used."""
    storage = world.session._playground.storage
    for name in names:
        with storage.scan(KeyRange.table(world.table(name).id), storage.committed_epoch) as found:
            used = {vnode_of(key) for key, _ in found}
        assert used and max(used) < count
        if name == "t":
            assert len(used) >= min(count, 7)


def test_a_view_with_other_vnodes_than_its_table(world):
    db = world.session
    db.create_table("t", {"id": "int", "v": "int"}, primary_key="id", vnode_count=3)
    view = db.create_materialized_view("v", db.table("t"), vnode_count=1_000)
    db.table("t").insert([(number, number) for number in range(50)])
    db.flush()
    assert rows(db, "SELECT * FROM v") == rows(db, "SELECT * FROM t") and view.table.vnode_count == 1_000
    for bad in (0, 32_769, "many", True, None, 1.5):
        with pytest.raises(BindError, match="whole number of 1 to 32768"):
            db.create_materialized_view("w", db.table("t"), vnode_count=bad)
        with pytest.raises(BindError, match="whole number of 1 to 32768"):
            db.create_table("w", {"id": "int"}, vnode_count=bad)


def test_statements_that_fail_leave_no_object(world):
    for options in ("vnode_count = 0", "ttl = '1 hour'", "row_format = 'x'", "nothing = 1"):
        with pytest.raises(BindError):
            world.session.sql(f"CREATE TABLE t (id INT) WITH ({options})")
    with pytest.raises((BindError, InvalidStatement)):
        world.session.sql("INSERT INTO t VALUES (1)")
    assert world.session.names() == () and world.version.tables == {}


@pytest.mark.parametrize("detached_bytes", [32 << 20, 0], ids=["in the graph", "apart"])
def test_a_view_over_cells_reads_each_row_once_while_statements_change_them(detached_bytes):
    """Slices end within vnodes: the one behind a row begins behind all of its entries."""
    rng, row_count = random.Random(run_seed()), 1_500
    options = {"barrier_interval_ms": 2, "snapshot_slice_rows": 3, "detached_creation_bytes": detached_bytes}
    with stream.connect("memory://", **options) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT, w VARCHAR) ON CONFLICT OVERWRITE "
               "WITH (row_format = 'cell', vnode_count = 2)")
        db.table("t").insert([(number, 1, None if number % 7 == 0 else "x") for number in range(row_count)], flush=True)
        is_over = threading.Event()

        def change():
            while not is_over.is_set():
                low = rng.randrange(row_count)
                db.sql(rng.choice([f"DELETE FROM t WHERE id BETWEEN {low} AND {low + 9}",
                                   f"UPDATE t SET v = v + 1 WHERE id BETWEEN {low} AND {low + 9}",
                                   f"INSERT INTO t SELECT n, 5, 'y' FROM generate_series({low}, {low + 3}) AS g(n)"]))

        for number in range(amount(2, 8)):
            changes = threading.Thread(target=change)
            changes.start()
            try:
                db.sql(f"CREATE MATERIALIZED VIEW m{number} AS SELECT count(*) AS n, sum(v) AS s, count(w) AS w FROM t")
                db.sql(f"CREATE MATERIALIZED VIEW c{number} AS SELECT id, v, w FROM t")
            finally:
                is_over.set()
                changes.join()
                is_over.clear()
            db.flush()
            counted = "SELECT count(*) AS n, sum(v) AS s, count(w) AS w FROM t"
            assert rows(db, f"SELECT * FROM m{number}") == rows(db, counted)
            assert rows(db, f"SELECT * FROM c{number}") == rows(db, "SELECT id, v, w FROM t")
            db.sql(f"DROP MATERIALIZED VIEW m{number}; DROP MATERIALIZED VIEW c{number}")
