"""Mutated SQL texts: statements of the test cases with words removed, duplicated, moved and inserted."""

from __future__ import annotations

import random
import re

from tests.support.suites.sql_cases import CASES, read_cases

MAX_CHARACTERS = 100_000
_TOKEN = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|[A-Za-z_]\w*|\d+(?:\.\d+)?|\s+|[<>!=:|]+|.", re.DOTALL)
_LETTERS = "\x00\t\n\r\x0b\f\x85\xa0\u200b\u2028\ufeff\ud800é😀'\"`;-/*()$\\"
_BY_LINE = ("literals", "right")

_NESTING = [
    *(("(", ")"), ("NOT (", ")"), ("abs(", ")"), ("CASE WHEN TRUE THEN ", " END"), ("CAST(", " AS TEXT)")),
    *(("ARRAY[", "]"), ("- ", ""), ("NOT ", ""), ("", "::TEXT"), ("", "[1]"), ("", " + 1"), ("", " OR TRUE")),
    *(("", " || 'a'"), ("(SELECT ", ")"), ("(SELECT * FROM ", ") AS t"), ("", " IS NULL"), ("{", "}"), ("[", "]")),
    *(("f(x -> ", ")"), ("STRUCT<a ", ">"), ("", " UNION SELECT 1"), ("EXISTS (", ")"), ("(", ""), ("", ")")),
    *(("", " UNION ALL SELECT v FROM plain"), ("WITH a AS (", ") SELECT * FROM a")),
    *(("", ", 1"), ("", " IN (1)"), ("", " LIKE 'a'"), ("", ".a"), ("MAP[", "]"), ("TIMESTAMP(", ")")),
]
"""Text to repeat before and after some words."""


def _read() -> dict[str, list[str]]:
    """The sections of `tests/cases/sql_mutations.txt`."""
    found = {}
    for part in (CASES / "sql_mutations.txt").read_text().split("\n[")[1:]:
        name, _, text = part.partition("]\n")
        found[name] = text.strip().split("\n") if name in _BY_LINE else text.split()
    return found


_POOLS = _read()
_OPERATORS = [f" {operator} " for operator in _POOLS["operators"]]


def statements() -> list[str]:
    """The statements to mutate; valid ones are repeated more often."""
    schema = [text.strip() for text in (CASES / "binder_schema.sql").read_text().split(";") if text.strip()]
    found = [statement for statement, _ in read_cases("binder_errors.txt")]
    lines = (CASES / "queries.txt").read_text().splitlines() + (CASES / "expressions.txt").read_text().splitlines()
    for line in lines:
        if line and not line.startswith("#"):
            line = line.replace("FROM sales", "FROM orders")
            found.append(line if line.startswith(("SELECT", "VALUES", "WITH", "(")) else f"SELECT {line} FROM orders")
    return schema + found + _POOLS["right"] * 40


class Mutator:
    """A sequence of texts from one seed."""

    def __init__(self, seed: int):
        self._random = random.Random(seed)
        self._statements = statements()

    def text(self) -> str:
        """The next text."""
        chance = self._random
        tokens = _TOKEN.findall(chance.choice(self._statements))
        for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 5, 8))):
            longer = self._mutated(tokens)
            tokens = longer if sum(map(len, longer)) <= MAX_CHARACTERS else tokens
        return "".join(tokens)

    def _mutated(self, tokens: list[str]) -> list[str]:
        chance = self._random
        size = len(tokens)
        at = chance.randrange(size + 1)
        kind = chance.randrange(22)
        if kind >= 14:
            return self._alike(tokens)
        if kind == 0:
            return tokens[:at] + tokens[at + chance.randint(1, 3) :]
        if kind == 1:
            return tokens[: at + 1] + tokens[at:]
        if kind == 2:
            other = chance.randrange(size + 1)
            first, last = sorted((at, other))
            return tokens[:first] + tokens[first:last][::-1] + tokens[last:]
        if kind in (3, 4, 5):
            pool = _POOLS[("words", "symbols", "literals")[kind - 3]]
            return [*tokens[:at], " ", chance.choice(pool), " ", *tokens[at + chance.randint(0, 1) :]]
        if kind == 6:
            return tokens[:at]
        if kind == 7:
            other = _TOKEN.findall(chance.choice(self._statements))
            return tokens[:at] + other[chance.randrange(len(other) + 1) :]
        if kind == 8:
            return [*tokens[:at], chance.choice(_LETTERS), *tokens[at:]]
        if kind == 9:
            return self._nested(tokens, at)
        if kind == 10:
            return tokens[:at] + tokens[at : at + chance.randint(1, 6)] * chance.choice((2, 10, 50, 150)) + tokens[at:]
        if kind == 11 and at < size:
            return [*tokens[:at], tokens[at].swapcase(), *tokens[at + 1 :]]
        if kind == 12 and at < size and tokens[at]:
            cut = chance.randrange(len(tokens[at]))
            return [*tokens[:at], tokens[at][:cut], *tokens[at + 1 :]]
        return [*tokens[:at], chance.choice(_POOLS["words"]) + "(", *tokens[at:], ")"]

    def _alike(self, tokens: list[str]) -> list[str]:
        """Replaces one word by another of its kind."""
        chance = self._random
        pools = (
            (re.compile(r"[a-z_.]+"), _POOLS["names"]),
            (re.compile(r"\d.*|'.*'", re.DOTALL), _POOLS["literals"]),
            (re.compile(r"[-+*/%=<>|:]+"), _OPERATORS),
            (re.compile(r"[a-z_]+"), _POOLS["functions"]),
        )
        pattern, pool = chance.choice(pools)
        positions = [at for at, token in enumerate(tokens) if pattern.fullmatch(token)]
        if not positions:
            return tokens
        at = chance.choice(positions)
        return [*tokens[:at], chance.choice(pool), *tokens[at + 1 :]]

    def _nested(self, tokens: list[str], at: int) -> list[str]:
        """Wraps some tokens in many brackets, or repeats text before and after them."""
        chance = self._random
        end = min(len(tokens), at + chance.randint(1, 4))
        depth = chance.choice((3, 30, 99, 150, 400))
        before, after = chance.choice(_NESTING)
        return [*tokens[:at], before * depth, *tokens[at:end], after * depth, *tokens[end:]]
