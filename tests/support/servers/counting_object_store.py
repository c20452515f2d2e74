"""An object store in memory that remembers what was read."""

from __future__ import annotations

from hummock.object_store.memory import MemoryObjectStore


class CountingObjectStore(MemoryObjectStore):
    """`reads` has the path of each read and its bytes, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[str, int]] = []

    def get(self, path, byte_range=None):
        data = super().get(path, byte_range)
        self.reads.append((path, len(data)))
        return data

    @property
    def data_reads(self) -> list[str]:
        """The paths of the reads of rows, one for each read."""
        return [path for path, _ in self.reads if path.endswith(".data")]
