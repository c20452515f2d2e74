"""Work in a process of its own in which one allocation after the other fails; run by `test_failed_allocations.py`."""

from __future__ import annotations

import ctypes
import gc
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from hummock.base.key import KeyRange
from hummock.columnar.binary_column import BinaryColumn
from hummock.errors import StoreClosed
from relational.chunk import Column, DataChunk, StreamChunk
from relational.encoding import KeyEncoder, ValueEncoder
from relational.hash.bytes_interner import BytesInterner
from relational.join.join_index import JoinIndex
from relational.join.join_probe import JoinProbe
from relational.types import DataType, OrderType
from tests.support.worlds.failing_reads import BEFORE, NEWEST, failing_reads

BIGINT = DataType.BIGINT
NESTED = DataType.parse("struct<x double, y struct<z boolean[], t interval>[], name varchar>[]")


class Allocations:
    """Those of the compiled modules; `failed` of them have failed."""

    def __init__(self) -> None:
        self.failed = 0
        self._library = ctypes.CDLL(None)
        self._library.arm.argtypes = [ctypes.c_longlong]
        self._library.held.restype = ctypes.c_longlong

    def until_none_fails(
        self, work: Callable[[], Any], check: Callable[[int], None], step: Callable[[], int] = lambda: 1
    ) -> Any:
        """The result of `work()`, which is called until no allocation of it fails any more: first its first one fails,
        then the one `step()` after it, and so on. `check` gets the allocations that each failed call has left.
        """
        number = 0
        while True:
            result, has_failed = None, False
            self._library.arm(number)
            try:
                result = work()
            except MemoryError:
                has_failed = True
            gc.collect()
            held, was_reached = self._library.held(), bool(self._library.disarm())
            if not was_reached:
                assert not has_failed
                return result
            assert has_failed, f"allocation {number} failed, and nobody said so"
            check(held)
            self.failed += 1
            number += step()


def packs_row_lists(rng: random.Random, allocations: Allocations) -> None:
    """Keys whose rows filled longer and longer blocks: those that they left are taken out."""
    keys, index = 80_000, JoinIndex([BIGINT] * 3, (0,), (1,))
    for number in range(3):
        numbers = np.arange(keys)
        chunk = StreamChunk([pa.array(numbers), pa.array(numbers * 3 + number), pa.array(numbers)],
                            np.zeros(keys, np.uint8))
        index.apply(chunk, index.locate([chunk.columns[0]]).ids)
    before = index.size_bytes

    def check(held: int = 0) -> None:
        located = index.locate([pa.array(numbers)], is_adding=False).ids
        assert index.counts(located).tolist() == [3] * keys
        found = [[] for _ in range(keys)]
        for at, row_ids in JoinProbe(index, located):
            for key, name in zip(at.tolist(), index.gather(row_ids, (1,))[0].to_pylist(), strict=True):
                found[key].append(name)
        assert all(sorted(names) == [3 * key, 3 * key + 1, 3 * key + 2] for key, names in enumerate(found))

    check()
    allocations.until_none_fails(index.end_epoch, check)
    check()
    assert index.size_bytes < before


def numbers_keys(rng: random.Random, allocations: Allocations) -> None:
    """Keys of one size, then of several; some are known."""
    index, numbers = BytesInterner(), {}

    def known() -> None:
        """What was added before the allocation that failed has its number, and the next key has the next."""
        found = list(index.keys(np.arange(index.count, dtype=np.int32)))
        assert found == list(numbers)[:len(found)]
        assert index.find(BinaryColumn.from_pylist(found), is_adding=False).tolist() == list(range(len(found)))

    for batch in range(40):
        sizes = (3,) if batch < 10 else (0, 1, 2, 3, 9)
        keys = [rng.randbytes(rng.choice(sizes)) for _ in range(rng.choice((1, 40, 700)))]
        expected = [numbers.setdefault(key, len(numbers)) for key in keys]
        column = BinaryColumn.from_pylist(keys)
        found = allocations.until_none_fails(lambda column=column: index.find(column), lambda held: known())
        assert found.tolist() == expected
        known()


def makes_encoders(rng: random.Random, allocations: Allocations) -> None:
    types = [BIGINT, NESTED, DataType.parse("struct<a bigint[], b struct<c varchar>>"), NESTED]

    def check(held: int) -> None:
        assert held == 0, f"{held} allocations are lost"

    for make in (lambda: KeyEncoder(types, [OrderType()] * 4), lambda: ValueEncoder(types)):
        make()
        allocations.until_none_fails(make, check)


def makes_columns(rng: random.Random, allocations: Allocations) -> None:
    def value() -> dict | None:
        inner = [{"z": [True, None], "t": None} for _ in range(rng.randrange(3))]
        return None if rng.random() < 0.2 else {"x": rng.random(), "y": inner, "name": "n" * rng.randrange(9)}

    values = [[value() for _ in range(rng.randrange(3))] for _ in range(9)]
    chunk = DataChunk([Column.from_pylist(values, NESTED), Column.from_pylist(list(range(9)), BIGINT)])
    indices = np.array([rng.randrange(9) for _ in range(12)], np.int32)
    encoder = ValueEncoder([NESTED, BIGINT])
    encoded = encoder.encode(chunk.columns)

    def check(held: int) -> None:
        assert held == 0, f"{held} allocations are lost"

    def taken() -> list:
        return chunk.take(indices).columns[0].to_pylist()

    def decoded() -> list:
        return Column(encoder.decode(encoded)[0]).to_pylist()

    for work in (taken, decoded):
        expected = work()
        assert allocations.until_none_fails(work, check) == expected


def reads(rng: random.Random, allocations: Allocations) -> None:
    """Scans in both directions and changes."""
    ways = (lambda store: store.scan(KeyRange(), NEWEST), lambda store: store.scan(KeyRange(), NEWEST, reverse=True),
            lambda store: store.changes(KeyRange(), BEFORE, NEWEST))
    with failing_reads(rng) as world:
        for opened in ways:
            expected = list(opened(world.snapshot()))

            def work(opened=opened):
                read = opened(world.snapshot())
                try:
                    return list(read)
                except MemoryError:
                    for _ in range(2):
                        try:
                            read.next_batch()
                        except StoreClosed as error:
                            assert "MemoryError" in str(error)
                        else:
                            raise AssertionError("a failed scan goes on") from None
                    raise

            assert allocations.until_none_fails(work, lambda held: None, lambda: rng.randrange(1, 60)) == expected


WORK = {each.__name__: each for each in (packs_row_lists, numbers_keys, makes_encoders, makes_columns, reads)}

if __name__ == "__main__":
    allocations = Allocations()
    WORK[sys.argv[1]](random.Random(f"{sys.argv[2]} {sys.argv[1]}"), allocations)
    print(allocations.failed)
