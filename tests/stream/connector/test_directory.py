"""Remote files: read exactly, in any order, with the ranges behind fetched ahead while they are read in order."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from hummock.errors import ObjectNotFound
from hummock.object_store.memory import MemoryObjectStore
from stream.connector import directory
from stream.connector.directory import MOST_AHEAD_BYTES, ObjectFile
from tests.support.drivers.seeds import run_seed


class Recording(MemoryObjectStore):
    """`reads`: (first byte, bytes, whether by another thread) of each request."""

    def __init__(self):
        super().__init__()
        self.reads, self.owner, self.is_gone = [], threading.get_ident(), False

    def get(self, path, byte_range=None):
        if self.is_gone:
            raise ObjectNotFound(path)
        self.reads.append((byte_range.start, len(byte_range), threading.get_ident() != self.owner))
        return super().get(path, byte_range)

    def get_into(self, path, start, target):
        data = super().get(path, range(start, start + len(target)))
        target[: len(data)] = data
        self.reads.append((start, len(data), threading.get_ident() != self.owner))
        return len(data)


@pytest.fixture
def ahead():
    with ThreadPoolExecutor(2) as pool:
        yield pool


def stored(size, seed=1):
    store, data = Recording(), random.Random(seed).randbytes(size)
    store.put("a", data)
    return store, data


def test_reads_in_order_are_fetched_ahead_in_growing_ranges(ahead):
    store, data = stored(20 << 20)
    with ObjectFile(store, "a", ahead) as file:
        found = b"".join(iter(lambda: file.read(64 << 10), b""))
    assert found == data
    direct = [size for _, size, is_ahead in store.reads if not is_ahead]
    fetched = [(first, size) for first, size, is_ahead in store.reads if is_ahead]
    assert direct == [64 << 10] * directory.READS_IN_ORDER
    assert [size for _, size in fetched[:6]] == [1 << each for each in (18, 19, 20, 21, 22, 22)]
    assert max(size for _, size in fetched) == MOST_AHEAD_BYTES
    assert sum(size for _, size in fetched) + sum(direct) == len(data) and fetched == sorted(fetched)


def test_reads_in_no_order_are_one_request_each(ahead):
    store, data = stored(1 << 20)
    with ObjectFile(store, "a", ahead) as file:
        for begin in (900_000, 10, 500_000, 1 << 20, 20):
            file.seek(begin)
            assert file.read(1_000) == data[begin : begin + 1_000]
    assert [(first, is_ahead) for first, _, is_ahead in store.reads] == [
        (900_000, False), (10, False), (500_000, False), (20, False)]


@pytest.mark.parametrize("is_ahead", [True, False])
def test_any_reads_return_the_bytes_of_the_object(ahead, monkeypatch, is_ahead):
    monkeypatch.setattr(directory, "LEAST_AHEAD_BYTES", 100)
    monkeypatch.setattr(directory, "MOST_AHEAD_BYTES", 1_000)
    rng = random.Random(run_seed())
    store, data = stored(20_000, seed=rng.random())
    with ObjectFile(store, "a", ahead if is_ahead else None) as file:
        position = 0
        for _ in range(2_000):
            if rng.random() < 0.1 or position == len(data):
                position = file.seek(max(0, min(len(data), position + rng.randint(-3_000, 3_000))))
            size = rng.choice((1, 50, 333, 5_000))
            assert file.read(size) == data[position : position + size]
            position = min(position + size, len(data))
            assert file.tell() == position


def test_what_cannot_be_fetched_ahead_is_an_error_of_the_read_that_needs_it(ahead):
    store, data = stored(1 << 20)
    with ObjectFile(store, "a", ahead) as file:
        store.is_gone = True
        for at in range(directory.READS_IN_ORDER):
            assert file.read(1_000) == data[at * 1_000 : at * 1_000 + 1_000]
        with pytest.raises(ObjectNotFound):
            file.read(1_000)
        store.is_gone = False
        assert file.read(1_000) == data[file.tell() - 1_000 : file.tell()]
