"""QueryMemory: what the queries of a session hold in memory and on disk.

The rows that an operator cannot pass on are held within a share of the budget, which is divided as `MemoryBudget` says;
an operator that has more than its share writes rows to a SpillFile. What no operator can write, such as the one result
of an aggregation without groups, may take all of the budget, and no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hummock.base.process import usable_memory_bytes
from relational.batch.spill_file import SpillFile, SpillSpace
from relational.chunk import DataChunk
from relational.errors import QueryTooLarge
from relational.memory_budget import MemoryBudget
from relational.types import DataType
from relational.types.data_type import TypeKind

MEMORY_OPTION = "query_memory_bytes"
MEMORY_SHARE = 4
WINDOW_BYTES, LEAST_WINDOW_BYTES, WINDOW_SHARE = 8 << 20, 64 << 10, 16
COLUMN_BYTES = 1 << 30
"""Of one column of texts, lists or the like, whose offsets are 32 bits wide."""
MOST_ROWS = 1 << 30
_OF_ANY_SIZE = (TypeKind.VARCHAR, TypeKind.BYTEA, TypeKind.JSONB, TypeKind.STRUCT, TypeKind.LIST)
COUNTED = ("query_spilled_bytes",)  # monotonic fields


@dataclass(frozen=True, slots=True)
class QueryMemoryCounts:
    """Statistics of the memory of queries, for `Metrics.watch`."""

    query_memory_bytes: int
    query_disk_bytes: int
    query_spilled_bytes: int  # written to disk


class QueryMemory:
    """`memory_bytes`: of all queries together; 0: a quarter of the memory of the machine, or of the container.
    `disk_bytes`: of their temporary files, which are in `directory` ("": where the system has such files); 0: half of
    what is free there. Thread safe."""

    def __init__(self, memory_bytes: int = 0, disk_bytes: int = 0, directory: str = "") -> None:
        self._budget = MemoryBudget(memory_bytes or usable_memory_bytes() // MEMORY_SHARE)
        self.space = SpillSpace(disk_bytes, directory)

    @property
    def counts(self) -> QueryMemoryCounts:
        return QueryMemoryCounts(self._budget.used_bytes, self.space.used_bytes, self.space.written_bytes)

    @property
    def limit_bytes(self) -> int:
        """Of memory."""
        return self._budget.limit_bytes

    @property
    def window_bytes(self) -> int:
        """Of rows that are written at once."""
        return min(max(self.limit_bytes // WINDOW_SHARE, LEAST_WINDOW_BYTES), WINDOW_BYTES)

    def file(self, types: Sequence[DataType]) -> SpillFile:
        """A new temporary file for rows of these types. SpillFailed."""
        return self.space.file(types)

    def use(self) -> MemoryUser:
        """That of one operator, which uses nothing yet."""
        return MemoryUser(self._budget)


class MemoryUser:
    """The part of the memory that one operator uses, as long as it refers to this. One thread at a time."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._limit, self._share = budget.limit_bytes, budget.share()

    def fits(self, used_bytes: int) -> bool:
        """Whether the operator, which uses `used_bytes` now, may do so."""
        return used_bytes <= self._share.report(used_bytes)

    def require(self, used_bytes: int, what: str) -> None:
        """QueryTooLarge if `used_bytes`, which cannot be on disk, are more than all queries may use."""
        self._share.report(used_bytes)
        if used_bytes > self._limit:
            raise QueryTooLarge(f"bytes of {what}", MEMORY_OPTION, self._limit)


class HeldRows:
    """Chunks without hidden rows that an operator holds, each byte of which takes `factor` bytes until it is done, and
    each row `row_bytes` besides."""

    def __init__(self, memory: QueryMemory, factor: int, row_bytes: int = 0) -> None:
        self.chunks: list[DataChunk] = []
        self.rows = self.nbytes = 0
        self._user, self._factor, self._row_bytes = memory.use(), factor, row_bytes
        self._of_columns: list[int] = []

    def add(self, chunk: DataChunk) -> None:
        """Another one."""
        self.chunks.append(chunk)
        self.rows += chunk.capacity
        if not self._of_columns:
            self._of_columns = [0] * len(chunk.columns)
        for number, column in enumerate(chunk.columns):
            self._of_columns[number] += column.nbytes
        self.nbytes = sum(self._of_columns)

    def column_bytes(self, numbers: Iterable[int]) -> int:
        """Of these columns."""
        return sum(self._of_columns[number] for number in numbers) if self.chunks else 0

    @property
    def used_bytes(self) -> int:
        """With what it takes to process the rows."""
        return self.nbytes * self._factor + self.rows * self._row_bytes

    @property
    def fits(self) -> bool:
        """Whether the operator may hold the rows, and they can be one chunk."""
        return self._user.fits(self.used_bytes) and self.is_one_chunk

    @property
    def is_one_chunk(self) -> bool:
        """Whether they can be one chunk."""
        if self.nbytes <= COLUMN_BYTES:
            return self.rows <= MOST_ROWS
        kinds = zip(self.chunks[0].types, self._of_columns, strict=True)
        return self.rows <= MOST_ROWS and all(size <= COLUMN_BYTES for kind, size in kinds if kind.kind in _OF_ANY_SIZE)

    def require(self, what: str) -> None:
        """QueryTooLarge if rows that cannot be on disk are too many."""
        self._user.require(self.used_bytes, what)
        if not self.is_one_chunk:
            raise QueryTooLarge(f"bytes of one column of {what}", "the width of offsets", COLUMN_BYTES)

    def drain(self) -> Iterator[DataChunk]:
        """The chunks, each of which is forgotten then."""
        chunks, self.chunks = self.chunks[::-1], []
        self.rows = self.nbytes = 0
        self._of_columns = []
        while chunks:
            yield chunks.pop()
        self._user.fits(0)
