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
