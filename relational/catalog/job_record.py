"""JobRecord: how the job of a view, index or sink runs, beside the catalog entry of the table that it writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class JobRecord:
    """`job_id` is the id of the job's table. `plan` is the text of its stream plan, which the stream layer wrote and
    reads. `parallelism`: the actors of each of its fragments; None: as the session's option says. `skippable`: how many
    malformed rows of each split RESUME has allowed to skip: of a job that is built anew, from the beginning of its
    source.
    """

    job_id: int
    plan: str
    parallelism: int | None = None
    skippable: Mapping[str, int] = field(default_factory=dict, hash=False)

    def skipping(self, split: str, rows: int) -> JobRecord:
        """After a RESUME that allows to skip so many malformed rows of a split, beside those allowed before."""
        return replace(self, skippable={**self.skippable, split: self.skippable.get(split, 0) + rows})

    def to_json(self) -> dict[str, Any]:
        """A record for `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> JobRecord:
        """The record written by `to_json`."""
        return cls(record["job_id"], record["plan"], record["parallelism"], record.get("skippable", {}))
