"""MemoryStateStore passes the StateStore suite."""

import pytest

from hummock.store.memory_store import MemoryStateStore
from tests.support.suites.state_store_suite import StateStoreSuite


class TestMemoryStateStore(StateStoreSuite):
    @pytest.fixture
    def store(self):
        return MemoryStateStore()
