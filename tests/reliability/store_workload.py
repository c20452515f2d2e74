"""The workload of processes that are killed, and the checks of the store that they leave.

A workload is a pure function of its seed: epoch number n writes the batches of `batches(seed, n)`, and the store then
has the rows `state(seed, n)`. `work` writes epochs and notes each step before it begins and after it was acknowledged;
`look` reads a store in every way and returns its committed epoch."""

from __future__ import annotations

import os
import random
from functools import lru_cache
from typing import Any

import hummock
from hummock.base.key import KeyRange, user_key
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import Epoch
from hummock.errors import EpochTooOld, HummockError, InvalidEpoch, StoreNotFound
from hummock.object_store import local
from hummock.store.storage import HummockStorage
from hummock.tools.verify import verify_version
from tests.reliability import maintenance
from tests.reliability.fork_server import Note

SIZES = {"block_bytes": 256, "sstable_bytes": 1_500, "block_cache_bytes": 4_000, "meta_cache_bytes": 4_000}
TABLES = (1, 2, 7)
KEYS = 14                   # of a table
EVERYTHING = KeyRange(b"", None)
State = dict[bytes, bytes]


def epoch_of(number: int) -> Epoch:
    return Epoch(number << 16)


@lru_cache(maxsize=1_000)
def batches(seed: int, number: int) -> list[list[tuple[bytes, bytes | None]]]:
    """The batches of an epoch, in the order in which they are written; later ones overlap earlier ones."""
    rng = random.Random(f"{seed} {number}")
    made = []
    for _ in range(3):
        rows: dict[bytes, bytes | None] = {}
        for _ in range(rng.randint(3, 12)):
            key = user_key(rng.choice(TABLES), rng.randrange(3), b"%03d" % rng.randrange(KEYS))
            rows[key] = None if rng.random() < .3 else b"%d " % number + rng.randbytes(rng.choice((0, 5, 90)))
        made.append(sorted(rows.items()))
    return made


@lru_cache(maxsize=1_000)
def state(seed: int, number: int) -> State:
    """The rows that a read at epoch `number` must return."""
    if number == 0:
        return {}
    rows = dict(state(seed, number - 1))
    for batch in batches(seed, number):
        for key, value in batch:
            rows.pop(key, None)
            if value is not None:
                rows[key] = value
    return rows


def opened(directory: str, role: str, seed: int = 1) -> HummockStorage:
    """The files of even seeds are inline."""
    inline_bytes = 0 if seed % 2 else 1 << 16
    return hummock.open(f"file://{directory}", role=role, compaction=False, inline_bytes=inline_bytes, **SIZES)


def work(directory: str, seed: int, first: int, last: int, note: Note) -> None:
    """Writes epochs `first` to `last`, except those that the store has already, each followed by maintenance."""
    with opened(directory, "writer", seed) as storage:
        note(f"open {storage.committed_epoch >> 16}")
        for number in range(max(first, (storage.committed_epoch >> 16) + 1), last + 1):
            write_epoch(storage, seed, number, note)
            maintenance.maintain(directory, lambda: release_old_versions(storage))
            note(f"maintained {number}")


def release_old_versions(storage: HummockStorage) -> None:
    """Moves the store to the newest version and releases all older ones."""
    storage._local.refresh()
    storage.meta_client.renew_lease(storage._local._node)


def work_without_syncs(note: Note, **arguments: Any) -> None:
    """Writes without syncing files, a fault that `kill -9` cannot expose."""
    os.fsync = os.fdatasync = lambda descriptor: None
    work(note=note, **arguments)


def work_without_directory_syncs(note: Note, **arguments: Any) -> None:
    """Syncs files but not their directory entries, which `kill -9` cannot expose either."""
    local._sync_directory = lambda path: None
    work(note=note, **arguments)


def write_epoch(storage: HummockStorage, seed: int, number: int, note: Note) -> None:
    note(f"begun {number}")
    for batch in batches(seed, number):
        storage.ingest_batch(WriteBatch(batch), epoch_of(number))
    storage.seal_epoch(epoch_of(number))
    storage.sync(epoch_of(number))
    storage.commit(epoch_of(number))
    note(f"acked {number}")


def look(directory: str, seed: int) -> int:
    """The number of the committed epoch, 0 if there is no store, after checking all readable epochs.

    Opens the store twice with the same result."""
    left, right = look_once(directory, seed), look_once(directory, seed)
    assert left == right, f"first {left}, then {right}"
    return left


def look_once(directory: str, seed: int) -> int:
    try:
        storage = opened(directory, "reader")
    except StoreNotFound:
        return 0
    with storage:
        version = storage.version
        committed, safe = version.max_committed_epoch >> 16, version.safe_epoch >> 16
        for number in range(safe, committed + 1):
            check_epoch(storage, seed, number, number)
        check_refused(storage, committed + 1, InvalidEpoch)
        if safe > 0:
            check_refused(storage, safe - 1, EpochTooOld)
        damages = [found for found in verify_version(version, storage._sstable_store.object_store) if found.damages]
        assert not damages, damages
    return committed


def check_epoch(storage: HummockStorage, seed: int, number: int, expected: int) -> None:
    """Checks that reads at `number` return the state of epoch `expected`: forwards, backwards and by key."""
    rows, epoch = sorted(state(seed, expected).items()), epoch_of(number)
    for reverse in (False, True):
        with storage.scan(EVERYTHING, epoch, reverse=reverse) as scan:
            assert list(scan) == (rows[::-1] if reverse else rows), f"a scan at {number}, reverse: {reverse}"
    keys = sorted({key for batch in batches(seed, max(expected, 1)) for key, _ in batch} | {key for key, _ in rows})
    found = storage.get_many(hummock.BinaryColumn.from_pylist(keys), epoch).to_arrow().to_pylist()
    assert found == [state(seed, expected).get(key) for key in keys], f"get_many at {number}"


def check_refused(storage: HummockStorage, number: int, error: type[HummockError]) -> None:
    try:
        storage.get(b"any", epoch_of(number))
    except error:
        return
    raise AssertionError(f"a read at {number} did not raise {error.__name__}")


def recover(directory: str, seed: int, note: Note) -> None:
    """As the next process: takes over the writer role and writes one more epoch."""
    with opened(directory, "writer") as storage:
        number = (storage.committed_epoch >> 16) + 1
        write_epoch(storage, seed, number, note)
        maintenance.maintain(directory, lambda: release_old_versions(storage))


def look_and_go_on(directory: str, seed: int) -> int:
    """As `look`, then checks that the store is still writable."""
    found = look(directory, seed)
    recover(directory, seed, lambda text: None)
    assert look_once(directory, seed) == found + 1
    return found


def look_and_clean_up(directory: str, seed: int) -> int:
    """As `look_and_go_on`, then checks that no garbage is left once all leases have expired."""
    found = look_and_go_on(directory, seed)
    maintenance.check_no_garbage(directory)
    assert look_once(directory, seed) == found + 1
    return found
