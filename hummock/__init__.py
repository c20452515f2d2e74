"""Hummock: an LSM state store on object storage; versioned bytes under user keys, committed epoch by epoch.

Start with README.md in this folder. A name is imported from its module when it is first used (PEP 562)."""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

    __version__: str

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

MODULES = {
    "hummock.base.key": ("KeyRange", "user_key"),
    "hummock.base.key_watermark": ("KeyWatermark",),
    "hummock.base.table_rules": ("KeyColumn", "PrefixRule", "TableRules"),
    "hummock.columnar.binary_column": ("BinaryColumn",),
    "hummock.columnar.write_batch": ("KvBatch", "WriteBatch"),
    "hummock.epoch": ("Epoch", "EpochGenerator", "EpochPair"),
    "hummock.errors": ("HummockError",),
    "hummock.meta.hummock_manager": ("HummockManager",),
    "hummock.options": ("CompactionOptions", "MetaOptions", "StorageOptions", "VacuumOptions"),
    "hummock.state_store": ("ReadOptions", "StateStore", "StateStoreIterator", "SyncResult"),
    "hummock.store.memory_store": ("MemoryStateStore",),
    "hummock.store.storage": ("HummockStorage",),
}


if importlib.machinery.PathFinder.find_spec("hummock.cython_shared", __path__) is None:
    raise ImportError(
        f"hummock is not built: {__path__[0]} has no compiled modules for Python {sys.version_info[0]}."
        f"{sys.version_info[1]}. Build them, with a C compiler: pip install -e {Path(__path__[0]).parent}"
    )


def __getattr__(name: str) -> Any:
    if name == "__version__":  # to look it up takes as long as this import
        value: Any = importlib.import_module("hummock.base.process").installed_version()
    elif name == "open":
        value = importlib.import_module("hummock.opening").open_storage
    else:
        module = next((each for each in MODULES if name in MODULES[each]), None)
        if module is None:
            raise AttributeError(f"module 'hummock' has no attribute {name!r}")
        value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
