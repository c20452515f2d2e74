"""Hummock: an LSM state store on object storage; versioned bytes under user keys, committed epoch by epoch.

Start with README.md in this folder.
"""

from hummock.base.key import KeyRange, user_key
from hummock.base.key_watermark import KeyWatermark
from hummock.base.table_rules import KeyColumn, PrefixRule, TableRules
from hummock.columnar.binary_column import BinaryColumn
from hummock.columnar.write_batch import KvBatch, WriteBatch
from hummock.epoch import Epoch, EpochGenerator, EpochPair
from hummock.errors import HummockError
from hummock.meta.hummock_manager import HummockManager
from hummock.opening import open_storage as open
from hummock.options import CompactionOptions, MetaOptions, StorageOptions, VacuumOptions
from hummock.state_store import ReadOptions, StateStore, StateStoreIterator, SyncResult
from hummock.store.memory_store import MemoryStateStore
from hummock.store.storage import HummockStorage

__all__ = [
    "BinaryColumn",
    "CompactionOptions",
    "Epoch",
    "EpochGenerator",
    "EpochPair",
    "HummockError",
    "HummockManager",
    "HummockStorage",
    "KeyColumn",
    "KeyRange",
    "KeyWatermark",
    "KvBatch",
    "MemoryStateStore",
    "MetaOptions",
    "PrefixRule",
    "ReadOptions",
    "StateStore",
    "StateStoreIterator",
    "StorageOptions",
    "SyncResult",
    "TableRules",
    "VacuumOptions",
    "WriteBatch",
    "open",
    "user_key",
]
