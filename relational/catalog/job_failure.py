"""JobFailure: the catalog's record of a job that was suspended because it failed.

The tables of the job keep their contents as of epoch `since`; the job does not run until it is resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class JobFailure:
    """`job_id` is the id of the job's table. `since` is the last epoch that was committed with it, `failed_at_ms` the
    wall clock in milliseconds since 1970 when it was set aside. `reason` is the error's text; `follows` the id of the
    job whose failure took this one along, which reads it, None for the one that failed. `split` and `offset` are where
    its source was, None without one; `is_malformed`: a record there is no row of the table. `is_retried`: whoever opens
    the store tries again, as the cause lies outside."""

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
        """A record that `from_json` reads."""
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
