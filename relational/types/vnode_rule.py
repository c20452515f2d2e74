"""The rule by which the vnode of a row follows from its distribution key [R20]."""

from __future__ import annotations

from enum import StrEnum

from relational.types.data_type import DataType, TypeKind

ROW_ID_TIME_SHIFT = 22  # bits of a row id below its milliseconds
_INTEGERS = (TypeKind.SMALLINT, TypeKind.INT, TypeKind.BIGINT)


class VnodeRule(StrEnum):
    """The hash of the key; the bits of a generated row id, in one of its two layouts; or the number that an integer
    column holds. Without a distribution key, all rows have vnode 0 by any rule.
    """

    HASH = "hash"
    ROW_ID = "row id"
    WIDE_ROW_ID = "wide row id"
    STORED = "stored"

    @property
    def is_row_id(self) -> bool:
        """Whether the key is a generated row id."""
        return self in (VnodeRule.ROW_ID, VnodeRule.WIDE_ROW_ID)

    @property
    def vnode_bits(self) -> int:
        """Bits of the vnode in a row id. Ids of tables that hash them have the layout of ROW_ID."""
        return 15 if self is VnodeRule.WIDE_ROW_ID else 10

    @property
    def sequence_bits(self) -> int:
        """Bits of a row id below the vnode."""
        return ROW_ID_TIME_SHIFT - self.vnode_bits

    @classmethod
    def of_row_ids(cls, vnode_count: int) -> VnodeRule:
        """The rule for generated ids of a table with so many vnodes."""
        return cls.ROW_ID if vnode_count <= 1 << cls.ROW_ID.vnode_bits else cls.WIDE_ROW_ID

    def check_key(self, types: list[DataType]) -> None:
        """ValueError if a distribution key of these types has no vnode by this rule."""
        if self is VnodeRule.HASH or not types:
            return
        wanted = (TypeKind.BIGINT,) if self.is_row_id else _INTEGERS
        if len(types) != 1 or types[0].kind not in wanted:
            raise ValueError(f"vnodes by the rule {self} have one column of an integer type, not {types}")
