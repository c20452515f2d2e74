"""The simplest model of a store whose tables have rules, and the keys of random programs.

TTL, RISING and FALLING have rules that hide rows; COLUMNS has prefixes of columns for filters; GOING may be dropped.
All other keys belong to unregistered tables."""

from __future__ import annotations

import random

from hummock.base.key import USER_KEY_PREFIX_BYTES, table_id_of, user_key, vnode_of
from hummock.base.key_watermark import KeyWatermark
from hummock.base.table_rules import KeyColumn, PrefixRule, TableRules
from hummock.epoch import SPILL_BITS, Epoch, pure_epoch
from hummock.store.memory_store import MemoryStateStore

TTL, RISING, FALLING, COLUMNS, GOING = range(1, 6)
VNODES = (0, 1, 255)
PARTS = (b"\x00", b"\x01", b"a", b"b", b"\xff")
NUMBER_AND_TEXT = (KeyColumn(1, 2), KeyColumn(1, 0))
INVERTED = (KeyColumn(0xFE, 1, inverted=True),)
PREFIXES = {
    TTL: (None, PrefixRule(8)), RISING: (None, PrefixRule(7)), FALLING: (None, PrefixRule(4), PrefixRule(9)),
    COLUMNS: (PrefixRule(columns=NUMBER_AND_TEXT), PrefixRule(columns=NUMBER_AND_TEXT[:1]), PrefixRule(6)),
    GOING: (None, PrefixRule(columns=INVERTED)),
}  # fmt: skip


class RuledModel(MemoryStateStore):
    """A MemoryStateStore that applies table rules: it accepts `TableRules` and stores them in the simplest form."""

    def __init__(self) -> None:
        super().__init__()
        self.ttl_ms: dict[int, int] = {}
        self.marks: dict[int, list[tuple[int, bool, dict[int, bytes]]]] = {}    # by table; newest last
        self.dropped: frozenset[int] = frozenset()      # of the version under comparison

    def commit_rules(self, tables: dict[int, TableRules | None]) -> None:
        for table_id, rules in tables.items():
            if rules is None:
                self.ttl_ms.pop(table_id, None)
                self.marks.pop(table_id, None)
                continue
            self.ttl_ms[table_id] = rules.ttl_ms
            for mark in rules.watermarks:
                marks = self.marks.setdefault(table_id, [])
                keys = dict(marks[-1][2]) if marks else {}
                for vnode in VNODES:
                    key = mark.key_of(vnode)
                    if key is None:
                        continue
                    known = keys.get(vnode, key)
                    is_back = mark.is_descending and known.startswith(key)      # would make rows visible again
                    keys[vnode] = known if is_back else (min if mark.is_descending else max)(key, known)
                marks.append((mark.epoch, mark.is_descending, keys))

    def is_passed(self, key: bytes, epoch: int) -> bool:
        """Whether the newest watermark at `epoch` hides the key."""
        marks = [mark for mark in self.marks.get(table_id_of(key), ()) if mark[0] <= epoch]
        if not marks or len(key) < USER_KEY_PREFIX_BYTES:
            return False
        _, is_descending, keys = marks[-1]
        mark, own = keys.get(vnode_of(key)), key[USER_KEY_PREFIX_BYTES:]
        if mark is None:
            return False
        return own > mark and not own.startswith(mark) if is_descending else own < mark

    def _visible(self, key: bytes, epoch: int) -> bytes | None:
        if table_id_of(key) in self.dropped or self.is_passed(key, epoch):
            return None
        for written, value, _ in self._versions.get(key, ()):
            if written <= pure_epoch(epoch):
                ttl_ms = self.ttl_ms.get(table_id_of(key), 0)
                return None if ttl_ms and to_ms(written) < to_ms(epoch) - ttl_ms else value
        return None


class Keys:
    """Draws keys to write and to read, with frequent repeats; `written` are the keys written so far."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.written: list[bytes] = [b""]
        table = user_key(TTL, 0, b"")
        self.alphabet = [*rng.choice(([b"a", b"b"], [b"\x00", b"\xff", b"k"], [table, b"xy", b"z"])), b""]
        self.table_share = rng.choice((0.2, 0.6, 1))

    def draw(self) -> bytes:
        if self.rng.random() < 0.6:
            return self.rng.choice(self.written)
        if self.rng.random() >= self.table_share:
            return b"".join(self.rng.choices(self.alphabet, k=self.rng.randint(0, 6)))
        table = self.rng.choice((TTL, RISING, FALLING, COLUMNS, GOING))
        return user_key(table, self.rng.choice(VNODES), self.columns() if table == COLUMNS else self.own())

    def own(self) -> bytes:
        """A table key: the bytes after table id and vnode."""
        return b"".join(self.rng.choices(PARTS, k=self.rng.choice((0, 1, 2, 2, 3))))

    def columns(self) -> bytes:
        """A number or NULL, a text or NULL, and bytes after the prefix; sometimes truncated."""
        number = self.rng.choice((b"\x01", b"\x00ab", b"\x00ac"))
        text = self.rng.choice((b"\x01", b"\x00\x00", b"\x00\x01" + b"text".ljust(8, b"\0") + b"\x04",
                                b"\x00\x01" + b"longtext\x09" + b"s".ljust(8, b"\0") + b"\x01"))
        whole = number + text + self.own()
        return whole if self.rng.random() < 0.9 else whole[:self.rng.randint(0, len(whole))]

    def prefix(self) -> bytes:
        """A prefix for scans: the first bytes of a key, mostly of a length that a rule has."""
        key = self.draw()
        return key[:self.rng.choice((4, 6, 7, 8, 9, 11, 12, 19, len(key), self.rng.randint(0, 8)))]


def first_rules(rng: random.Random) -> dict[int, TableRules | None]:
    """The rules that a program's first commit registers."""
    return {table: TableRules(rng.choice(PREFIXES[table]), rng.choice((0, 2, 6)) if table == TTL else 0,
                              vnode_groups=rng.choice((1, 1, 3))) for table in PREFIXES}


def later_rules(rng: random.Random, model: RuledModel, keys: Keys, after: int,
                last: int) -> dict[int, TableRules | None]:
    """New rules of some table: another prefix, and a watermark at one of the epochs `after` + 1 to `last`."""
    table = rng.choice((RISING, FALLING, *PREFIXES))
    marks: tuple[KeyWatermark, ...] = ()
    if table in (RISING, FALLING):
        vnodes = sorted(rng.sample(VNODES, rng.randint(1, len(VNODES))))
        epoch, mark = Epoch(rng.randint(after + 1, last) << 16), keys.own()[:2]
        marks = (KeyWatermark(epoch, ((0, 0xFFFF, mark),), table == FALLING) if rng.random() < 0.3 else
                 KeyWatermark.of(epoch, {vnode: keys.own()[:2] for vnode in vnodes}, table == FALLING),)
    return {table: TableRules(rng.choice(PREFIXES[table]), model.ttl_ms.get(table, 0), marks,
                              vnode_groups=rng.choice((1, 1, 3)))}


def to_ms(epoch: int) -> int:
    return epoch >> SPILL_BITS
