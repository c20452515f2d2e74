"""JobFailure: the catalog's record of a job that was set aside because it failed.

The tables of the job keep their contents as of epoch `since`; the job does not run until it is resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class JobFailure:
    """`job_id` is the id of the job's table. `since` is the last epoch committed with the job, `failed_at_ms` the wall
    clock in milliseconds since 1970 when it was set aside. `reason` is the error text; `follows` the id of the failed
    job that this one reads and therefore follows, None for the job that failed itself. `split` and `offset` are the
    position of its source, None without a source; `is_malformed`: the record there is not a row of the table.
    `is_retried`: opening the store resumes the job, since the cause is external.
    """

    job_id: int
    since: int
    failed_at_ms: int
    reason: str
    follows: int | None = None
    split: str | None = None
    offset: str | None = None
    is_retried: bool = False
    is_malformed: bool = False

    def to_json(self) -> dict[str, Any]:
        """A record for `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> JobFailure:
        """The failure written by `to_json`."""
        return cls(
            record["job_id"],
            record["since"],
            record["failed_at_ms"],
            record["reason"],
            record.get("follows"),
            record.get("split"),
            record.get("offset"),
            record.get("is_retried", False),
            record.get("is_malformed", False),
        )
