"""SstableInfo: what a version records of one file, so that a read can skip it without opening it.

The file's own `.meta` contains the same record without the fields known only to the manager or after `.meta` is
finished (`id`, `meta_bytes`, `meta_digest`, `inline_data`).
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from hummock.base.json_fields import U32, natural, word
from hummock.base.row_digest import under_epoch
from hummock.base.table_rules import PrefixRule, TableRules, tables_format

FORMAT_VERSION = 1
INTEGERS = frozenset((
    "rows", "data_bytes", "uncompressed_bytes", "min_epoch", "max_epoch", "stale_rows", "tombstones",
    "format_version", "global_epoch", "id", "meta_bytes"))
TEXTS = frozenset(("name", "filter_policy", "codec", "meta_digest"))
PLAIN = INTEGERS | TEXTS        # their values are JSON as they are


@dataclass(frozen=True, slots=True)
class SstableInfo:
    """One immutable file. `smallest` and `largest` are user keys of entries in it."""

    name: str                       # 32 hex digits; never reused
    smallest: bytes
    largest: bytes
    rows: int                       # entries: every version of every key counts
    data_bytes: int                 # length of `.data`
    uncompressed_bytes: int         # of all block payloads
    table_ids: tuple[int, ...]      # ascending
    min_epoch: int                  # of the entries as stored, spill offset included
    max_epoch: int
    stale_rows: int = 0             # entries of which the file holds a newer version of the same key
    tombstones: int = 0
    filter_policy: str = "none"
    codec: str = "none"
    format_version: int = FORMAT_VERSION
    global_epoch: int = 0           # assigned at commit, overrides every entry's epoch; 0: entries have their own
    id: int = 0                     # assigned by the manager at commit; 0 before
    meta_bytes: int = 0             # length of `.meta`; 0 inside the `.meta` itself
    meta_digest: str = ""           # blake2b-128 of `.meta` in hex; empty inside the `.meta` itself
    prefixes: tuple[tuple[int, PrefixRule], ...] = ()   # (table id, rule) whose prefixes are in the filter
    content_hash: int | None = None     # of the entries as stored; None: written by a version without content hashes
    inline_data: bytes = field(default=b"", repr=False)     # `.data` and `.meta` of an inline file, see `inline`

    @property
    def stored_bytes(self) -> int:
        """Of both objects."""
        return self.data_bytes + self.meta_bytes

    @property
    def oldest_epoch(self) -> int:
        """The lowest epoch of an entry as readers see it."""
        return self.global_epoch or self.min_epoch

    @property
    def newest_epoch(self) -> int:
        """The highest epoch of an entry as readers see it."""
        return self.global_epoch or self.max_epoch

    @property
    def seen_hash(self) -> int | None:
        """The content hash of the entries as readers see them. With a global epoch REQUIRES one stored epoch of all."""
        if self.content_hash is None or not self.global_epoch:
            return self.content_hash
        return under_epoch(self.content_hash, self.min_epoch, self.global_epoch)

    def to_json(self) -> dict[str, Any]:
        """The record as JSON values: bytes become hex, tuples lists; fields without prefixes or hash are omitted."""
        record: dict[str, Any] = {name: getattr(self, name) for name in PLAIN}
        record["smallest"], record["largest"] = self.smallest.hex(), self.largest.hex()
        record["table_ids"] = list(self.table_ids)
        if self.content_hash is not None:
            record["content_hash"] = f"{self.content_hash:016x}"
        if self.inline_data:
            record["inline_data"] = b64encode(self.inline_data).decode()
        if self.prefixes:
            record["prefixes"] = [[table_id, rule.to_json()] for table_id, rule in self.prefixes]
        return record

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> SstableInfo:
        """The inverse of `to_json`, ignoring unknown fields. KeyError, TypeError or ValueError if malformed."""
        known = {each.name: record[each.name] for each in fields(cls) if each.name in record}
        known["smallest"] = bytes.fromhex(record["smallest"])
        known["largest"] = bytes.fromhex(record["largest"])
        known["table_ids"] = tuple(natural(table_id, U32) for table_id in record["table_ids"])
        known["prefixes"] = tuple((natural(table_id, U32), PrefixRule.from_json(rule))
                                  for table_id, rule in record.get("prefixes", ()))
        if "content_hash" in record:
            known["content_hash"] = _number_of(record["content_hash"])
        if "inline_data" in record:
            known["inline_data"] = b64decode(record["inline_data"], validate=True)
            if len(known["inline_data"]) != known["data_bytes"] + known["meta_bytes"]:
                raise ValueError(f"an inline file of {len(known['inline_data'])} bytes")
        for name, value in known.items():
            if name in INTEGERS:
                natural(value)
            if name in TEXTS:
                word(value)
        return cls(**known)


def record_format(tables: Mapping[int, TableRules | None], files: Iterable[SstableInfo]) -> int:
    """The format of a record with these rules and files: 3 if a file is inline, else as `tables_format`."""
    return 3 if any(info.inline_data for info in files) else tables_format(tables)


def _number_of(digits: str) -> int:
    """A 64-bit integer from 16 hex digits."""
    data = bytes.fromhex(digits)
    if len(data) != 8:
        raise ValueError(f"{digits[:80]!r} is no number of 16 hex digits")
    return int.from_bytes(data, "big")
