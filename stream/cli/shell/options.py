"""What the arguments of a shell say: how results are written, and what it may do with the store."""

from __future__ import annotations

from dataclasses import dataclass

from hummock.errors import InvalidOption

TABLE, ARROW = "table", "arrow"
FORMATS = (TABLE, "csv", "json", "ndjson", "markdown", ARROW)


@dataclass(slots=True)
class OutputOptions:
    """`format`: None is a table in a terminal and CSV elsewhere. `is_expanded`: each row of a table as a record.
    `max_rows`: of a table, 0 for as many as can be. `has_pager`: long results are shown by $PAGER."""

    format: str | None = None
    is_expanded: bool = False
    max_rows: int | None = None
    has_pager: bool = True

    def choose(self, name: str) -> None:
        """Sets the format. InvalidOption."""
        if name not in FORMATS:
            raise InvalidOption("format", name, f"one of {', '.join(FORMATS)}")
        self.format = name


@dataclass(frozen=True, slots=True)
class Access:
    """What a shell may do with a store: change it, create it, and end the process that writes it. `metrics_port`: of
    its session."""

    writes: bool = False
    creates: bool = False
    takes_over: bool = False
    meta: str | None = None
    accept_rollback: bool = False
    allow_user_functions: bool = False
    metrics_port: int = -1
