"""VacuumReport: what a vacuum found and what it removed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from hummock.meta.vacuum.references import Need


@dataclass(slots=True)
class Footprint:
    """So many files and their stored bytes, `.data` and `.meta` together."""

    files: int = 0
    bytes: int = 0

    def add(self, size_bytes: int) -> None:
        self.files += 1
        self.bytes += size_bytes

    def __str__(self) -> str:
        return f"{self.files:,} files, {self.bytes:,} bytes"


@dataclass(slots=True)
class VacuumReport:
    """The files that were there, by need, before anything was removed; stale ones as the stale list says."""

    dry_run: bool = False
    found: dict[Need, Footprint] = field(default_factory=lambda: {need: Footprint() for need in Need})
    removed: Footprint = field(default_factory=Footprint)
    objects_listed: int = 0
    foreign_objects: int = 0        # that are no part of any file of the store: left alone
    pages_left: int = 0             # of the listing, overtaken by commits at every try
    is_complete: bool = False       # every object was sorted, from the first to the last

    @property
    def garbage(self) -> Footprint:
        """What nothing needs."""
        stale, orphaned = self.found[Need.STALE], self.found[Need.ORPHANED]
        return Footprint(stale.files + orphaned.files, stale.bytes + orphaned.bytes)

    def rows(self) -> Iterator[tuple[str, int, int]]:
        """(word, files, bytes), as a table shows them."""
        for need in Need:
            yield need.value, self.found[need].files, self.found[need].bytes
        yield "would be removed" if self.dry_run else "removed", self.removed.files, self.removed.bytes

    def to_json(self) -> dict[str, Any]:
        record = asdict(self)
        record["found"] = {need.value.replace(" ", "_"): footprint for need, footprint in record["found"].items()}
        return record

    def __repr__(self) -> str:
        parts = "; ".join(f"{word}: {files:,} files, {size:,} bytes" for word, files, size in self.rows() if files)
        return f"<vacuum{'' if self.is_complete else ' (in part)'}: {parts or 'nothing stored'}>"
