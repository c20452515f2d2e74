"""Values as text of one line, and the number of columns of a terminal that a text takes.

A value is shown in the form that SQL's CAST to VARCHAR gives it. What would move the cursor, reverse the direction of
writing or hide itself is shown as an escape such as `\\n` or `\\x1b`; NULL is shown as `NULL`, and the text NULL in
quotes.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from relational.errors import BindError
from relational.expr.kernels.text_format import to_text
from relational.types import DataType
from relational.types.data_type import TypeKind

NULL = "NULL"
ELLIPSIS = "…"
CODE_POINTS_A_COLUMN = 8
"""How many characters of a text are looked at for each column of the terminal: marks that combine take no width."""
ZERO_WIDTH_JOINER = "\u200d"
JOINERS = frozenset(("\u200c", ZERO_WIDTH_JOINER))  # of scripts and emoji, which need them
EMOJI_PRESENTATION = "\ufe0f"
_LOOKS_LIKE_NULL = re.compile(rf"'*{NULL}'*")
_NEEDS_CARE = re.compile(r"[^ -~]")


def sql_type(arrow: pa.DataType) -> DataType | None:
    """The SQL type that holds values of an Arrow type, if there is one."""
    try:
        return DataType.from_arrow(arrow)
    except BindError:
        return None


def type_name(arrow: pa.DataType) -> str:
    """SQL's name of a type, else Arrow's."""
    return visible(str(sql_type(arrow) or arrow))


def is_number(arrow: pa.DataType) -> bool:
    """Whether values are aligned to the right."""
    types = pa.types
    return types.is_integer(arrow) or types.is_floating(arrow) or types.is_decimal(arrow)


def has_long_values(arrow: pa.DataType) -> bool:
    """Whether values may have any length, so that it makes sense to cut them."""
    found = sql_type(arrow)
    return found is None or found.is_nested or found.kind in (TypeKind.VARCHAR, TypeKind.BYTEA, TypeKind.JSONB)


def texts(column: pa.ChunkedArray, most: int) -> list[str]:
    """The values as visible text; those of more than `most` characters are cut."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], column.type)
    data_type = sql_type(column.type)
    if data_type is None or data_type.arrow != array.type:
        whole = [None if value is None else str(value) for value in array.to_pylist()]
        return [_shown(text, most) for text in whole]
    if data_type.kind is TypeKind.BYTEA:
        array = pc.binary_slice(array, 0, most + 1)
    long = to_text(array, data_type) if data_type.kind is not TypeKind.VARCHAR else array
    return [_shown(text, most) for text in pc.utf8_slice_codeunits(long, 0, most + 1).to_pylist()]


def _shown(text: str | None, most: int) -> str:
    if text is None:
        return NULL
    if _LOOKS_LIKE_NULL.fullmatch(text):
        return f"'{text}'"
    return visible(text[:most]) + ELLIPSIS if len(text) > most else visible(text)


def visible(text: str) -> str:
    """The text in one line, with escapes for what a terminal would execute or not show."""
    if not _NEEDS_CARE.search(text):
        return text
    return "".join(
        each if each.isprintable() or each in JOINERS or unicodedata.category(each) == "Zs"
        else each.encode("unicode_escape", "backslashreplace").decode()
        for each in text
    )


def visible_lines(text: str) -> str:
    """As `visible`, with the line breaks of the text."""
    return "\n".join(map(visible, text.split("\n")))


def width_of(text: str) -> int:
    """The columns of a terminal that a visible text takes."""
    return len(text) if text.isascii() else sum(width for _, width in _clusters(text))


def cut(text: str, width: int) -> str:
    """The text if it fits into `width` columns; else as much of it as fits, with an ellipsis at the end."""
    if width_of(text) <= width:
        return text
    kept, used = [], 0
    for cluster, size in _clusters(text):
        if used + size > width - 1:
            break
        kept.append(cluster)
        used += size
    return "".join(kept) + ELLIPSIS


def _clusters(text: str) -> Iterator[tuple[str, int]]:
    """What must not be divided, characters with the marks that belong to them, and its width."""
    cluster, width = "", 0
    for each in text:
        size = _width_of_character(each)
        if cluster and (size == 0 or cluster[-1] == ZERO_WIDTH_JOINER or "\U0001f3fb" <= each <= "\U0001f3ff"):
            cluster += each
            width = 2 if each == EMOJI_PRESENTATION else max(width, size)
            continue
        if cluster:
            yield cluster, width
        cluster, width = each, size
    if cluster:
        yield cluster, width


def _width_of_character(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf") or "\u1160" <= character <= "\u11ff":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
