"""ReadOptions: the parsed options of the data source."""

from __future__ import annotations

from collections.abc import Mapping

from hummock.epoch import Epoch
from hummock.errors import InvalidOption
from relational.spark.open_store import OpenStore
from relational.spark.pinned_table import PinnedTable


class ReadOptions:
    """Raises InvalidOption naming an option that is missing or not a number."""

    def __init__(self, options: Mapping[str, str]):
        self.given = dict(options)
        self.url = options.get("url") or options.get("path") or _missing("url")
        self.name = options.get("table") or _missing("table")
        self.meta = options.get("meta")
        columns = options.get("columns")
        self.columns = None if columns is None else [name.strip() for name in columns.split(",")]
        self.epoch, self.since = number_in(options, "epoch"), number_in(options, "since")
        self.held_ms = number_in(options, "held_ms")
        self.start, self.max_bytes = options.get("start"), number_in(options, "max_bytes")
        self.where = options.get("where")
        if self.where is not None and (self.since is not None or self.start is not None):
            raise InvalidOption("where", self.where, "left out beside since or start: filter the frame of changes, for "
                                                     "one half of an update may meet the condition and the other not")

    @property
    def has_ops(self) -> bool:
        """Whether rows are changes, which have `_op` first."""
        return self.since is not None or self.start is not None

    def table(self, epoch: int | None = None, *, held_ms: int | None = None,
              store: OpenStore | None = None) -> PinnedTable:
        """The table at `epoch`; None: at the epoch of the options."""
        wanted = self.epoch if epoch is None else epoch
        return PinnedTable(self.url, self.name, epoch=None if wanted is None else Epoch(wanted), meta=self.meta,
                           held_ms=held_ms, store=store)


def number_in(options: Mapping[str, str], name: str) -> int | None:
    """The value of an option; None: it is not given. InvalidOption if it is not a whole number."""
    value = options.get(name)
    if value is None:
        return None
    if not value.isdecimal():
        raise InvalidOption(name, value, "a whole number")
    return int(value)


def _missing(name: str) -> str:
    raise InvalidOption(name, "", "given: option(\"" + name + "\", ...)")
