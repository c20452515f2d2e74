"""The syntax of statements, as `\\h` shows it; docs/sql.md has all of it."""

from __future__ import annotations

from collections.abc import Mapping

STATEMENTS: Mapping[str, str] = {
    "SELECT": "SELECT [DISTINCT] … FROM table [JOIN …] [WHERE …] [GROUP BY …] [HAVING …] [ORDER BY …] [LIMIT n]",
    "WITH": "WITH name AS (query), … query",
    "VALUES": "VALUES (value, …), …",
    "INSERT": "INSERT INTO table [(column, …)] {VALUES (value, …), … | query} [RETURNING …]",
    "UPDATE": "UPDATE table SET column = value, … [WHERE …] [RETURNING …]",
    "DELETE": "DELETE FROM table [WHERE …] [RETURNING …]",
    "COPY": "COPY table [(column, …)] FROM 'path' [(FORMAT format, option value, …)]\n"
            "COPY {table [(column, …)] | (query)} TO 'path' [(FORMAT format, option value, …)]",
    "TRUNCATE": "TRUNCATE [TABLE] table",
    "CREATE TABLE": "CREATE TABLE [IF NOT EXISTS] name (column type [NOT NULL] [DEFAULT value] [PRIMARY KEY], …, "
                    "[WATERMARK FOR column AS …])\n  [APPEND ONLY] [ON CONFLICT {OVERWRITE | IGNORE | ERROR}] "
                    "[WITH (option = value, …)] [AS query]",
    "CREATE SOURCE": "CREATE SOURCE name (column type, …, [WATERMARK FOR column AS …]) WITH (connector = …, …)",
    "CREATE SINK": "CREATE SINK name {FROM table | AS query} WITH (connector = …, …)\n"
                   "CREATE SINK name INTO table [(column, …)] {FROM table | AS query}",
    "CREATE MATERIALIZED VIEW": "CREATE MATERIALIZED VIEW name [(column, …)] [WITH (option = value, …)] AS query",
    "CREATE VIEW": "CREATE VIEW name [(column, …)] AS query",
    "CREATE INDEX": "CREATE INDEX name ON table (column [DESC], …)",
    "CREATE FUNCTION": "CREATE [OR REPLACE] FUNCTION name([argument] type, …) RETURNS {type | TABLE (column type, …)}\n"
                       "  LANGUAGE python [IMMUTABLE | STABLE | VOLATILE] [STRICT] AS $$ source $$ [WITH (…)]",
    "CREATE SCHEMA": "CREATE SCHEMA [IF NOT EXISTS] name",
    "ALTER TABLE": "ALTER TABLE table {ADD COLUMN column type [DEFAULT value] | DROP COLUMN column [CASCADE]\n"
                   "  | RENAME [COLUMN] column TO column | RENAME TO name | SET (ttl = 'interval')\n"
                   "  | RESUME [SKIP n ROWS]}",
    "ALTER MATERIALIZED VIEW": "ALTER MATERIALIZED VIEW name {RENAME TO name | SET PARALLELISM = n | RESUME}",
    "DROP": "DROP {TABLE | SOURCE | SINK | [MATERIALIZED] VIEW | INDEX | SCHEMA | DATABASE | FUNCTION}\n"
            "  [IF EXISTS] name [CASCADE]",
    "COMMENT": "COMMENT ON {TABLE | MATERIALIZED VIEW | VIEW | SOURCE | SINK | INDEX | COLUMN} name IS {'text' | NULL}",
    "FLUSH": "FLUSH: returns when all changes before it are committed, and views have them",
    "BEGIN": "BEGIN [READ ONLY]",
    "COMMIT": "COMMIT",
    "ROLLBACK": "ROLLBACK",
    "DECLARE": "DECLARE name CURSOR FOR query",
    "FETCH": "FETCH [n | ALL] FROM cursor",
    "PREPARE": "PREPARE name [(type, …)] AS statement; EXECUTE name [(value, …)]; DEALLOCATE name",
    "SET": "SET name {= | TO} {value | DEFAULT}; RESET {name | ALL}; SHOW {name | ALL}",
    "SHOW": "SHOW {TABLES | SOURCES | SINKS | VIEWS | MATERIALIZED VIEWS | INDEXES | FUNCTIONS | SCHEMAS | DATABASES} "
            "[FROM schema]\nSHOW {JOBS | ERRORS | EPOCHS | MEMORY [FROM job] | CREATE TABLE name | COLUMNS FROM name}",
    "DESCRIBE": "DESCRIBE name",
    "EXPLAIN": "EXPLAIN statement; EXPLAIN ANALYZE name",
}


def statement_help(name: str) -> str | None:
    """The syntax of the statements that begin with these words; None if there are none."""
    wanted = " ".join(name.upper().split())
    found = [syntax for statement, syntax in STATEMENTS.items()
             if statement == wanted or statement.startswith(wanted + " ")]
    return "\n".join(found) or None
