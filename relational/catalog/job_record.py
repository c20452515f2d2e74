"""JobRecord: how the job of a view, index or sink runs, beside the catalog entry of the table that it writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class JobRecord:
    """`job_id` is the id of the job's table. `plan` is the text of its stream plan, which the stream layer wrote and
    reads. `parallelism`: the actors of each of its fragments; None: as the session's option says.
    """

    job_id: int
    plan: str
    parallelism: int | None = None

    def to_json(self) -> dict[str, Any]:
        """A record for `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> JobRecord:
        """The record written by `to_json`."""
        return cls(record["job_id"], record["plan"], record["parallelism"])
