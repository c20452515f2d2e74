"""The log of versions in the meta store: one checkpoint, the deltas after it, and a head that names the last.

All functions are pure over the store's content. An append requires the head that was read, so of two concurrent appends
one succeeds and the other reads again. When there are more than `checkpoint_deltas` deltas, the next append writes the
whole version instead and removes them. A version of many files keeps more of them, so that each append pays for a few
files of the next checkpoint only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from hummock.errors import MetaStoreCorrupt, MetaStoreEmptied, MetaStoreError
from hummock.meta.records import (
    CHECKPOINT,
    DELTAS,
    HEAD,
    Head,
    decode,
    decode_value,
    delta_key,
    encode,
    encode_value,
)
from hummock.meta.store.base import MetaOperations, MetaStore
from hummock.meta.vacuum.obsolete_files import obsolete_row
from hummock.object_store.base import SSTABLE_PREFIX, ObjectStore
from hummock.version import HummockVersion, VersionDelta

READS_LIMIT = 64        # tries to read a head and its deltas against concurrent checkpoints
FILES_OF_DELTA = 8      # files of a checkpoint for each delta that is kept before it
MOST_DELTAS = 1_024     # which a process that opens the store has to apply
FEW_DELTAS = 8          # up to this many are read one by one


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The newest version read, and the exact bytes of its head (None: nothing written yet)."""

    head: Head
    head_bytes: bytes | None
    version: HummockVersion

    @property
    def requirement(self) -> MetaOperations:
        """The precondition that this is still the newest version."""
        return MetaOperations(require={HEAD: self.head_bytes})


NOWHERE = LogPosition(Head(), None, HummockVersion())


def load(meta_store: MetaStore, object_store: ObjectStore) -> LogPosition:
    """The newest version in the store.

    Raises `MetaStoreEmptied` if objects exist that a lost log must have named, `MetaStoreCorrupt`.
    """
    position = follow(meta_store, NOWHERE)
    if position.head_bytes is None:
        found = next(iter(object_store.list(SSTABLE_PREFIX)), None)
        if found is not None:
            raise MetaStoreEmptied(meta_store.url, f"{object_store.url} with {found.path}")
    return position


def follow(meta_store: MetaStore, position: LogPosition) -> LogPosition:
    """A version that was the newest at some moment of this call, by the deltas since `position` if they still exist.

    Others may append concurrently: only a checkpoint that overtakes the reading costs another try. A position whose
    head is unchanged is returned itself. Raises `MetaStoreCorrupt` for a broken log.
    """
    for _ in range(READS_LIMIT):
        with meta_store.one_moment():
            read = _read(meta_store, position)
        if read is not None:
            return read
    raise MetaStoreError(f"{meta_store.url}: checkpoints overtook each of {READS_LIMIT} reads")


def _read(meta_store: MetaStore, position: LogPosition) -> LogPosition | None:
    """The version of the current head, None if its deltas were merged into a checkpoint meanwhile."""
    head_bytes = meta_store.get(HEAD)
    if head_bytes == position.head_bytes:
        return position
    if head_bytes is None:
        raise MetaStoreCorrupt(meta_store.url, HEAD, position.head, None)
    head = decode(Head, HEAD, head_bytes)
    if head.version_id < position.head.version_id:
        raise MetaStoreCorrupt(meta_store.url, HEAD, f"version {position.head.version_id}", head)
    version = _version_of(meta_store, head, position.version)
    return None if version is None else LogPosition(head, head_bytes, version)


def append(position: LogPosition, delta: VersionDelta, next_file_id: int,
           checkpoint_deltas: int) -> tuple[MetaOperations, LogPosition]:
    """The operations that append `delta` to the log, and the position afterwards.

    They add the files that leave the version to the obsolete list.

    Raises `Corruption` where the delta does not fit.
    """
    version = position.version.apply(delta)
    kept = range(position.head.checkpoint_id + 1, position.head.version_id + 1)
    head = Head(version.id, version.max_committed_epoch, position.head.checkpoint_id, next_file_id)
    if len(kept) < deltas_kept(version, checkpoint_deltas):
        rows = {delta_key(delta.id): encode_value(delta)}
        gone: tuple[str, ...] = ()
    else:
        head = replace(head, checkpoint_id=version.id)
        rows = {CHECKPOINT: encode_value(version)}
        gone = tuple(delta_key(version_id) for version_id in kept)
    head_bytes = encode(head)
    operations = position.requirement + MetaOperations(put={HEAD: head_bytes, **rows}, delete=gone)
    operations += obsolete_row(position.version, delta)
    return operations, LogPosition(head, head_bytes, version)


def deltas_kept(version: HummockVersion, checkpoint_deltas: int) -> int:
    """How many deltas are kept before the next append folds them into a checkpoint of such a version."""
    return max(checkpoint_deltas, min(MOST_DELTAS, version.files // FILES_OF_DELTA))


def create(next_file_id: int = 1) -> tuple[MetaOperations, LogPosition]:
    """The operations that create a log with the empty version."""
    head = Head(next_file_id=next_file_id)
    head_bytes = encode(head)
    return (MetaOperations(require={HEAD: None}, put={HEAD: head_bytes}),
            LogPosition(head, head_bytes, HummockVersion()))


def _version_of(meta_store: MetaStore, head: Head, known: HummockVersion) -> HummockVersion | None:
    """The version that `head` names, or None if the log advanced while it was read."""
    version = known
    if known.id < head.checkpoint_id:
        checkpoint = meta_store.get(CHECKPOINT)
        if checkpoint is None:
            raise MetaStoreCorrupt(meta_store.url, CHECKPOINT, f"version {head.checkpoint_id}", None)
        version = decode_value(HummockVersion, CHECKPOINT, checkpoint)
    for key, row in _deltas(meta_store, known, head):
        delta = decode_value(VersionDelta, key, row)
        if version.id < delta.id <= head.version_id:
            if delta.id != version.id + 1:
                break
            version = version.apply(delta)
    if version.id == head.version_id:
        return version
    if meta_store.get(HEAD) == encode(head):
        raise MetaStoreCorrupt(meta_store.url, "version log", f"version {head.version_id}", version.id)
    return None


def _deltas(meta_store: MetaStore, known: HummockVersion, head: Head) -> Iterable[tuple[str, bytes]]:
    """The rows of the deltas from `known` to `head` that there are, ascending, or of all deltas."""
    if known.id < head.checkpoint_id or head.version_id - known.id > FEW_DELTAS:
        return meta_store.list(DELTAS)
    keys = [delta_key(version_id) for version_id in range(known.id + 1, head.version_id + 1)]
    return [(key, row) for key in keys if (row := meta_store.get(key)) is not None]
