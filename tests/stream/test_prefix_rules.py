"""Prefix rules of state tables: lookups of a running view skip the files and blocks that do not have their group."""

from __future__ import annotations

import random
import shutil

import pyarrow as pa
import pytest

import stream
from hummock.meta.hummock_manager import HummockManager
from hummock.options import StorageOptions
from relational.errors import Duplicate
from relational.table.store_rules import prefix_of, rules_of
from tests.reliability.golden_store import GOLDEN
from tests.support.drivers.seeds import run_seed
from tests.support.servers.counting_object_store import CountingObjectStore
from tests.support.worlds.timed_session import TimedSession

FILES, GROUPS, ROWS = 24, 40, 12       # groups of a file, rows of a group
VIEW = "CREATE MATERIALIZED VIEW lows AS SELECT g, min(v::text) AS lo, count(*) AS n FROM t GROUP BY g"


def filled(policy: str) -> TimedSession:
    """A view whose state is in FILES files over the same keys, each with groups of its own; nothing is compacted."""
    storage = StorageOptions(filter_policy=policy, block_bytes=500, inline_bytes=0, block_cache_bytes=1 << 20)
    world = TimedSession(CountingObjectStore(), storage=storage)
    world.session.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, g BIGINT, v BIGINT)")
    world.session.sql(VIEW)
    for number in range(FILES):
        groups = [group for group in range(number, FILES * GROUPS, FILES) for _ in range(ROWS)]
        ids = range(number * GROUPS * ROWS, (number + 1) * GROUPS * ROWS)
        world.session.table("t").insert(pa.table({"id": ids, "g": groups, "v": [id % ROWS for id in ids]}))
        world.session.flush()
    return world


def refilled(world: TimedSession, groups: list[int]) -> tuple[int, int]:
    """(files, reads of blocks) of the epoch in which these groups lose their least row."""
    objects, chosen = world.session._playground.object_store, ", ".join(map(str, groups))
    assert world.session.sql(f"DELETE FROM t WHERE v = 0 AND g IN ({chosen})") == len(groups)
    objects.reads.clear()                               # the statement scanned the table; the view reads at the barrier
    world.session.flush()
    reads = objects.data_reads
    found = world.session.sql(f"SELECT g, lo, n FROM lows WHERE g IN ({chosen})").rows()
    assert sorted(row["g"] for row in found) == sorted(groups) and {(row["lo"], row["n"]) for row in found} == {
        ("1", ROWS - 1)}
    return len(set(reads)), len(reads)


def test_a_view_reads_the_files_and_blocks_that_have_its_groups():
    groups = [FILES * 7 + 5, FILES * 20 + 5, FILES * 33 + 9]        # in two of the files
    found = {}
    for policy in ("blocked_bloom", "none"):
        world = filled(policy)
        kept = world.table("lows.agg0.call0")
        assert kept.prefix_columns == 1 and world.version.tables[kept.id] == rules_of(kept)
        infos = [info for info in world.version.sstables if kept.id in info.table_ids]
        assert len(infos) == FILES
        rule = prefix_of(kept)
        assert {dict(info.prefixes).get(kept.id) for info in infos} == {rule}, "even of the first rows of the view"
        found[policy] = refilled(world, groups)
        world.close()
    print(f"\nfiles and blocks read: {found}")
    (files, blocks), (all_files, all_blocks) = found["blocked_bloom"], found["none"]
    assert 2 <= files <= 6 and blocks <= 9, found
    assert all_files >= FILES - 4 and all_blocks >= 4 * blocks, found


def test_a_rule_enters_with_the_table_and_ends_with_it():
    world = TimedSession()
    known = world.session._playground.manager
    world.session.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, g BIGINT, v BIGINT)")
    assert known.version.tables == {}
    before = known.version.id
    world.session.sql(VIEW)
    kept = world.table("lows.agg0.call0")
    assert known.version.tables == {kept.id: rules_of(kept)} and known.version.id > before
    world.restart()
    assert world.version.tables == {kept.id: rules_of(kept)}
    with pytest.raises(Duplicate):
        world.session.sql(VIEW)
    assert set(world.version.tables) == {kept.id}
    world.session.sql("DROP MATERIALIZED VIEW lows")
    assert world.version.tables == {}
    world.close()


def test_a_compaction_keeps_the_prefixes():
    world = filled("blocked_bloom")
    kept = world.table("lows.agg0.call0")
    assert world.compact() > 0
    infos = [info for info in world.version.sstables if kept.id in info.table_ids]
    assert len(infos) > 1 and {dict(info.prefixes).get(kept.id) for info in infos} == {prefix_of(kept)}
    world.restart()
    assert refilled(world, [1, 2, 3]) >= (1, 1)
    world.close()


def test_a_store_of_an_older_release_gets_its_rules_when_it_is_opened(tmp_path, monkeypatch):
    """Its tables stay as they are; files that are written from now on have prefixes."""
    shutil.copytree(GOLDEN / "views-3" / "store", tmp_path / "store")
    for _ in range(2):
        with stream.connect(f"file://{tmp_path}/store", create=True, barrier_interval_ms=3_600_000) as session:
            playground = session._playground
            wanted = {table.id: rules_of(table) for table in playground.catalog.snapshot.tables.values()}
            wanted = {table_id: rules for table_id, rules in wanted.items() if not rules.is_empty}
            assert len(wanted) > 3 and playground.manager.version.tables == wanted
        monkeypatch.setattr(HummockManager, "set_rules", lambda *_: pytest.fail("they are set again"))


@pytest.mark.parametrize("seed", range(3))
def test_a_view_with_filters_equals_its_query(seed):
    """Deletes and inserts of extremes in random groups, with restarts, spills and compaction."""
    rng = random.Random(f"{run_seed()} {seed}")
    storage = StorageOptions(block_bytes=rng.choice((100, 4_000)), shared_buffer_bytes=rng.choice((20_000, 1 << 20)))
    world = TimedSession(storage=storage, aggregation_flush_groups=rng.choice((3, 1_000)),
                         state_cache_bytes=rng.choice((1, 1 << 20)))
    world.session.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, g VARCHAR, h INT, v BIGINT)")
    query = "SELECT g, h, min(v) AS lo, max(v) AS hi, max(v::text) AS last, count(*) AS n FROM t GROUP BY g, h"
    world.session.sql(f"CREATE MATERIALIZED VIEW extremes WITH (vnode_count = {rng.choice((1, 9, 256))}) AS {query}")
    for turn in range(25):
        texts = [f"'{'group' * rng.randrange(4)}{rng.randrange(4)}'" for _ in range(40)]
        groups = [text if rng.random() < 0.9 else "NULL" for text in texts]
        cells = [f"({1_000 * turn + at}, {group}, {rng.randrange(2)}, {rng.randrange(50)})"
                 for at, group in enumerate(groups)]
        world.session.sql(f"INSERT INTO t VALUES {', '.join(cells)}")
        world.session.sql(f"DELETE FROM t WHERE v {rng.choice('<>')} 25 AND id % 5 = {rng.randrange(5)}")
        world.session.flush()
        if rng.random() < 0.3:
            world.compact(rng.randint(1, 3))
        if rng.random() < 0.2:
            world.restart()
        seen, wanted = world.session.sql("SELECT * FROM extremes").rows(), world.session.sql(query).rows()
        assert sorted(map(repr, seen)) == sorted(map(repr, wanted)), turn
    world.close()
