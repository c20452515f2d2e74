import inspect
import pickle

import pytest

from hummock import errors

ARGUMENTS = {
    "HummockError": ("reason",),
    "ObjectStoreError": ("sst/a.data", "disk full"),
    "ObjectNotFound": ("sst/a.data",),
    "ObjectExists": ("sst/a.data",),
    "InvalidPath": ("../a", "leaves the store"),
    "ObjectStoreRefused": ("sst/a.data", "no such bucket"),
    "InvalidKey": (1.5, 0, b"k"),
    "RoleMissing": ("writer",),
    "UploadLost": ("sst/a.data", "fsync failed"),
    "DiskFull": ("sst/a.data", "/data/store", "ENOSPC: No space left on device"),
    "DeadlineExceeded": ("sst/a.data", "reset", 8),
    "DiskCacheInUse": ("cache",),
    "Corruption": ("sst/a.data", "block 3", 1, 2),
    "MetaStoreError": ("broken",),
    "PreconditionFailed": ("version/current", b"1", None),
    "OutcomeUnknown": ("connection lost",),
    "MetaStoreBusy": ("meta.db", 100),
    "MetaStoreCorrupt": ("meta.db", "row digest", "ab", "cd"),
    "MetaStoreRolledBack": ("meta.db", "witness/meta.db-1", 9, 5),
    "MetaStoreEmptied": ("meta.db", "meta.initialised"),
    "MetaStoreReplaced": ("meta.db", "0a1b", "2c3d"),
    "MetaStoreUnfit": ("webhdfs://h/p", "it does not create on condition"),
    "StoreNotFound": ("/shop",),
    "MetaStoreForked": ("meta.db", 1, 2),
    "StoreForked": ("file:///store", 1, 2),
    "FormatTooNew": ("version 7", 3, 1),
    "InvalidWriteBatch": ("keys are not sorted", 3),
    "InvalidEpoch": (7, "is not pure"),
    "InvalidOption": ("codec", "zip", "one of none, lz4, zstd"),
    "UnknownOption": ("codex", "zip", ("codec", "block_bytes")),
    "SstableRefused": ("ab", "was vacuumed"),
    "LoadRefused": ("nightly", "table 7 was dropped"),
    "InvalidTask": ("compact task", "no id"),
    "TaskRefused": (7, "its lease ran out"),
    "RowCountMismatch": (7, 2, "read 3 rows, kept 1 and dropped 1"),
    "TaskCancelled": (7,),
    "WriterRunning": ("file:///shop", "node", "host", 7, 1_700_000_000_000),
    "BackupNotFound": ("s3://backups/shop", 7, (3, 5), True),
    "BackupRefused": ("s3://backups/shop", "it holds a store"),
    "StoreExists": ("file:///shop",),
    "Fenced": ("writer", 1, 2, "node"),
    "EpochTooOld": (1, 2),
    "SnapshotExpired": ("snapshot 5",),
    "WaitEpochTimeout": (2, 1, 100),
    "SharedBufferFull": (10, 5),
    "ExtraMissing": ("an s3:// store", "boto3", "pip install 'hummock[s3]'"),
    "SparkMissing": ("Java", "install it"),
    "ExecutorUnfit": ("worker-3", "no module named hummock", "install the wheel there"),
    "SparkJobFailed": ("compact task 7", "task 3: Corruption"),
    "SparkJobCancelled": ("compact task 7",),
    "StoreClosed": ("the store",),
}
TREE = {name: kind for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, errors.HummockError)}


def test_every_error_is_in_the_drawn_tree():
    assert set(TREE) == set(ARGUMENTS)
    for name in TREE:
        assert name in errors.__doc__


@pytest.mark.parametrize("name", sorted(TREE))
def test_an_error_survives_pickling_with_its_evidence(name):
    error = TREE[name](*ARGUMENTS[name])
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error) != ""
    assert vars(copy) == vars(error)


def test_messages_carry_the_evidence():
    damage = errors.Corruption("a.data", "block 3", 1, 2)
    assert str(damage) == "a.data is damaged at block 3: expected 1, got 2"
    assert str(errors.InvalidWriteBatch("key repeats", 4)) == "row 4: key repeats"
    assert "sst/x" in str(errors.ObjectNotFound("sst/x"))
    long = errors.PreconditionFailed("k", b"x" * 500, None)
    assert len(str(long)) < 250 and "500 bytes" in str(long)


@pytest.mark.parametrize(("name", "builtin"), [
    ("ObjectNotFound", KeyError), ("Corruption", ValueError), ("MetaStoreCorrupt", ValueError),
    ("InvalidEpoch", ValueError), ("WaitEpochTimeout", TimeoutError), ("MetaStoreBusy", TimeoutError),
])
def test_natural_errors_are_builtins_too(name, builtin):
    assert issubclass(TREE[name], builtin)
