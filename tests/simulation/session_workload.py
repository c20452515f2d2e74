"""A deterministic workload: rounds of statements on one table, and views over it.

The seed determines everything, so that a process that died and the one that checks its store agree on each round.
After round n the table has exactly the rows `rounds[n].after`, and each view the result over those rows."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass

GROUPS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", None)
RICH = 60

TABLE = "CREATE TABLE accounts (id BIGINT PRIMARY KEY, grp VARCHAR, amount BIGINT)"
OPTIONS = (
    ("", ""),
    (" WITH (row_format = 'cell')", ""),
    (" WITH (vnode_count = 1)", " WITH (vnode_count = 7)"),
    (" WITH (row_format = 'cell', vnode_count = 1024)", " WITH (vnode_count = 32768)"),
)
VIEWS = {
    "totals": "SELECT grp, COUNT(*) AS n, SUM(amount) AS total, MIN(amount) AS low, MAX(amount) AS high "
    "FROM accounts GROUP BY grp",
    "rich": f"SELECT id, grp, amount FROM accounts WHERE amount > {RICH}",
    "sizes": "SELECT n, COUNT(*) AS groups FROM totals GROUP BY n",
}


@dataclass(frozen=True)
class Round:
    """The statements of one round, and the rows of the table after them."""

    statements: tuple[str, ...]
    after: dict[int, tuple]


def rounds(seed: int, count: int) -> list[Round]:
    """The rounds of a seed. Round 0 has no statements: the empty table."""
    rng = random.Random(seed)
    rows: dict[int, tuple] = {}
    made = [Round((), {})]
    next_id = 1
    for _ in range(count):
        statements = []
        for _ in range(rng.randint(1, 4)):
            kind = rng.choices(("insert", "update", "delete", "move"), (5, 2, 1, 2))[0]
            if kind == "insert" or not rows:
                new = {}
                for _ in range(rng.randint(1, 30)):
                    amount = rng.choice((rng.randint(-100, 100), None))
                    new[next_id] = (rng.choice(GROUPS), amount)
                    next_id += rng.randint(1, 3)
                values = ", ".join(
                    f"({key}, {_text(grp)}, {_text(amount)})" for key, (grp, amount) in new.items()
                )
                statements.append(f"INSERT INTO accounts VALUES {values}")
                rows.update(new)
            elif kind == "update":
                step, bound = rng.randint(-20, 20), rng.randint(1, next_id)
                statements.append(f"UPDATE accounts SET amount = amount + {step} WHERE id < {bound}")
                for key, (grp, amount) in rows.items():
                    if key < bound and amount is not None:
                        rows[key] = (grp, amount + step)
            elif kind == "move":
                source, target = rng.choice(GROUPS[:-1]), rng.choice(GROUPS)
                statements.append(f"UPDATE accounts SET grp = {_text(target)} WHERE grp = {_text(source)}")
                rows.update({key: (target, row[1]) for key, row in rows.items() if row[0] == source})
            else:
                low = rng.randint(1, next_id)
                statements.append(f"DELETE FROM accounts WHERE id >= {low} AND id < {low + 10}")
                rows = {key: row for key, row in rows.items() if not low <= key < low + 10}
        made.append(Round(tuple(statements), dict(rows)))
    return made


def answers(rows: dict[int, tuple]) -> dict[str, list[tuple]]:
    """The expected rows of the table and each view over `rows`, sorted by `repr`."""
    groups = defaultdict(list)
    for grp, amount in rows.values():
        groups[grp].append(amount)
    totals = []
    for grp, amounts in groups.items():
        known = [amount for amount in amounts if amount is not None]
        totals.append(
            (
                grp,
                len(amounts),
                sum(known) if known else None,
                min(known, default=None),
                max(known, default=None),
            )
        )
    return {
        "accounts": sorted(((key, *row) for key, row in rows.items()), key=repr),
        "totals": sorted(totals, key=repr),
        "rich": sorted(
            (
                (key, grp, amount)
                for key, (grp, amount) in rows.items()
                if amount is not None and amount > RICH
            ),
            key=repr,
        ),
        "sizes": sorted(Counter(len(amounts) for amounts in groups.values()).items(), key=repr),
    }


def shown(session, name: str) -> list[tuple]:
    """The committed rows of a table or view, NUMERIC sums as integers, sorted by `repr`; of a session or a snapshot."""
    answer = session.sql(f"SELECT * FROM {name}")
    table = answer.to_arrow()
    columns = [column.to_pylist() for column in table.columns]
    rows = [
        tuple(int(value) if hasattr(value, "as_tuple") else value for value in row)
        for row in zip(*columns, strict=True)
    ]
    return sorted(rows, key=repr)


def create(session, seed: int = 0) -> None:
    """Creates the table and its views, with options by the seed."""
    table, view = OPTIONS[seed % len(OPTIONS)]
    session.sql(TABLE + table)
    for name, query in VIEWS.items():
        session.sql(f"CREATE MATERIALIZED VIEW {name}{view} AS {query}")


def committed_round(session, made: list[Round], at_least: int = 0) -> int:
    """The round whose state the store has; asserts that there is one, not before `at_least`, and that every view
    is consistent with it."""
    rows = shown(session, "accounts")
    matching = [number for number, each in enumerate(made) if answers(each.after)["accounts"] == rows]
    assert matching, f"the table has {rows}, which is the state of no round"
    number = next((each for each in matching if each >= at_least), matching[-1])
    assert number >= at_least, f"round {at_least} was acknowledged, the table is that of round {number}"
    expected = answers(made[number].after)
    for name in VIEWS:
        assert shown(session, name) == expected[name], f"view {name} differs from round {number}"
    return number


def _text(value: object) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)
