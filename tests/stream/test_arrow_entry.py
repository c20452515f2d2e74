"""Every Arrow type, in every form, whole and corrupted: stored and read back equal, or refused with column and row."""

import datetime as dt
import os
import random

import pyarrow as pa
import pytest

import stream
from relational.types import Interval
from stream.errors import InvalidStatement
from tests.support.drivers.arrow_cases import FORMS, cases_of
from tests.support.drivers.seeds import amount

SEED = int(os.environ.get("ARROW_ENTRY_SEED", "14"))
ROUNDS = int(os.environ.get("ARROW_ENTRY_ROUNDS", amount(1, 2)))
COUNTED = []


class TableUnderTest:
    """The table of one type, a view of it, and its expected rows."""

    def __init__(self, db, number, data_type):
        self.name, self.rows = f"t{number}", {}
        db.sql(f"CREATE TABLE {self.name} (id BIGINT PRIMARY KEY, v {data_type})")
        db.sql(f"CREATE MATERIALIZED VIEW m{number} AS SELECT id, v FROM {self.name}")
        self.view, self.table = f"m{number}", db.table(self.name)

    def check(self, db):
        for name in (self.name, self.view):
            found = {row["id"]: as_read(row["v"]) for row in db.sql(f"SELECT id, v FROM {name}").rows()}
            assert repr(sorted(found.items())) == repr(sorted(self.rows.items())), name


def as_read(value):
    """Normalizes Interval to its Arrow form and time zones to UTC."""
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC)
    if isinstance(value, Interval):
        return value.to_arrow()
    if isinstance(value, dict):
        return {name: as_read(each) for name, each in value.items()}
    return [as_read(each) for each in value] if isinstance(value, list) else value


def enter(under_test, case):
    """Inserts a case; checks that it is stored, or refused with the expected error."""
    start = len(under_test.rows)
    try:
        table = pa.table({"id": range(start, start + len(case.rows)), "v": case.array})
    except pa.ArrowInvalid:
        return  # refused by Arrow itself
    if case.refused is None:
        assert under_test.table.insert(table) == len(case.rows), case.label
        under_test.rows.update(enumerate(map(as_read, case.rows), start))
        return
    with pytest.raises(InvalidStatement) as refusal:
        under_test.table.insert(table)
    message = str(refusal.value)
    assert f"column 'v', row {case.refused}: " in message, (case.label, message)
    assert len(message) < 2_000


@pytest.mark.parametrize("kind", FORMS)
def test_a_case_is_stored_and_read_back_or_refused_with_column_and_row(tmp_path, kind):
    print(f"ARROW_ENTRY_SEED={SEED}")
    rng, tables, cases = random.Random(f"{SEED} {kind}"), {}, 0
    with stream.connect(f"file://{tmp_path}/store", create=True) as db:
        for _ in range(ROUNDS):
            for case in cases_of(rng, kind):
                if case.data_type not in tables:
                    tables[case.data_type] = TableUnderTest(db, len(tables), case.data_type)
                enter(tables[case.data_type], case)
                cases += 1
        db.flush()
        for each in tables.values():
            each.check(db)
            doomed = [number for number in each.rows if number % 3 == 1]
            assert db.sql(f"DELETE FROM {each.name} WHERE id % 3 = 1") == len(doomed)
            for number in doomed:
                del each.rows[number]
        db.flush()
    with stream.connect(f"file://{tmp_path}/store", create=True) as db:
        for each in tables.values():
            each.check(db)
    COUNTED.append(cases)


def test_there_were_enough_cases():
    """Checked only if the whole file runs."""
    if len(COUNTED) == len(FORMS):
        assert sum(COUNTED) >= 1_000 * ROUNDS, sum(COUNTED)
        print(f"{sum(COUNTED)} cases")
