"""Joins of rows that wait for their only partner: what they emit, and that only rows without a partner are stored,
whichever side comes first and whatever a filter of the partners drops."""

import random
from contextlib import ExitStack

import duckdb
import pytest

from tests.support.drivers.engine_store import EngineStore
from tests.support.drivers.seeds import amount, run_seed
from tests.support.drivers.stored_views import entries, tables_of

QUERIES = {
    "v": "SELECT b.id, b.price, a.item FROM bid b JOIN auction a ON b.auction = a.id",
    "w": "SELECT b.id, b.price, a.item, a.category FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 1",
    "x": "SELECT a.category, max(b.price) AS top FROM auction a JOIN bid b ON b.auction = a.id"
         " AND b.price >= a.reserve WHERE upper(a.item) <> 'I3' GROUP BY a.category",
    "y": "SELECT b.id, a.share FROM (SELECT id, 12 / category AS share FROM auction WHERE category > 0) a"
         " JOIN bid b ON b.auction = a.id AND b.price > a.share",
}
AUCTIONS, STEPS = 40, amount(6, 8)


def rows_of(session, query):
    return sorted((tuple(row.values()) for row in session.sql(query).rows()), key=repr)


def waiting(session, view):
    """The numbers of bids and of auctions that the join of a view has stored."""
    epoch = session.flush()
    tables = [table for table in tables_of(session, view) if ".join" in table.name]
    tables.sort(key=lambda table: "auction" not in [column.name for column in table.columns])
    bids, auctions = (len(list(entries(session, table, epoch))) for table in tables)
    return bids, auctions


@pytest.mark.parametrize(("engines", "cache_bytes"), [((0,), 1 << 20), ((0,), 1), ((0, 2), 1 << 20), ((2,), 1)],
                         ids=["graph", "graph that evicts", "both engines", "tasks that evict"])
def test_only_rows_without_a_partner_are_kept(engines, cache_bytes):
    rng, duck = random.Random(run_seed()), duckdb.connect()
    schemas = ("auction (id INT PRIMARY KEY, item VARCHAR, category INT, reserve INT)",
               "bid (id INT PRIMARY KEY, auction INT, price INT)")
    with ExitStack() as undo:
        store = EngineStore(undo)
        session = store.open(slots=engines[0], state_cache_bytes=cache_bytes)
        session.sql(f"CREATE TABLE {schemas[0]} APPEND ONLY")
        session.sql(f"CREATE TABLE {schemas[1]}")
        for schema in schemas:
            duck.execute(f"CREATE TABLE {schema}")
        for name, query in QUERIES.items():
            session.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        unknown, bids = rng.sample(range(AUCTIONS), AUCTIONS), 0
        for step in range(STEPS):
            if step == STEPS // 2:
                session.close()
                session = store.open(slots=engines[-1], state_cache_bytes=cache_bytes)
            changes = []
            if step % 3 != 1:
                added = [unknown.pop() for _ in range(4)]
                changes.append("INSERT INTO auction VALUES " + ", ".join(
                    f"({each}, 'i{rng.randrange(5)}', {rng.choice(['NULL', 0, 1, 2])}, {rng.randrange(5)})"
                    for each in added))
            changes.append("INSERT INTO bid VALUES " + ", ".join(
                f"({bids + at}, {rng.choice([rng.randrange(AUCTIONS), 'NULL'])}, {rng.randrange(9)})"
                for at in range(25)))
            bids += 25
            changes.append(f"UPDATE bid SET price = price + 1, auction = {rng.randrange(AUCTIONS)} "
                           f"WHERE id % 11 = {rng.randrange(11)}")
            changes.append(f"DELETE FROM bid WHERE id % 13 = {rng.randrange(13)}")
            for change in rng.sample(changes, len(changes)):
                session.sql(change)
                duck.execute(change)
            session.flush()
            for name, query in QUERIES.items():
                assert rows_of(session, f"SELECT * FROM {name}") == sorted(duck.sql(query).fetchall(), key=repr), name
        late = "NOT EXISTS (SELECT * FROM auction a WHERE a.id = b.auction)"
        alone = duck.sql(f"SELECT count(*) FROM bid b WHERE b.auction IS NOT NULL AND {late}").fetchall()[0][0]
        for name in QUERIES:
            assert waiting(session, name) == (alone, AUCTIONS - len(unknown)), name
        rest = "INSERT INTO auction VALUES " + ", ".join(f"({each}, 'i3', 0, 0)" for each in unknown)
        session.sql(rest)
        duck.execute(rest)
        for name, query in QUERIES.items():
            assert waiting(session, name) == (0, AUCTIONS), name
            assert rows_of(session, f"SELECT * FROM {name}") == sorted(duck.sql(query).fetchall(), key=repr), name
