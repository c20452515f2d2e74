"""StateStoreSuite: the contract of every StateStore. A test class subclasses it and provides a `store` fixture.

Epochs are named e1 < e2 < e3; keys are short byte strings, which the store must order like any user keys.
"""

from __future__ import annotations

import random
import threading

import numpy as np
import pyarrow as pa
import pytest

from hummock.base.key import KeyRange, user_key
from hummock.base.table_rules import PrefixRule, TableRules
from hummock.columnar.binary_column import BinaryColumn
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import Epoch
from hummock.errors import InvalidEpoch, InvalidWriteBatch, StoreClosed, WaitEpochTimeout

E1, E2, E3 = (Epoch(number << 16) for number in (1, 2, 3))
EVERYTHING = KeyRange(b"", None)


def pairs(store, epoch, key_range=EVERYTHING, **how):
    with store.scan(key_range, epoch, **how) as rows:
        return list(rows)


def under(store, prefixes, epoch, **how):
    owners, batch = store.scan_prefixes(pa.array(prefixes, pa.binary()), epoch, **how)
    assert owners.dtype == np.int32
    assert len(owners) == len(batch)
    return [(int(owner), *pair) for owner, pair in zip(owners, batch, strict=True)]


def from_starts(store, starts, epoch, ends=None, **how):
    bounds = None if ends is None else pa.array(ends, pa.binary())
    owners, batch = store.scan_many(pa.array(starts, pa.binary()), epoch, ends=bounds, **how)
    assert owners.dtype == np.int32
    return [(int(owner), *pair) for owner, pair in zip(owners, batch, strict=True)]


def changed(store, since, until, key_range=EVERYTHING):
    with store.changes(key_range, since, until) as feed:
        return list(feed)


class StateStoreSuite:
    """Each test runs against every implementation, with data in memory and, by `settle`, in files."""

    @pytest.fixture(params=["unsynced", "committed"])
    def settle(self, request, store):
        """Leaves the data of an epoch in memory, or commits it, before it is read."""
        return store.commit if request.param == "committed" else lambda epoch: None

    def two_epochs(self, store, settle):
        store.ingest_batch(WriteBatch([(b"a", b"1"), (b"b", b"2")]), E1)
        settle(E1)
        store.ingest_batch(WriteBatch([(b"a", None), (b"b", b"3")]), E2)
        settle(E2)

    # -- examples ----------------------------------------------------------------------------------------

    def test_a_sorted_unique_batch_is_valid(self, store):
        batch = WriteBatch([(b"a", b"1"), (b"b", b"2")])
        assert store.ingest_batch(batch, E1) > 0

    @pytest.mark.parametrize(
        "operations",
        [[(b"a", b"1"), (b"a", None), (b"b", b"2")], [(b"b", b"1"), (b"a", b"2")]],
        ids=["two operations on a key", "keys out of order"],
    )
    def test_an_unsorted_or_repeating_batch_is_invalid(self, operations):
        with pytest.raises(InvalidWriteBatch):
            WriteBatch(operations)

    def test_reads_at_epochs_one_and_two(self, store, settle):
        store.ingest_batch(WriteBatch([(b"a", b"1"), (b"b", b"2")]), E1)
        settle(E1)
        store.ingest_batch(WriteBatch([(b"a", b"3"), (b"b", b"4")]), E2)
        settle(E2)
        assert pairs(store, E2) == [(b"a", b"3"), (b"b", b"4")]
        assert pairs(store, E1) == [(b"a", b"1"), (b"b", b"2")]
        assert [store.get(key, E1) for key in (b"a", b"b")] == [b"1", b"2"]
        assert [store.get(key, E2) for key in (b"a", b"b")] == [b"3", b"4"]

    # -- visibility --------------------------------------------------------------------------------------

    def test_a_write_is_visible_here_at_once(self, store):
        store.ingest_batch(WriteBatch([(b"a", b"1")]), E1)
        assert store.get(b"a", E1) == b"1"

    def test_a_read_below_the_write_does_not_see_it(self, store, settle):
        store.ingest_batch(WriteBatch([(b"a", b"1")]), E2)
        settle(E2)
        assert store.get(b"a", E1) is None
        assert pairs(store, E1) == []

    def test_tombstone_hides_older_put(self, store, settle):
        self.two_epochs(store, settle)
        assert store.get(b"a", E2) is None
        assert pairs(store, E2) == [(b"b", b"3")]
        assert store.get(b"a", E1) == b"1"

    def test_a_later_batch_of_one_epoch_wins(self, store, settle):
        store.ingest_batch(WriteBatch([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")]), E1)
        store.ingest_batch(WriteBatch([(b"a", b"2"), (b"b", None)]), E1)
        store.ingest_batch(WriteBatch([(b"b", b"3"), (b"d", b"3")]), E1)
        settle(E1)
        expected = [(b"a", b"2"), (b"b", b"3"), (b"c", b"1"), (b"d", b"3")]
        assert pairs(store, E1) == expected
        assert pairs(store, E1, reverse=True) == expected[::-1]
        assert [store.get(key, E1) for key, _ in expected] == [value for _, value in expected]

    def test_epochs_may_be_written_out_of_order(self, store):
        store.ingest_batch(WriteBatch([(b"a", b"new")]), E2)
        store.ingest_batch(WriteBatch([(b"a", b"old")]), E1)
        assert store.get(b"a", E2) == b"new"
        assert store.get(b"a", E1) == b"old"

    def test_an_empty_value_is_not_a_delete(self, store, settle):
        store.ingest_batch(WriteBatch([(b"a", b""), (b"b", None)]), E1)
        settle(E1)
        assert store.get(b"a", E1) == b""
        assert pairs(store, E1) == [(b"a", b"")]

    def test_a_key_that_begins_another_is_its_own_key(self, store, settle):
        written = [(b"", b"0"), (b"a", b"1"), (b"a\x00", b"2"), (b"a\x00\x00", b"3"), (b"a\xff\xff", b"4")]
        store.ingest_batch(WriteBatch(written), E1)
        settle(E1)
        store.ingest_batch(WriteBatch([(b"a", b"1'"), (b"a\x00\x00", None)]), E2)
        settle(E2)
        assert pairs(store, E1) == written
        assert pairs(store, E2) == [(b"", b"0"), (b"a", b"1'"), (b"a\x00", b"2"), (b"a\xff\xff", b"4")]
        assert [store.get(key, E1) for key, _ in written] == [value for _, value in written]

    # -- get_many ----------------------------------------------------------------------------------------

    def test_get_many_answers_in_the_order_asked(self, store, settle):
        self.two_epochs(store, settle)
        keys = pa.array([b"b", b"nothing", b"a", b"b"], pa.binary())
        assert store.get_many(keys, E1).to_arrow().to_pylist() == [b"2", None, b"1", b"2"]
        assert store.get_many(keys, E2).to_arrow().to_pylist() == [b"3", None, None, b"3"]

    def test_get_many_of_nothing_is_nothing(self, store):
        assert len(store.get_many(pa.array([], pa.binary()), E1)) == 0

    def test_get_many_honours_a_slice(self, store, settle):
        self.two_epochs(store, settle)
        keys = pa.array([b"x", b"b", b"a"], pa.binary()).slice(1)
        assert store.get_many(keys, E1).to_arrow().to_pylist() == [b"2", b"1"]

    def test_get_many_takes_its_own_answers(self, store, settle):
        store.ingest_batch(WriteBatch([(b"a", b"b"), (b"b", b"c")]), E1)
        settle(E1)
        column = store.get_many(BinaryColumn.from_pylist([b"a"]), E1)
        assert store.get_many(column, E1).to_arrow().to_pylist() == [b"c"]

    # -- scan --------------------------------------------------------------------------------------------

    def ten_keys(self, store, settle):
        store.ingest_batch(WriteBatch([(b"%d" % n, b"v%d" % n) for n in range(10)]), E1)
        settle(E1)
        return [(b"%d" % n, b"v%d" % n) for n in range(10)]

    def test_scan_is_half_open(self, store, settle):
        rows = self.ten_keys(store, settle)
        assert pairs(store, E1, KeyRange(b"3", b"6")) == rows[3:6]
        assert pairs(store, E1, KeyRange(b"3", b"6"), reverse=True) == rows[3:6][::-1]
        assert pairs(store, E1, KeyRange(b"35", b"61")) == rows[4:7]
        assert pairs(store, E1, KeyRange(b"35", b"61"), reverse=True) == rows[4:7][::-1]

    def test_scan_of_an_empty_range_gives_nothing(self, store, settle):
        self.ten_keys(store, settle)
        assert pairs(store, E1, KeyRange(b"3", b"3")) == []
        assert pairs(store, E1, KeyRange(b"a", b"b")) == []
        assert pairs(store, E1, KeyRange(b"a", b"b"), reverse=True) == []

    @pytest.mark.parametrize("reverse", [False, True])
    @pytest.mark.parametrize("limit", [0, 1, 4, 100])
    def test_scan_stops_at_its_limit(self, store, settle, reverse, limit):
        rows = self.ten_keys(store, settle)
        expected = (rows[::-1] if reverse else rows)[:limit]
        assert pairs(store, E1, reverse=reverse, limit=limit) == expected

    def test_scan_hands_out_batches_of_the_size_asked(self, store, settle):
        rows = self.ten_keys(store, settle)
        with store.scan(EVERYTHING, E1) as scan:
            batches = [scan.next_batch(4), scan.next_batch(4), scan.next_batch(4), scan.next_batch(4)]
        assert [len(batch) for batch in batches[:3]] == [4, 4, 2]
        assert batches[3] is None
        assert [pair for batch in batches[:3] for pair in batch] == rows

    def test_scan_goes_to_arrow(self, store, settle):
        rows = self.ten_keys(store, settle)
        table = store.scan(EVERYTHING, E1).to_arrow()
        assert table.column_names == ["key", "value"]
        assert table.to_pylist() == [{"key": key, "value": value} for key, value in rows]
        assert pa.table(store.scan(EVERYTHING, E1)) == table
        assert store.scan(KeyRange(b"a", None), E1).to_arrow().num_rows == 0

    def test_scan_sees_the_view_of_its_beginning(self, store):
        store.ingest_batch(WriteBatch([(b"a", b"1"), (b"b", b"2")]), E1)
        scan = store.scan(EVERYTHING, E1)
        store.ingest_batch(WriteBatch([(b"a", b"x"), (b"c", b"x")]), E1)
        store.commit(E1)
        assert list(scan) == [(b"a", b"1"), (b"b", b"2")]

    def test_tables_do_not_mix(self, store, settle):
        written = [(user_key(table, 0, b"k"), b"%d" % table) for table in (1, 2, 3)]
        store.ingest_batch(WriteBatch(written), E1)
        settle(E1)
        assert pairs(store, E1, KeyRange.table(2)) == written[1:2]

    # -- scan_prefixes -----------------------------------------------------------------------------------

    def test_rows_under_many_prefixes(self, store, settle):
        written = [(b"a1", b"1"), (b"a2", b"2"), (b"b1", b"3"), (b"c1", b"4"), (b"c2", b"5"), (b"c3", b"6")]
        store.ingest_batch(WriteBatch(written), E1)
        settle(E1)
        store.ingest_batch(WriteBatch([(b"a1", None), (b"b2", b"7")]), E2)
        settle(E2)
        assert under(store, [b"c", b"a", b"x", b"c1"], E1) == [
            (0, b"c1", b"4"), (0, b"c2", b"5"), (0, b"c3", b"6"),
            (1, b"a1", b"1"), (1, b"a2", b"2"),
            (3, b"c1", b"4"),
        ]  # fmt: skip
        assert under(store, [b"a", b"b"], E2) == [(0, b"a2", b"2"), (1, b"b1", b"3"), (1, b"b2", b"7")]
        assert under(store, [b"a", b"c"], E2, limit=1) == [(0, b"a2", b"2"), (1, b"c1", b"4")]
        assert under(store, [b"c", b"a"], E1, limit=2, reverse=True) == [
            (0, b"c3", b"6"), (0, b"c2", b"5"), (1, b"a2", b"2"), (1, b"a1", b"1"),
        ]  # fmt: skip
        assert under(store, [], E1) == []

    def test_a_prefix_of_all_ones_has_no_upper_end(self, store, settle):
        store.ingest_batch(WriteBatch([(b"\xfe", b"1"), (b"\xff\xff", b"2"), (b"\xff\xff\xff", b"3")]), E1)
        settle(E1)
        assert under(store, [b"\xff\xff"], E1) == [(0, b"\xff\xff", b"2"), (0, b"\xff\xff\xff", b"3")]
        assert under(store, [b"\xff"], E1, reverse=True, limit=1) == [(0, b"\xff\xff\xff", b"3")]

    # -- scan_many ---------------------------------------------------------------------------------------

    def test_short_scans_from_many_starts(self, store, settle):
        rows = self.ten_keys(store, settle)
        store.ingest_batch(WriteBatch([(b"4", None), (b"55", b"new")]), E2)
        settle(E2)
        assert from_starts(store, [b"8", b"35", b"x", b"8"], E1, limit=2) == [
            (0, *rows[8]), (0, *rows[9]), (1, *rows[4]), (1, *rows[5]), (3, *rows[8]), (3, *rows[9]),
        ]  # fmt: skip
        assert from_starts(store, [b"3"], E2, limit=3) == [(0, *rows[3]), (0, *rows[5]), (0, b"55", b"new")]
        assert from_starts(store, [b""], E1) == [(0, *row) for row in rows]
        assert from_starts(store, [], E1, limit=1) == []
        assert from_starts(store, [b"", b"5"], E1, limit=0) == []

    def test_short_scans_end_at_their_given_ends(self, store, settle):
        rows = self.ten_keys(store, settle)
        assert from_starts(store, [b"3", b"7", b"5", b"8"], E1, ends=[b"5", b"7", b"4", None]) == [
            (0, *rows[3]), (0, *rows[4]), (3, *rows[8]), (3, *rows[9]),
        ]  # fmt: skip
        with pytest.raises(ValueError):
            from_starts(store, [b"3", b"7"], E1, ends=[b"5"])

    # -- changes -----------------------------------------------------------------------------------------

    def test_changes_are_what_readers_at_two_epochs_see(self, store, settle):
        self.two_epochs(store, settle)
        store.ingest_batch(WriteBatch([(b"a", b"4"), (b"b", b"3"), (b"c", b"5")]), E3)
        settle(E3)
        assert changed(store, E1, E2) == [(b"a", b"1", None), (b"b", b"2", b"3")]
        assert changed(store, E2, E3) == [(b"a", None, b"4"), (b"c", None, b"5")]
        assert changed(store, E1, E3) == [(b"a", b"1", b"4"), (b"b", b"2", b"3"), (b"c", None, b"5")]
        assert changed(store, Epoch(0), E3) == [(b"a", None, b"4"), (b"b", None, b"3"), (b"c", None, b"5")]

    def test_what_came_and_went_between_two_epochs_is_no_change(self, store, settle):
        for epoch, value in ((E1, None), (E2, b"2"), (E3, None)):
            store.ingest_batch(WriteBatch([(b"a", value), (b"b", b"1")]), epoch)
            settle(epoch)
        assert changed(store, E1, E3) == []
        assert changed(store, E2, E2) == []

    def test_changes_end_at_the_bounds_of_their_range(self, store, settle):
        store.ingest_batch(WriteBatch([(key, b"1") for key in (b"a", b"b", b"bb", b"c")]), E1)
        settle(E1)
        for key_range, expected in (
            (KeyRange(b"b", b"c"), [b"b", b"bb"]), (KeyRange(b"ba", None), [b"bb", b"c"]), (KeyRange(b"b", b"b"), []),
        ):  # fmt: skip
            assert [key for key, _, _ in changed(store, Epoch(0), E1, key_range)] == expected

    def test_changes_come_in_batches_that_are_bounded(self, store, settle):
        rows = [(b"%03d" % number, b"v" * number) for number in range(100)]
        store.ingest_batch(WriteBatch(rows), E1)
        settle(E1)
        store.ingest_batch(WriteBatch([(key, None) for key, _ in rows[::2]]), E2)
        settle(E2)
        with store.changes(EVERYTHING, E1, E2) as feed:
            batches = iter(lambda: feed.next_batch(7), None)
            sizes, found = zip(*((len(batch), list(batch)) for batch in batches), strict=True)
        assert max(sizes) <= 7
        assert [row for batch in found for row in batch] == [(key, value, None) for key, value in rows[::2]]

    def test_changes_go_forward_in_time(self, store):
        with pytest.raises(InvalidEpoch):
            store.changes(EVERYTHING, E2, E1)

    def test_a_feed_that_was_closed_gives_no_more(self, store):
        store.ingest_batch(WriteBatch([(b"a", b"1")]), E1)
        feed = store.changes(EVERYTHING, Epoch(0), E1)
        feed.close()
        with pytest.raises(StoreClosed):
            feed.next_batch()

    @pytest.mark.parametrize("seed", range(8))
    def test_a_snapshot_and_its_changes_are_the_later_snapshot(self, store, settle, seed):
        rng = random.Random(seed)
        epochs = [Epoch(number << 16) for number in range(1, 9)]
        for epoch in epochs:
            for _ in range(rng.choice((1, 1, 3))):
                keys = {b"%02d" % rng.randrange(60) for _ in range(rng.choice((1, 5, 50)))}
                values = [None if rng.random() < 0.3 else rng.randbytes(rng.choice((0, 1, 30))) for _ in keys]
                store.ingest_batch(WriteBatch(sorted(zip(keys, values, strict=True))), epoch)
            if rng.random() < 0.7:
                settle(epoch)
        for since, until in ((rng.choice(epochs), rng.choice(epochs)) for _ in range(12)):
            since, until = min(since, until), max(since, until)
            rows, later = dict(pairs(store, since)), dict(pairs(store, until))
            for key, old, new in changed(store, since, until):
                assert old != new
                assert rows.pop(key, None) == old
                rows |= {} if new is None else {key: new}
            assert rows == later, (seed, since, until)

    # -- epochs ------------------------------------------------------------------------------------------

    def test_no_write_at_or_below_a_sealed_epoch(self, store):
        store.seal_epoch(E2)
        for epoch in (E1, E2):
            with pytest.raises(InvalidEpoch):
                store.ingest_batch(WriteBatch([(b"a", b"1")]), epoch)
        store.ingest_batch(WriteBatch([(b"a", b"1")]), E3)

    def test_an_epoch_must_be_pure_and_sealed_before_it_is_synced(self, store):
        with pytest.raises(InvalidEpoch):
            store.ingest_batch(WriteBatch([(b"a", b"1")]), Epoch(E1 + 7))
        with pytest.raises(InvalidEpoch):
            store.sync(E1)
        store.seal_epoch(E2)
        store.seal_epoch(E2)
        with pytest.raises(InvalidEpoch):
            store.seal_epoch(E1)

    def test_commit_moves_the_committed_epoch(self, store):
        assert store.committed_epoch == 0
        store.ingest_batch(WriteBatch([(b"a", b"1")]), E1)
        store.commit(E1)
        assert store.committed_epoch == E1
        store.wait_epoch(E1, 0)
        with pytest.raises(WaitEpochTimeout):
            store.wait_epoch(E2, 1)

    def test_wait_epoch_wakes_at_the_commit(self, store):
        waiter = threading.Thread(target=store.wait_epoch, args=(E1, 20_000))
        waiter.start()
        store.commit(E1)
        waiter.join(20)
        assert not waiter.is_alive()

    def test_announced_rules_change_no_read(self, store, settle):
        keys = [user_key(table, 0, key) for table in (1, 2) for key in (b"a1", b"a2", b"b1")]
        store.announce_rules({1: TableRules(PrefixRule(7), ttl_ms=1), 2: TableRules(PrefixRule(99))})
        store.ingest_batch(WriteBatch([(key, b"v") for key in keys]), E1)
        settle(E1)
        assert [key for key, _ in pairs(store, E3)] == keys
        assert under(store, [user_key(1, 0, b"a"), user_key(2, 0, b"c")], E3) == [(0, key, b"v") for key in keys[:2]]

    def test_clear_uncommitted_forgets_what_is_not_committed(self, store):
        store.ingest_batch(WriteBatch([(b"a", b"1")]), E1)
        store.commit(E1)
        store.ingest_batch(WriteBatch([(b"a", b"2"), (b"b", b"2")]), E2)
        store.seal_epoch(E2)
        store.sync(E2)
        store.ingest_batch(WriteBatch([(b"c", b"3")]), E3)
        store.clear_uncommitted()
        assert pairs(store, E3) == [(b"a", b"1")]
        store.ingest_batch(WriteBatch([(b"b", b"again")]), E2)
        store.commit(E2)
        assert pairs(store, E2) == [(b"a", b"1"), (b"b", b"again")]

    def test_local_rows_are_readable_until_their_epoch_is_committed(self, store):
        store.ingest_batch(WriteBatch([(b"a", b"local")]), E1, local_only=True)
        store.ingest_batch(WriteBatch([(b"b", b"1")]), E1)
        assert pairs(store, E1) == [(b"a", b"local"), (b"b", b"1")]
        store.commit(E1)
        assert pairs(store, E1) == [(b"b", b"1")]

    def test_nothing_is_written_by_an_empty_batch(self, store):
        store.ingest_batch(WriteBatch([]), E1)
        store.commit(E1)
        assert pairs(store, E1) == []

    # -- closing -----------------------------------------------------------------------------------------

    def test_use_after_close_is_refused(self, store):
        store.ingest_batch(WriteBatch([(b"a", b"1"), (b"b", b"1")]), E1)
        scan = store.scan(EVERYTHING, E1)
        assert len(scan.next_batch(1)) == 1
        store.close()
        store.close()
        for use in (
            lambda: store.get(b"a", E1),
            lambda: store.get_many(pa.array([b"a"], pa.binary()), E1),
            lambda: store.scan(EVERYTHING, E1),
            lambda: store.scan_prefixes(pa.array([b"a"], pa.binary()), E1),
            lambda: store.scan_many(pa.array([b"a"], pa.binary()), E1),
            lambda: store.ingest_batch(WriteBatch([(b"a", b"1")]), E1),
            lambda: store.seal_epoch(E1),
            lambda: store.sync(E1),
            lambda: scan.next_batch(),
        ):
            with pytest.raises(StoreClosed):
                use()
