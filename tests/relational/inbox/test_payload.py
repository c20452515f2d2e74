"""Payload objects: rows come back as they were written, or as a typed error; vacuum keeps them while it must."""

import random

import pyarrow as pa
import pytest

from hummock.errors import Corruption, InvalidOption, ObjectNotFound
from hummock.meta.hummock_manager import HummockManager
from hummock.meta.store.memory import MemoryMetaStore
from hummock.meta.vacuum.vacuum import Vacuum
from hummock.object_store.base import name_minter, sstable_data_path
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import VacuumOptions
from relational.errors import RequestRefused
from relational.inbox import payload as payload_module
from relational.inbox.client import REGISTERED_MS, REQUEST_MS, Inbox
from relational.inbox.payload import check_count, read_payload, remove_payload, write_payload
from tests.support.drivers.seeds import run_seed

START_MS = 1_700_000_000_000


def rows_of(count, rng):
    return pa.table({"id": pa.array(range(count), pa.int64()),
                     "text": pa.array([None if rng.random() < 0.2 else "x" * rng.randrange(9) for _ in range(count)]),
                     "at": pa.array([rng.randrange(1 << 40) for _ in range(count)], pa.timestamp("us", "UTC"))})


@pytest.fixture
def rng():
    return random.Random(f"payload {run_seed()}")


def written(table, store, rng, rows=10):
    mint = name_minter(rng.randbytes, ("00" * 8,))
    return write_payload(table.to_batches(max_chunksize=rows), store, mint)


@pytest.mark.parametrize("object_bytes", [1, 300, 1 << 20])
def test_rows_come_back_in_their_order(object_bytes, rng, monkeypatch):
    monkeypatch.setattr(payload_module, "OBJECT_BYTES", object_bytes)
    store, table = MemoryObjectStore(), rows_of(97, rng)
    payload = written(table, store, rng)
    assert len(payload) == (10 if object_bytes == 1 else 1 if object_bytes > 1_000 else len(payload))
    assert read_payload(payload, store).equals(table)
    assert sum(each.rows for each in payload) == 97
    assert sum(each.row_bytes for each in payload) == sum(batch.nbytes for batch in table.to_batches(max_chunksize=10))
    remove_payload(payload, store)
    assert not list(store.list())
    with pytest.raises(ObjectNotFound):
        read_payload(payload, store)


def test_no_rows_are_no_object(rng):
    store = MemoryObjectStore()
    assert written(rows_of(0, rng), store, rng) == () == write_payload([], store, str)
    assert read_payload((), store) is None and not list(store.list())


def test_a_changed_object_is_never_rows(rng):
    store = MemoryObjectStore()
    (one,) = written(rows_of(30, rng), store, rng)
    path = sstable_data_path(one.name)
    good = store.get(path)
    for _ in range(200):
        at = rng.randrange(len(good))
        bad = bytearray(good)
        bad[at] ^= 1 << rng.randrange(8)
        for body in (bytes(bad), good[:at], good + b"x"):
            store.put(path, body)
            with pytest.raises(Corruption):
                read_payload((one,), store)


def test_more_objects_than_a_row_names_are_refused(rng):
    with pytest.raises(InvalidOption, match="coalesce"):
        check_count([None] * (payload_module.MOST_OBJECTS + 1))


class Clocked(MemoryMetaStore):
    """A meta store with a clock that the test moves."""

    time_ms = START_MS

    def now_ms(self):
        return self.time_ms


class Kept:
    """A store whose vacuum removes all that nothing needs, whatever its age."""

    def __init__(self, rng):
        self.meta = Clocked()
        self.objects = MemoryObjectStore(self.meta.now_ms)
        HummockManager(self.meta, self.objects, random_bytes=rng.randbytes).claim_writer()
        self.inbox = Inbox("memory://", stores=(self.meta, self.objects), timeout_ms=0, random_bytes=rng.randbytes)

    def after(self, milliseconds):
        """The number of objects that vacuum leaves after that time."""
        self.meta.time_ms += milliseconds
        options = VacuumOptions(grace_ms=0, tombstone_ms=0)
        for _ in range(2):
            Vacuum(self.meta, self.objects, options=options).run()
        return len(list(self.objects.list()))


def test_vacuum_keeps_objects_from_the_registration_to_the_end_of_their_request(rng):
    kept = Kept(rng)
    prefix = kept.inbox.register_prefix()
    payload = write_payload(rows_of(5, rng).to_batches(), kept.objects, name_minter(rng.randbytes, (prefix,)))
    assert kept.after(REGISTERED_MS - 1) == 1
    kept.inbox.submit("t", payload, (prefix,))
    assert kept.after(REQUEST_MS) == 1              # from then on the session refuses it
    assert kept.after(2 * REQUEST_MS) == 0


def test_a_request_for_objects_that_vacuum_may_have_removed_is_refused(rng):
    kept = Kept(rng)
    prefix = kept.inbox.register_prefix()
    payload = write_payload(rows_of(5, rng).to_batches(), kept.objects, name_minter(rng.randbytes, (prefix,)))
    assert kept.after(REGISTERED_MS) == 0
    with pytest.raises(RequestRefused, match=r"UploadExpired.*write them again"):
        kept.inbox.submit("t", payload, (prefix,))
    assert kept.meta.list("inbox/") == []


def test_objects_that_no_request_names_are_removed(rng):
    kept = Kept(rng)
    prefix = kept.inbox.register_prefix()
    write_payload(rows_of(5, rng).to_batches(), kept.objects, name_minter(rng.randbytes, (prefix,)))
    assert (kept.after(0), kept.after(REGISTERED_MS)) == (1, 0)


def test_a_store_of_one_process_has_no_clients():
    with pytest.raises(InvalidOption, match="several processes"):
        Inbox("memory://")
