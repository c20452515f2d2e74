"""Joins under keys whose rows exceed the budget, against nested loops: every kind, with and without a condition."""

import random
from collections import Counter

import numpy as np
import pytest

from hummock.store.memory_store import MemoryStateStore
from relational.chunk import Op, StreamChunk
from relational.plan.logical import JoinKind
from relational.table import scan
from stream.executor import join_side
from stream.executor.join_side import JoinSide
from stream.executor.stored_partners import StoredPartners
from stream.message import PAUSE
from tests.stream.executor.test_hash_join import (
    BY_ID,
    CONDITIONS,
    EPOCHS,
    KINDS,
    LEFT,
    LESS,
    RIGHT,
    executor_of,
    expected,
    inputs_of,
    join_node,
    passing_epochs,
    random_epochs,
    run,
)
from tests.support.drivers.seeds import seeds
from tests.support.drivers.stream_driver import Folded, barrier

EXCEEDING = {"some keys": 0.5, "all keys": 1.0}


@pytest.fixture
def exceed(monkeypatch):
    """Sets how often rows exceed the budget when they are read into memory; parts are of few rows."""
    monkeypatch.setattr(join_side, "READ_ROWS", 3)
    monkeypatch.setattr(scan, "ROWS_AT_ONCE", 2)
    load = JoinSide._load

    def exceed(rng, share):
        def loaded(side, keys):
            counts = yield from load(side, keys)
            if counts is None and rng.random() < share:
                return np.array([rng.randrange(1, 30) for _ in range(len(keys[0]))])
            return counts

        monkeypatch.setattr(JoinSide, "_load", loaded)

    return exceed


@pytest.fixture
def parts(monkeypatch):
    """The number of steps that have met stored rows, by whether a row of the other side may gain or lose partners."""
    found = Counter()
    changes = StoredPartners.changes

    def counted(partners, ops):
        found[partners._step.other.is_tracked] += 1
        return changes(partners, ops)

    monkeypatch.setattr(StoredPartners, "changes", counted)
    return found


@pytest.mark.parametrize("restarts", [False, True], ids=["", "restarts"])
@pytest.mark.parametrize("share", EXCEEDING.values(), ids=EXCEEDING)
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_do_not_fit_into_memory_join_as_others_do(exceed, parts, kind, condition, share, restarts):
    on = CONDITIONS[condition]
    node = join_node(kind, on)
    for seed in seeds(1, 20):
        print("seed", seed)
        rng = random.Random(seed)
        exceed(rng, share)
        epochs, store = random_epochs(seed), MemoryStateStore()
        options = {"cache_bytes": 2, "chunk_rows": rng.choice([2, 5, 4096])}
        run(node, store, [[]])
        if restarts:
            made = [run(node, store, [each], first=number, **options)[0] for number, each in enumerate(epochs, 2)]
        else:
            made = run(node, store, epochs, first=2, **options)
        inputs, found = (Folded((0,)), Folded((0,))), Folded(node.stream_key)
        for changes, outputs in zip(epochs, made, strict=True):
            for side, chunk in changes:
                inputs[side].apply(chunk)
            found.apply_all(outputs)
            rows = expected(kind, on, *(list(each.rows.values()) for each in inputs))
            assert found.bag == Counter(rows), seed
    assert sum(parts.values()) > 2


@pytest.mark.parametrize("on", [(BY_ID,), (BY_ID, LESS)], ids=["equal", "equal and less"])
def test_rows_that_wait_beyond_the_budget_leave_the_table_when_their_partner_comes(exceed, parts, on):
    node = join_node(JoinKind.INNER, on, append_only=(True, False))
    for seed in seeds(4, 40):
        print("seed", seed)
        exceed(random.Random(seed), 0.5)
        epochs, store = passing_epochs(seed), MemoryStateStore()
        inputs, found = (Folded((0,)), Folded((0,))), Folded(node.stream_key)
        for number, changes in enumerate(epochs, 1):
            (made,) = run(node, store, [changes], first=number, cache_bytes=2)
            for side, chunk in changes:
                inputs[side].apply(chunk)
            found.apply_all(made)
            left, right = (list(each.rows.values()) for each in inputs)
            wanted = [(*one, *other) for one in left for other in right if one[0] == other[1]
                      and (len(on) == 1 or (one[2] is not None and other[2] is not None and one[2] < other[2]))]
            assert Counter(row[:6] for row in found.bag.elements()) == Counter(wanted), seed
    assert parts[False] > EPOCHS


def filled(left_rows, right_rows):
    """Rows of both sides under one key."""
    return [(side, StreamChunk.from_rows(schema, [(Op.INSERT, (number, 1, number % 7)) for number in range(rows)]))
            for side, schema, rows in ((0, LEFT, left_rows), (1, RIGHT, right_rows))]


@pytest.mark.parametrize("condition", ["equal", "equal and less"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_key_with_many_rows_is_read_in_parts_and_stays_out_of_memory(kind, condition, monkeypatch):
    monkeypatch.setattr(scan, "ROWS_AT_ONCE", 512)
    monkeypatch.setattr(join_side, "READ_ROWS", 512)
    on, rows, budget = CONDITIONS[condition], 20_000, 150_000
    node, store = join_node(kind, on), MemoryStateStore()
    found = Folded(node.stream_key)
    (made,) = run(node, store, [filled(rows, 1)])
    found.apply_all(made)
    partner = [[(Op.UPDATE_DELETE, (0, 1, 0)), (Op.UPDATE_INSERT, (0, 1, 5))], [(Op.DELETE, (0, 1, 5))],
               [(Op.INSERT, (3, 1, 4)), (Op.INSERT, (4, 1, None))], [(Op.DELETE, (3, 1, 4))]]
    steps = [[barrier(2 + number), StreamChunk.from_rows(RIGHT, changes)] for number, changes in enumerate(partner)]
    script = [*(message for step in steps for message in step), barrier(2 + len(partner))]
    others = [each for each in script if not isinstance(each, StreamChunk)]
    executor = executor_of(node, inputs_of(node, [others, script]), store, cache_bytes=2 * budget)
    most = pauses = 0
    for message in executor.execute():
        if isinstance(message, StreamChunk):
            found.apply(message)
        pauses += message == PAUSE
        most = max(most, executor._sides[0].index.size_bytes)
    left = [(number, 1, number % 7) for number in range(rows)]
    assert found.bag == Counter(expected(kind, on, left, [(4, 1, None)]))
    assert most < 2 * budget < 20 * rows
    assert pauses > 4
