"""HummockStorage keeps every promise of a StateStore, on memory and on disk; and what only it promises."""

import pytest

import hummock
from tests.suites.state_store_suite import StateStoreSuite


class TestHummockStorageInMemory(StateStoreSuite):
    @pytest.fixture
    def store(self):
        with hummock.open("memory://") as store:
            yield store


class TestHummockStorageOnDisk(StateStoreSuite):
    @pytest.fixture
    def store(self, tmp_path):
        with hummock.open(f"file://{tmp_path}/store") as store:
            yield store


class TestHummockStorageOfTinyFiles(StateStoreSuite):
    """A block for each entry, a file for each few, no caches: every border is crossed."""

    @pytest.fixture
    def store(self):
        with hummock.open(
            "memory://", block_bytes=1, sstable_bytes=64, block_cache_bytes=1, meta_cache_bytes=1,
            prefetch_bytes=1, scan_batch_rows=3, shared_buffer_bytes=64,
        ) as store:  # fmt: skip
            yield store
