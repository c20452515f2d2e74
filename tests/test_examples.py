"""Each example runs twice in one directory, as a user would run it, and prints what its docstring says."""

from __future__ import annotations

import ast
import asyncio
import json
import runpy
import textwrap
from pathlib import Path
from typing import Any

import pytest

from relational import Result

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
PRINTS = "It prints:\n"
SPARK = 'spark_session("local[2]")'
SERVICE = EXAMPLES / "fastapi_changes.py"
NOTEBOOK = EXAMPLES / "notebook.ipynb"
SCRIPTS = sorted(path for path in EXAMPLES.glob("*.py") if path != SERVICE)


@pytest.fixture(autouse=True)
def in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def as_parameter(path: Path) -> Any:
    return pytest.param(path, id=path.stem, marks=[pytest.mark.spark] * (SPARK in path.read_text()))


@pytest.mark.parametrize("path", [as_parameter(path) for path in SCRIPTS])
def test_a_script_prints_what_it_says(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    source = path.read_text().replace("mkdtemp()", f"mkdtemp(dir={str(tmp_path)!r})")
    names: dict[str, Any] = {"__name__": "__main__"}
    stated = (ast.get_docstring(ast.parse(source)) or "").partition(PRINTS)[2]
    assert stated, "says nothing about what it prints"
    if SPARK in source:
        source = source.replace(SPARK, "spark_session_of_the_tests")
        names["spark_session_of_the_tests"] = request.getfixturevalue("spark")
    for _ in range(2):
        exec(compile(source, path, "exec"), dict(names))
        assert capsys.readouterr().out.strip() == textwrap.dedent(stated).strip()


def test_the_service_takes_orders_and_streams_what_they_change() -> None:
    pytest.importorskip("fastapi", reason="the service needs fastapi")
    client_module = pytest.importorskip("fastapi.testclient", reason="its client needs httpx")
    for begun in range(2):
        app = runpy.run_path(str(SERVICE))
        with client_module.TestClient(app["app"]) as client:
            order = {"region": "EUROPE", "amount": 30}
            assert client.post("/orders", json=order).json() == {"inserted": 1}
            client.app.state.db.flush()
            row = {"region": "EUROPE", "revenue": 30.0 * (begun + 1), "orders": begun + 1}
            assert client.get("/revenue").json() == [row]
            assert asyncio.run(first_event(app, client.app)) == [{"_op": "+"} | row]


def test_the_service_streams_to_a_browser_after_many_have_left() -> None:
    pytest.importorskip("fastapi", reason="the service needs fastapi")
    client_module = pytest.importorskip("fastapi.testclient", reason="its client needs httpx")
    app = runpy.run_path(str(SERVICE))

    async def visits() -> list[dict[str, Any]]:
        request = type("Request", (), {"app": client.app})
        for _ in range(40):
            events = app["changes"](request).body_iterator
            await anext(events)
            waiting = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        async with asyncio.timeout(60):
            return await first_event(app, client.app)

    with client_module.TestClient(app["app"]) as client:
        client.post("/orders", json={"region": "EUROPE", "amount": 30})
        client.app.state.db.flush()
        assert asyncio.run(visits()) == [{"_op": "+", "region": "EUROPE", "revenue": 30.0, "orders": 1}]


async def first_event(app: dict[str, Any], served: Any) -> list[dict[str, Any]]:
    """Of the stream, which has no end that a test client could wait for; without its epoch."""
    request = type("Request", (), {"app": served})
    events = app["changes"](request).body_iterator
    text = await anext(events)
    await events.aclose()
    return [{name: value for name, value in row.items() if name != "_epoch"} for row in json.loads(text[len("data:"):])]


def test_the_cells_of_the_notebook_run_in_order() -> None:
    written = json.loads(NOTEBOOK.read_text())["cells"]
    cells = ["".join(cell["source"]) for cell in written if cell["cell_type"] == "code"]
    for _ in range(2):
        names: dict[str, Any] = {}
        inserted, view, ordered, changes, frame, closed = (last_value(cell, names) for cell in cells)
        assert (inserted, len(changes), closed) == (3, 2, None)
        assert "EUROPE" in view and "AFRICA" in ordered
        assert frame.set_index("region")["per_order"].to_dict() == {"EUROPE": 21.5, "AFRICA": 50.0}


def last_value(cell: str, names: dict[str, Any]) -> Any:
    """Runs `cell` and gives the value of its last line, as HTML where a notebook would show that; None for none."""
    tree = ast.parse(cell)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    value = None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    return value._repr_html_() if isinstance(value, Result) else value
