"""Views of a released store continue: their rows, types and state are those of the release that wrote them.

`tests/golden_stores/views-<catalog format>` is such a store, with views over casts of text, NUMERIC arithmetic of mixed
scales, aggregates, intervals and JSONB; `golden_views` has its statements.
"""

from __future__ import annotations

import shutil
from decimal import Decimal
from pathlib import Path

import pytest

from hummock.meta import open_meta_store
from hummock.object_store import open_object_store
from relational.catalog.manager import CatalogManager
from relational.catalog.objects import TableCatalog, TableKind
from relational.expr.kernel_version import KERNEL_VERSION
from relational.plan.kernels import kernels_changed
from relational.plan.serialize import plan_from_text
from tests.reliability import golden_views
from tests.reliability.golden_store import GOLDEN, GoldenStore, known_answers, play, rows_of

STORE = GoldenStore("views", golden_views.STEPS, lambda session: rows_of(session, golden_views.VIEWS))


@pytest.mark.parametrize("name", STORE.formats)
def test_views_of_an_older_release_answer_and_follow_as_they_did(name, tmp_path):
    STORE.check(name, tmp_path / "store")
    assert {name: len(view["rows"]) for name, view in known_answers(name)[-1].items()} == {
        name: int(name == "totals") for name in golden_views.VIEWS
    }


def test_views_of_an_older_release_forget_all_rows_at_once(tmp_path):
    shutil.copytree(GOLDEN / STORE.formats[0] / "store", tmp_path / "store")
    expected = known_answers(STORE.formats[0])
    with STORE.opened(tmp_path / "store") as session:
        play(session, golden_views.STEPS[-1])
        assert rows_of(session, golden_views.VIEWS) == expected[-1]


def test_views_of_an_older_release_say_what_changed(tmp_path):
    """Reads the catalog alone: opening the store may rebuild such views."""
    found = {}
    for name in ("views-2", "views-2-changed"):
        shutil.copytree(GOLDEN / name / "store", tmp_path / name)
        tables = {table.id: table for table in catalog_of(tmp_path / name)}
        for table in tables.values():
            if table.kind is TableKind.MATERIALIZED_VIEW:
                assert table.kernel_version == 0
                plan = plan_from_text(table.plan, tables.__getitem__)
                found[table.name] = kernels_changed(plan, table.kernel_version)
    changed = {name for name, what in found.items() if what}
    assert changed == {"text_casts", "by_text", "rounded", "layered", "numbers", "wide"}
    assert found["numbers"] == ("CAST(VARCHAR AS INT)",)
    assert found["layered"] == ("add(NUMERIC(38, 2), NUMERIC(38, 10))",)
    assert set(found["rounded"]) == {"CAST(DOUBLE AS NUMERIC(20, 4))", "CAST(NUMERIC(38, 10) AS DOUBLE)"}


def test_a_view_that_would_be_computed_otherwise_is_built_anew_and_says_so(tmp_path, caplog):
    """Views over it too: all have rows of today's kernels, which later deletes retract."""
    shutil.copytree(GOLDEN / "views-2-changed" / "store", tmp_path / "store")
    with STORE.opened(tmp_path / "store") as session:
        assert {record.getMessage().partition(" computed")[0] for record in caplog.records} == {
            "job built anew job=numbers", "job built anew job=wide"}
        assert 'otherwise="CAST(VARCHAR AS INT)"' in caplog.text
        answers = rows_of(session, golden_views.CHANGED_VIEWS)
        assert answers["numbers"]["rows"] == ["None | 2"]
        assert answers["wide"]["rows"] == [
            "1 | 900000000000000000.00000000000000000000 | 0E-20", "2 | 1.00000000000000000000 | 0E-20"]
        assert {row["state"] for row in session.jobs().to_pylist()} == {"RUNNING"}
        session.sql("INSERT INTO c VALUES (3, '0x10', 3, 1), (4, '16', 5, 2)")
        session.sql("CREATE MATERIALIZED VIEW upon AS SELECT k, rows + 1 AS more FROM numbers")
        session.flush()
    caplog.clear()
    with STORE.opened(tmp_path / "store") as session:
        assert not caplog.records
        assert session.sql("SELECT * FROM numbers ORDER BY k").rows() == [{"k": 16, "rows": 1}, {"k": None, "rows": 3}]
        session.sql("DELETE FROM c")
        session.flush()
        assert not any(session.table(name).to_arrow().num_rows for name in ("numbers", "wide", "upon"))


def test_views_upon_views_of_an_older_release_are_built_anew_together(tmp_path):
    shutil.copytree(GOLDEN / "views-2" / "store", tmp_path / "store")
    with STORE.opened(tmp_path / "store") as session:
        versions = {table.name: table.kernel_version for table in session._playground.catalog.list()
                    if table.kind is TableKind.MATERIALIZED_VIEW}
    rebuilt = {"text_casts", "by_text", "rounded", "layered"}
    assert versions == {name: KERNEL_VERSION if name in rebuilt else 0 for name in golden_views.VIEWS}


def catalog_of(directory: Path) -> tuple[TableCatalog, ...]:
    url = f"file://{directory}"
    meta = open_meta_store(url, object_store=open_object_store(url))
    try:
        return CatalogManager(meta).list()
    finally:
        meta.close()


def test_types_of_a_stored_plan_stay(tmp_path):
    """Later rows are computed with the scale that the view has, not with that of today's rule."""
    shutil.copytree(GOLDEN / "views-2" / "store", tmp_path / "store")
    with STORE.opened(tmp_path / "store") as session:
        session.sql("INSERT INTO t (id, p, n) VALUES (100, 1, 2)")
        session.flush()
        third = session.sql("SELECT third, np FROM quotients WHERE id = 100").to_arrow()
        assert third.to_pylist() == [{"third": Decimal("0.3333333333"), "np": Decimal(2)}]
        fresh = session.sql("SELECT p / 3 AS third FROM t WHERE id = 100").to_arrow()
        assert fresh.to_pylist() == [{"third": Decimal("0.333333")}]


@pytest.mark.skipif(not STORE.is_wanted, reason="names a new format whose store is to be written")
def test_a_golden_store_of_views_is_written(tmp_path):
    STORE.write(tmp_path / "store")
