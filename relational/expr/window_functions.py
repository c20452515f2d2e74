"""Functions of a row's number in the order of its group."""

from __future__ import annotations

from enum import StrEnum

from relational.types.data_type import DataType

RANK_TYPE = DataType.BIGINT


class RankKind(StrEnum):
    """How rows that are equal in the order are numbered: one after the other, in the order of the stream key; all like
    the first of them; or so without gaps behind them."""

    ROW_NUMBER = "row_number"
    RANK = "rank"
    DENSE_RANK = "dense_rank"
