"""The five views on one screen of 80x24: of each a title, the names of the columns, and five rows.

In a terminal two views stand beside each other where they fit; elsewhere they follow one another, without blanks at the
ends of lines. What is shown is of one epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from rich.text import Text

from relational.display.cells import NULL, cut, is_number, texts, width_of
from relational.display.text import counted_rows
from stream.examples.flights.views import SHOWN, VIEWS
from stream.session.snapshot import Snapshot

ROWS = 5
BESIDE = (("carriers",), ("airport_hours", "late"), ("inbound", "departure_board"))
"""The views of a screen, from above; those of a tuple beside each other."""
GAP = "   "
BETWEEN_COLUMNS = "  "
MOST_OF_TEXT = 20
MINUTE = "%Y-%m-%d %H:%M"
TITLE, HEADER, OLD, NEW = "bold cyan", "dim", "", "bold"


@dataclass(frozen=True, slots=True)
class Block:
    """The first rows of a view as lines of equal width."""

    title: str
    header: str
    rows: tuple[str, ...]

    @property
    def width(self) -> int:
        return max(width_of(self.title), width_of(self.header))

    def lines(self, before: Block | None = None) -> list[tuple[str, str]]:
        """(line, style) of each line, ROWS of them for rows; rows that are not in `before` stand out."""
        known = self.rows if before is None else before.rows
        shown = [(row, OLD if row in known else NEW) for row in self.rows]
        return [(self.title, TITLE), (self.header, HEADER), *shown, *[("", OLD)] * (ROWS - len(shown))]


def read_blocks(snapshot: Snapshot) -> dict[str, Block]:
    """The first rows of each view at the epoch of the snapshot."""
    return {name: _read_block(snapshot, name) for name in VIEWS}


def screen(blocks: dict[str, Block], width: int, before: dict[str, Block] | None = None) -> Iterator[Text]:
    """Lines of at most `width` columns; rows that are not in `before` stand out."""
    for names in BESIDE:
        group = [(blocks[name], before[name] if before else None) for name in names]
        is_beside = sum(block.width for block, _ in group) + len(GAP) * (len(group) - 1) <= width
        for part in [group] if is_beside else [[each] for each in group]:
            columns = [block.lines(old) for block, old in part]
            for line in zip(*columns, strict=True):
                yield _joined(line, [block.width for block, _ in part], width)


def plain_lines(blocks: dict[str, Block]) -> Iterator[str]:
    """The views one after the other, as text of a file."""
    for block in blocks.values():
        yield ""
        yield block.title
        yield from (line.rstrip() for line in (block.header, *block.rows) if block.rows)


def _joined(line: Sequence[tuple[str, str]], widths: Sequence[int], width: int) -> Text:
    joined = Text(no_wrap=True)
    for (text, style), of_block in zip(line, widths, strict=True):
        if joined.plain:
            joined.append(GAP)
        joined.append(cut(text, width), style)
        if of_block < width:
            joined.append(" " * (of_block - width_of(text)))
    joined.rstrip()
    return joined


def _read_block(snapshot: Snapshot, name: str) -> Block:
    columns, order = SHOWN[name]
    rows = snapshot.sql(f"SELECT {columns} FROM {name} ORDER BY {order} LIMIT {ROWS}").to_arrow()
    count = snapshot.sql(f"SELECT count(*) AS n FROM {name}").to_arrow()["n"][0].as_py()
    return block_of(f"{name}, {counted_rows(count)}", rows)


def block_of(title: str, rows: pa.Table) -> Block:
    """The rows as text: numbers to the right, moments to the minute in UTC, means to a tenth."""
    cells = [[field.name, *_cells(rows.column(at))] for at, field in enumerate(rows.schema)]
    widths = [max(map(width_of, column)) for column in cells]
    padded = [
        [_padded(cell, width, is_number(field.type)) for cell in column]
        for column, width, field in zip(cells, widths, rows.schema, strict=True)
    ]
    lines = [BETWEEN_COLUMNS.join(line) for line in zip(*padded, strict=True)]
    return Block(title, lines[0], tuple(lines[1:]))


def _cells(column: pa.ChunkedArray) -> list[str]:
    if pa.types.is_timestamp(column.type):
        return texts(pc.strftime(column.cast(pa.timestamp("us")), MINUTE), MOST_OF_TEXT)
    if pa.types.is_integer(column.type):
        return [NULL if value is None else f"{value:,}" for value in column.to_pylist()]
    if is_number(column.type):
        return [NULL if value is None else f"{value:,.1f}" for value in column.to_pylist()]
    return texts(column, MOST_OF_TEXT)


def _padded(cell: str, width: int, to_right: bool) -> str:
    blanks = " " * (width - width_of(cell))
    return blanks + cell if to_right else cell + blanks
