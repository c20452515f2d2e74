"""Estimates how much of a file is hidden from every reader at or above a watermark, from its metadata alone.

A row is hidden, with all its versions, when its table's time to live is over or its table's key watermark has passed
it.
"""

from __future__ import annotations

from hummock.base.key import USER_KEY_PREFIX_BYTES, vnode_of
from hummock.base.table_rules import TableRules, Tables
from hummock.epoch import SPILL_BITS, Epoch
from hummock.sstable.info import SstableInfo

BELOW_ONE = 0.999       # if some row may be visible
PROBE_BYTES = 8         # bytes behind the common prefix of two keys from which their distance is estimated


def all_dead(info: SstableInfo, tables: Tables, watermark: Epoch) -> bool:
    """Whether no reader at or above `watermark` sees a row of the file."""
    return dead_share(info, tables, watermark) >= 1


def dead_share(info: SstableInfo, tables: Tables, watermark: Epoch) -> float:
    """Estimated hidden share of the file, from its epochs and bounds; 1 only if all of it is hidden."""
    rules = [tables.get(table_id) for table_id in info.table_ids]
    aged = min((0.0 if rule is None else _aged_share(info, rule, watermark) for rule in rules), default=0.0)
    if len(rules) == 1 and rules[0] is not None and aged < 1:
        return max(aged, _passed_share(info, rules[0], watermark))
    return aged


def _aged_share(info: SstableInfo, rules: TableRules, watermark: Epoch) -> float:
    """The share of the file's time span that is older than the time to live."""
    if not rules.ttl_ms:
        return 0.0
    first = (info.global_epoch or info.min_epoch) >> SPILL_BITS
    last = (info.global_epoch or info.max_epoch) >> SPILL_BITS
    oldest = (watermark >> SPILL_BITS) - rules.ttl_ms
    return min(1.0, max(0.0, (oldest - first) / (last + 1 - first)))


def _passed_share(info: SstableInfo, rules: TableRules, watermark: Epoch) -> float:
    """The share of the file's keys that the key watermark has passed; 0 for files of several vnodes."""
    mark, vnode = rules.mark_at(watermark), vnode_of(info.smallest)
    if mark is None or vnode != vnode_of(info.largest) or len(info.smallest) < USER_KEY_PREFIX_BYTES:
        return 0.0
    key = mark.key_of(vnode)
    if key is None:
        return 0.0
    low, high = info.smallest[USER_KEY_PREFIX_BYTES:], info.largest[USER_KEY_PREFIX_BYTES:]
    if mark.is_descending:              # a key that begins with the mark is at the mark, not past it
        if key < low:
            return 0.0 if low.startswith(key) else 1.0
        return 0.0 if high <= key else min(BELOW_ONE, 1 - _position(low, key, high))
    return 1.0 if high < key else 0.0 if key <= low else _position(low, key, high)


def _position(low: bytes, key: bytes, high: bytes) -> float:
    """Relative position of `key` between `low` and `high`, below 1. REQUIRES low <= key <= high."""
    shared = next((position for position, (one, other) in enumerate(zip(low, high, strict=False)) if one != other),
                  min(len(low), len(high)))
    first, middle, last = (int.from_bytes(key_[shared:shared + PROBE_BYTES].ljust(PROBE_BYTES, b"\0"), "big")
                           for key_ in (low, key, high))
    return min(BELOW_ONE, (middle - first) / max(1, last - first))
