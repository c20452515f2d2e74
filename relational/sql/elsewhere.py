"""What SQL of other databases is here: the words of errors about statements and clauses that this one does not have."""

from __future__ import annotations

import re

_RULE = "the table says what becomes of a row whose key exists: CREATE TABLE … ON CONFLICT OVERWRITE, or IGNORE"

STATEMENTS = {
    "REFRESH": "a materialized view follows its tables; FLUSH waits for the next commit",
    "REPLACE": _RULE,
    "UPSERT": _RULE,
    "MERGE": _RULE,
    "PRAGMA": "DESCRIBE shows the columns of a table, SHOW and SET settings",
    "SUMMARIZE": "DESCRIBE shows the columns of a table, SELECT computes what is to be known of them",
    "FROM": "write SELECT * FROM …",
    "TABLE": "write SELECT * FROM …",
    "USE": "a schema stands before a name: schema.name",
    "VACUUM": "files are compacted and removed in the background",
    "SAVEPOINT": "a transaction takes effect as a whole, or not at all",
}
"""By the first word of a statement."""
OR_REPLACE = "OR REPLACE is for functions: IF NOT EXISTS keeps what there is, and DROP … before CREATE replaces it"
_GENERATED_ID = "a table without a PRIMARY KEY has an id of its own for each row, which is not shown"
CREATE = {
    "UNIQUE": "no index is UNIQUE: the PRIMARY KEY of a table is what is there once",
    "TEMP": "there are no temporary tables: WITH names a query for one statement",
    "TEMPORARY": "there are no temporary tables: WITH names a query for one statement",
    "SEQUENCE": f"there are no sequences: {_GENERATED_ID}",
    "TRIGGER": "there are no triggers: a materialized view follows its tables",
    "TYPE": "there are no types of one's own: STRUCT<name type, …> is written in the column",
}
"""By the word after CREATE."""
TYPES = {word: f"there is no type {word.upper()}: {_GENERATED_ID}" for word in (
    "serial", "bigserial", "smallserial", "serial2", "serial4", "serial8")}
"""Of columns."""
COLUMN_CLAUSES = {
    "GENERATED": f"no column is generated: {_GENERATED_ID}, and a view computes columns from others",
}
"""By the word in the definition of a column."""
LIKE = "LIKE is not supported here: CREATE TABLE … AS SELECT * FROM … LIMIT 0 has the columns of another table"
INDEX_OF_EXPRESSION = "an index is of columns, not of expressions: it can be of a materialized view that computes one"
INSERT_OR = f"INTO is expected here: {_RULE}"

_CONFLICT = re.compile(r"(on\s+)?(conflict|duplicate\s+key)\b", re.IGNORECASE)
_BEGINNING = re.compile(r"(select|insert|update|delete|create|drop|alter|with|flush|show)\b", re.IGNORECASE)
_LAST_LINE_END = re.compile(r"\n\s*\Z")


def clause_elsewhere(text: str, at: int) -> str:
    """What is to be said of a syntax error at a position of a text, beginning with a colon; or nothing."""
    if _CONFLICT.match(text, at):
        return f": {_RULE}"
    if text[max(0, at - 1) : at + 1] == "%s" or text[at : at + 2] in ("%s", "%("):
        return ": parameters are written ?, $1 or :name"
    if _BEGINNING.match(text, at) and _LAST_LINE_END.search(text, max(0, at - 200), at):
        return ": is there a semicolon missing before it?"
    return ""
