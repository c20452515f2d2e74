"""Transactions over two tables, and a view over both: `balance` moves between accounts, and a third table counts.

After transfer n the journal has n rows, and the tables exactly the rows that `after(n)` gives."""

from __future__ import annotations

import random

ACCOUNTS, OPENING = 6, 100
CREATE = """CREATE TABLE left_side (id INT PRIMARY KEY, balance INT);
    CREATE TABLE right_side (id INT PRIMARY KEY, balance INT) WITH (row_format = 'cell');
    CREATE TABLE journal (n INT) APPEND ONLY;
    CREATE MATERIALIZED VIEW held AS SELECT count(*) AS accounts, sum(balance) AS total FROM
        (SELECT balance FROM left_side UNION ALL SELECT balance FROM right_side) AS x"""
OPEN = "; ".join(f"INSERT INTO {side} VALUES {', '.join(f'({n}, {OPENING})' for n in range(ACCOUNTS))}"
                 for side in ("left_side", "right_side"))


def transfer(seed: int, number: int) -> tuple[int, int, int]:
    """(from, to, amount) of a transfer."""
    rng = random.Random(seed * 1_000 + number)
    return rng.randrange(ACCOUNTS), rng.randrange(ACCOUNTS), rng.randint(1, 50)


def block(seed: int, number: int) -> str:
    """The statements of a transfer, without BEGIN and COMMIT."""
    source, target, amount = transfer(seed, number)
    return (f"UPDATE left_side SET balance = balance - {amount} WHERE id = {source}; "
            f"DELETE FROM right_side WHERE id = {ACCOUNTS + number - 1}; "
            f"INSERT INTO journal VALUES ({number}); "
            f"UPDATE right_side SET balance = balance + {amount} WHERE id = {target}; "
            f"INSERT INTO right_side VALUES ({ACCOUNTS + number}, 0)")


def after(seed: int, count: int) -> tuple[dict[int, int], dict[int, int]]:
    """The balances of both tables after so many transfers."""
    left, right = dict.fromkeys(range(ACCOUNTS), OPENING), dict.fromkeys(range(ACCOUNTS), OPENING)
    for number in range(1, count + 1):
        source, target, amount = transfer(seed, number)
        left[source] -= amount
        right[target] += amount
    if count:
        right[ACCOUNTS + count] = 0
    return left, right


def done(session, seed: int) -> int:
    """How many transfers the store has; asserts that it has each wholly or not at all, and the view of them."""
    with session.at() as now:
        numbers = sorted(row["n"] for row in now.sql("SELECT n FROM journal").rows())
        sides = [{row["id"]: row["balance"] for row in now.sql(f"SELECT id, balance FROM {side}").rows()}
                 for side in ("left_side", "right_side")]
        (held,) = now.sql("SELECT accounts, total FROM held").rows()
    if not any(sides):
        assert not numbers and held["accounts"] == 0
        return -1
    assert numbers == list(range(1, len(numbers) + 1))
    assert tuple(sides) == after(seed, len(numbers))
    assert (held["accounts"], int(held["total"])) == (sum(map(len, sides)), 2 * ACCOUNTS * OPENING)
    return len(numbers)
