"""Constants of simple conditions as parameters: a text that is written anew for each value has one plan for all.

    SELECT * FROM t WHERE id = 7 AND at >= '2024-01-01'    becomes    SELECT * FROM t WHERE id = $1 AND at >= $2

Only queries of columns of one table, UPDATE and DELETE, whose conditions compare columns with numbers and texts and
whose assignments are one of these or add one to a column: a constant has no other meaning there than that of a
parameter.
"""

from __future__ import annotations

import re

from relational.errors import ParseError
from relational.sql.expressions import number

MAX_CHARACTERS = 4_096
_NAME = r'(?:[A-Za-z_]\w*|"[^"]+")'
_PATH = rf"{_NAME}(?:\s*\.\s*{_NAME})*"
_CONSTANT = r"(?:'(?:[^'\\]|'')*'|-?\d+(?:\.\d*)?)"
_TERM = rf"{_PATH}\s*(?:=|<>|!=|<=|>=|<|>)\s*{_CONSTANT}"
_TERMS = rf"{_TERM}(?:\s+AND\s+{_TERM})*"
_SET = rf"{_NAME}\s*=\s*(?:{_PATH}\s*(?:[+*/]|-(?!-))\s*)?{_CONSTANT}"
_SHAPE = re.compile(
    rf"\s*(?:SELECT\s+(?:\*|{_PATH}(?:\s*,\s*{_PATH})*)\s+FROM\s+{_PATH}|DELETE\s+FROM\s+{_PATH}|"
    rf"UPDATE\s+{_PATH}\s+SET\s+(?P<assigned>{_SET}(?:\s*,\s*{_SET})*))\s+WHERE\s+(?P<terms>{_TERMS})\s*;?\s*",
    re.IGNORECASE,
)
_OPERAND = re.compile(rf"\"[^\"]+\"|(?P<sign>[-+*/=<>]\s*)(?P<constant>{_CONSTANT})")


def lifted(text: str) -> tuple[str, tuple[object, ...]] | None:
    """The text with parameters for its constants, and their values; None for another text."""
    if len(text) > MAX_CHARACTERS:
        return None
    match = _SHAPE.fullmatch(text)
    if match is None:
        return None
    values: list[object] = []

    def change(found: re.Match[str]) -> str:
        constant = found["constant"]
        if constant is None:
            return found[0]
        if constant[0] == "'":
            values.append(constant[1:-1].replace("''", "'"))
        else:
            values.append(-number(constant[1:]) if constant[0] == "-" else number(constant))
        return f"{found['sign']}${len(values)}"

    start = match.start("terms" if match["assigned"] is None else "assigned")
    end = match.end("terms")
    try:
        return text[:start] + _OPERAND.sub(change, text[start:end]) + text[end:], tuple(values)
    except ParseError:
        return None
