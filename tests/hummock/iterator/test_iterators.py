"""MergeIterator and UserIterator: text cases, and random runs against a sorted list."""

from __future__ import annotations

import random

import pytest

from hummock.columnar.write_batch import WriteBatch
from hummock.errors import ObjectStoreError
from hummock.iterator.base import Direction, HummockIterator
from hummock.iterator.batch_collector import BatchCollector
from hummock.iterator.entry_collector import EntryCollector
from hummock.iterator.merge import MergeIterator
from hummock.iterator.user import UserIterator
from hummock.pipeline.retention import RetentionIterator
from hummock.shared_buffer.batch import SharedBufferBatch, SharedBufferBatchIterator
from hummock.sstable.concat_iterator import ConcatIterator
from hummock.sstable.sstable_iterator import SstableIterator
from tests.support.drivers.seeds import amount, run_seed
from tests.support.suites.entry_cases import iterator_of, parse_epoch, parse_key, read_cases, show_entry
from tests.support.worlds.failing_reads import NEWEST, failing_reads

FORWARD, REVERSE = Direction.FORWARD, Direction.REVERSE


def merged(runs, direction=FORWARD):
    return MergeIterator([iterator_of(run, direction) for run in runs], direction)


def pulled(iterator, rows=65_536):
    """The entries of an iterator as `pull` returns them, in batches of `rows`."""
    collector, out = EntryCollector(iterator), []
    while (batch := collector.next_batch(rows)) is not None:
        keys, values, epochs = batch
        assert 0 < len(keys) <= rows
        out += zip(list(keys), epochs.tolist(), list(values), strict=True)
    return out


def collected(child, start, end, epoch, rows=8192):
    """The rows of a UserIterator in batches of `rows`, by the compiled collector."""
    collector = BatchCollector(UserIterator(child, start, end, epoch))
    out = []
    while (batch := collector.next_batch(rows, 1 << 20)) is not None:
        assert 0 < len(batch) <= rows
        out += list(batch)
    return out


def run_step(runs, words):
    direction = REVERSE if words[0].endswith("reverse") else FORWARD
    if words[0].startswith("user"):
        start, end = (parse_key(words[2]), words[3]) if len(words) > 2 else (b"", ".")
        end = None if end == "." else parse_key(end)
        epoch = parse_epoch(words[1])
        rows = [
            (key, value) for key, _, value in
            UserIterator(merged(runs, direction), start, end, epoch).entries()
        ]
        for batch_rows in (1, 3, 8192):
            assert collected(merged(runs, direction), start, end, epoch, batch_rows) == rows
        return [f"{key.decode() or '_'}={value.decode()}" for key, value in rows]
    target = ()
    if len(words) > 1:
        key, epoch = words[1].split("@")
        target = (parse_key(key), parse_epoch(epoch))
    return [show_entry(entry) for entry in merged(runs, direction).entries(*target)]


@pytest.mark.parametrize("case", read_cases("merge_iterator.txt"), ids=lambda case: case.title)
def test_merge_case(case):
    for words, expected in case.steps:
        assert run_step(case.runs, words) == expected, words


def random_runs(rng):
    """Runs newest first, each with epochs below the one before it, over a few keys of many shapes."""
    alphabet = [b"", b"\x00", b"a", b"b", b"aaaaaaaa", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff"]
    keys = sorted({b"".join(rng.choices(alphabet, k=rng.randint(1, 4))) for _ in range(rng.randint(1, 60))})
    runs = []
    for number in range(rng.randint(1, 9)):
        epochs = [(100 - 3 * number - step) << 16 for step in range(rng.randint(1, 2))]
        chosen = [key for key in keys if rng.random() < rng.choice((0.1, 0.5, 1.0))]
        entries = [
            (key, epoch, None if rng.random() < 0.2 else b"%d/%d" % (number, rng.randint(0, 99)))
            for key in chosen for epoch in epochs if rng.random() < 0.8
        ]
        runs.append(entries)
    return keys, runs


@pytest.mark.parametrize("seed", range(120))
def test_random_runs_merge_like_a_sorted_list(seed):
    rng = random.Random(seed)
    keys, runs = random_runs(rng)
    model = sorted((entry for run in runs for entry in run), key=lambda entry: (entry[0], -entry[1]))
    assert list(merged(runs).entries()) == model
    assert pulled(merged(runs)) == model
    assert list(merged(runs, REVERSE).entries()) == model[::-1]
    for _ in range(5):
        key, epoch = rng.choice([*keys, b"ab", b"zz"]), rng.randint(70, 102) << 16
        order = (key, -epoch)
        assert list(merged(runs).entries(key, epoch)) == [e for e in model if (e[0], -e[1]) >= order]
        assert list(merged(runs, REVERSE).entries(key, epoch)) == [
            e for e in model if (e[0], -e[1]) <= order
        ][::-1]


@pytest.mark.parametrize("seed", range(120))
def test_random_reads_see_the_newest_version_at_their_epoch(seed):
    rng = random.Random(seed)
    keys, runs = random_runs(rng)
    for _ in range(6):
        epoch = rng.randint(70, 102) << 16
        start, end = sorted((rng.choice(keys), rng.choice([*keys, b"\xff" * 40])))
        end = None if rng.random() < 0.3 else end
        newest = {}
        for key, at, value in sorted((entry for run in runs for entry in run), key=lambda e: e[1]):
            if at <= epoch and start <= key and (end is None or key < end):
                newest[key] = value
        expected = [(key, value) for key, value in sorted(newest.items()) if value is not None]
        rows = rng.choice((1, 2, 7, 100))
        assert collected(merged(runs), start, end, epoch, rows) == expected
        assert collected(merged(runs, REVERSE), start, end, epoch, rows) == expected[::-1]


def test_versions_below_the_low_bound_are_not_seen():
    runs = [[(b"a", 5 << 16, b"5"), (b"c", 5 << 16, None)], [(b"b", 2 << 16, b"2"), (b"c", 2 << 16, b"2")]]
    for direction in (FORWARD, REVERSE):
        seen = UserIterator(merged(runs, direction), b"", None, 9 << 16, 3 << 16).entries()
        assert [key for key, _, _ in seen] == [b"a"]


@pytest.mark.parametrize("seed", range(20))
def test_random_long_runs_are_pulled_in_order_over_many_batches(seed):
    rng = random.Random(seed)
    prefix = rng.choice((b"", b"shared", b"p" * 40))
    keys = sorted({prefix + rng.randbytes(rng.choice((1, 8, 9, 17, 300))) for _ in range(rng.randint(1, 3_000))})
    count = rng.randint(1, 12)
    runs = [[(key, number << 16, None if rng.random() < 0.1 else rng.randbytes(rng.randrange(30)))
             for key in keys if rng.random() < rng.choice((0.02, 0.5, 1.0))] for number in range(count, 0, -1)]
    model = sorted((entry for run in runs for entry in run), key=lambda entry: (entry[0], -entry[1]))
    assert pulled(merged(runs)) == model
    assert pulled(MergeIterator([merged(runs[:3]), *(iterator_of(run) for run in runs[3:])])) == model


def test_children_have_one_direction():
    batch = SharedBufferBatch(WriteBatch([(b"a", b"1")]), 1 << 16)
    with pytest.raises(ValueError, match="has the other direction"):
        MergeIterator([SharedBufferBatchIterator(batch, REVERSE)], FORWARD)


def test_an_iterator_without_methods_cannot_be_iterated():
    with pytest.raises(TypeError, match="HummockIterator"):
        list(HummockIterator().entries())


def test_a_batch_ends_at_its_bytes():
    rows = [(b"%04d" % n, b"x" * 100) for n in range(50)]
    child = SharedBufferBatchIterator(SharedBufferBatch(WriteBatch(rows), 1 << 16))
    collector = BatchCollector(UserIterator(child, b"", None, 1 << 16))
    sizes = []
    while (batch := collector.next_batch(1000, 500)) is not None:
        sizes.append(len(batch))
    assert sum(sizes) == 50
    assert max(sizes) <= 5


def test_a_row_larger_than_a_batch_comes_alone():
    rows = [(b"a", b"x"), (b"b", b"y" * 5000), (b"c", b"z")]
    child = SharedBufferBatchIterator(SharedBufferBatch(WriteBatch(rows), 1 << 16))
    collector = BatchCollector(UserIterator(child, b"", None, 1 << 16))
    assert [list(collector.next_batch(1000, 500)) for _ in range(3)] == [[row] for row in rows]
    assert collector.next_batch(1000, 500) is None


def test_a_batch_needs_a_row():
    with pytest.raises(ValueError, match="at least one row"):
        SharedBufferBatch(WriteBatch([]), 1 << 16)


def runs_of(world, files, direction):
    return [ConcatIterator(files, tuple(run.sstables), direction) for run in world.version.runs]


ITERATORS = {
    "a file": lambda *of: SstableIterator(of[1], next(iter(of[0].version.sstables)), of[2]),
    "a run": lambda *of: runs_of(*of)[0],
    "runs": lambda *of: MergeIterator(runs_of(*of), of[2]),
    "rows of a run": lambda *of: UserIterator(runs_of(*of)[0], b"", None, NEWEST),
    "rows": lambda *of: UserIterator(MergeIterator(runs_of(*of), of[2]), b"", None, NEWEST),
    "what is retained": lambda *of: RetentionIterator(MergeIterator(runs_of(*of))),     # of[2] is FORWARD
}
KINDS = [(kind, direction) for kind in ITERATORS for direction in Direction
         if (kind, direction) != ("what is retained", REVERSE)]


@pytest.mark.parametrize(("kind", "direction"), KINDS)
def test_an_iterator_that_raised_is_not_valid_until_it_begins_anew(kind, direction):
    rng = random.Random(f"{run_seed()} {kind} {direction}")
    for _ in range(amount(5, 50)):
        with failing_reads(rng) as world:
            target = rng.choice([(), (rng.choice(world.rows)[0], NEWEST)])
            expected = list(ITERATORS[kind](world, world.files(), direction).entries(*target))
            for fails in rng.sample(range(world.reads), min(world.reads, 5)):     # none if the target is behind the run
                iterator = ITERATORS[kind](world, world.files(fails), direction)
                with pytest.raises(ObjectStoreError):
                    list(iterator.entries(*target))
                assert not iterator.valid
                assert list(iterator.entries(*target)) == expected


def drained(world, files, makes, limits):
    """A collector and its source, to the end or to an error, and the error or None."""
    source = UserIterator(MergeIterator(runs_of(world, files, FORWARD)), b"", None, NEWEST)
    collector = makes(source)
    try:
        while collector.next_batch(*limits) is not None:
            pass
    except ObjectStoreError as error:
        return collector, source, error
    return collector, source, None


@pytest.mark.parametrize("makes", [BatchCollector, EntryCollector], ids=lambda kind: kind.__name__)
def test_a_collector_does_not_touch_what_an_error_has_left(makes):
    """Rows are missing from then on, which its owner knows."""
    rng = random.Random(f"{run_seed()} {makes.__name__}")
    for _ in range(amount(10, 100)):
        limits = rng.randrange(1, 900), 5_000
        with failing_reads(rng) as world:
            assert drained(world, world.files(), makes, limits)[2] is None
            for fails in rng.choices(range(world.reads), k=5):
                collector, source, error = drained(world, world.files(fails), makes, limits)
                assert error is not None and not source.valid
                while collector.next_batch(*limits) is not None:
                    pass
                assert [(key, value) for key, _, value in source.entries()] == world.rows
