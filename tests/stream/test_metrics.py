"""Metrics of sessions and commands: as a mapping, as Arrow, at a port, and each documented; records of jobs."""

from __future__ import annotations

import json
import logging
import re
import urllib.request
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import stream
from hummock.metrics import MetricSample
from stream.cli.main import COMMANDS, main
from stream.errors import SessionClosed
from tests.stream.test_failed_jobs import connected, failed
from tests.support.drivers import feed
from tests.support.drivers.waiting import eventually

OPERATIONS = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
pytestmark = pytest.mark.usefixtures("plain_logging")
LONG_RUNNING = ("sql", "playground", "flights", "stream", "backfill", "backup", "restore", "vacuum", "compact")


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/store"


@pytest.fixture
def db(url):
    with stream.connect(url, create=True, barrier_interval_ms=20, metrics_port=0, inline_bytes=0) as session:
        session.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT)")
        session.sql("CREATE MATERIALIZED VIEW v AS SELECT k, COUNT(*) AS n FROM t GROUP BY k")
        yield session


def scraped(url):
    with urllib.request.urlopen(url) as answer:
        lines = answer.read().decode().splitlines()
    return {key: float(value) for key, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))}


def test_a_session_gives_its_metrics_by_name_and_labels(db):
    before = db.metrics
    db.sql("INSERT INTO t VALUES (1, 1), (2, 1)")
    epoch = db.flush()
    after = db.metrics
    assert after["hummock_committed_epoch"] >= float(epoch) > before["hummock_committed_epoch"]
    assert after["hummock_commit_seconds_count"] > before["hummock_commit_seconds_count"]
    table, view = (db._playground.catalog.resolve(name).id for name in ("t", "v"))
    assert after[f'stream_fragment_rows_total{{fragment="0",id="{table}",job="t"}}'] == 2
    assert after.total("stream_fragment_rows_total", job="v", id=str(view)) >= 1
    assert after.total("hummock_object_store_bytes_total", direction="written") > 0
    assert after["hummock_store_ingested_rows_total"] >= 3
    assert len(after) == len(list(after)) and dict(after) == {key: after[key] for key in after}
    assert "nothing" not in after and re.fullmatch(r"<\d+ samples of \d+ metrics>", repr(after))
    assert before["hummock_committed_epoch"] < epoch, "a snapshot stays as it was"


def test_metrics_as_arrow(db):
    metrics = db.metrics
    table = metrics.to_arrow()
    assert table.num_rows == len(metrics.samples)
    assert table.schema.names == ["name", "labels", "value", "kind", "description"]
    row = table.filter(pa.compute.equal(table["name"], "hummock_version_files")).to_pylist()[0]
    assert (row["labels"], row["kind"]) == ([("level", "0")], "gauge")
    assert row["description"] == "Files of the newest version"


def test_what_is_served_is_what_the_session_gives(db):
    db.sql("INSERT INTO t VALUES (1, 1)")
    db.flush()
    before = set(db.metrics)
    served = {key for key in scraped(db.metrics_url) if not key.partition("{")[0].endswith("_created")}
    assert before <= served <= set(db.metrics), "more come with what happens for the first time"


def test_a_reader_serves_its_own(db, url):
    with stream.connect(url, role="reader", metrics_port=0) as reader:
        reader.sql("SELECT * FROM t").rows()
        assert 0 < reader.metrics["hummock_committed_epoch"] <= db.metrics["hummock_committed_epoch"]
        assert scraped(reader.metrics_url)["hummock_store_scan_calls_total"] >= 1
        assert reader.metrics_url != db.metrics_url
    with pytest.raises(SessionClosed):
        assert reader.metrics
    with stream.connect(url, role="reader") as quiet:
        assert quiet.metrics_url is None and len(quiet.metrics) > 100


def test_a_label_is_escaped_as_prometheus_does():
    sample = MetricSample("x", {"a": 'say "\\"\n', "b": ""}, 1.0, "gauge", "")
    assert sample.key == 'x{a="say \\"\\\\\\"\\n",b=""}' and MetricSample("x", {}, 1.0, "gauge", "").key == "x"


def test_every_metric_is_documented_and_each_that_is_documented_exists(db, url):
    with stream.connect(url, role="reader") as reader:
        families = {family.name for session in (db, reader) for family in session._host.metrics.registry.collect()}
    written = set(re.findall(r"^\| `((?:hummock|stream)_\w+)`", OPERATIONS.read_text(), re.MULTILINE))
    assert written == families


def test_every_long_running_command_has_a_port_and_each_command_a_level():
    for name in COMMANDS:
        command = main.commands[name].load()
        options = [option for param in command.params for option in param.opts]
        assert options.count("--log-level") == 1, name
        assert ("--metrics-port" in options) == (name in LONG_RUNNING), name


def test_commands_say_where_their_metrics_are(db, url, tmp_path):
    result = CliRunner().invoke(main, ["sql", url, "--metrics-port", "0", "-c", "SELECT 1"])
    assert result.exit_code == 0 and "metrics at http://127.0.0.1:" in result.stderr and "metrics" not in result.stdout
    result = CliRunner().invoke(main, ["backup", url, f"{tmp_path}/backups", "--metrics-port", "0"])
    assert result.exit_code == 0 and "metrics at http://127.0.0.1:" in result.stdout
    json.loads(CliRunner().invoke(main, ["backup", url, f"{tmp_path}/backups", "--metrics-port", "0", "--json"]).stdout)


# -- records -----------------------------------------------------------------------------------------------------


def test_a_command_writes_records_from_its_level_on(url, monkeypatch):
    root = logging.getLogger()
    handlers = list(root.handlers)
    result = CliRunner().invoke(main, ["sql", url, "--create", "--log-level", "info", "-c", "SELECT 1"])
    assert re.search(r"^\d{4}-\d\d-\d\dT[\d:.]+Z INFO stream.playground session opened url=file:", result.stderr,
                     re.MULTILINE)
    assert len([each for each in root.handlers if each not in handlers]) == 1, "one handler"
    monkeypatch.setenv("HUMMOCK_LOG", "stream.playground=info")
    assert "session opened" in CliRunner().invoke(main, ["sql", url, "--write", "-c", "SELECT 1"]).stderr
    monkeypatch.delenv("HUMMOCK_LOG")
    assert "opened" not in CliRunner().invoke(main, ["sql", url, "-c", "SELECT 1"]).stderr
    refused = CliRunner().invoke(main, ["sql", url, "--log-level", "loud"])
    assert refused.exit_code == 2 and "debug, info, warning, error" in refused.stderr


def test_recoveries_and_failed_jobs(db, caplog):
    caplog.set_level(logging.INFO)
    db._playground.meta.fail(RuntimeError("an actor died"))
    eventually(lambda: any("recovered" in record.getMessage() for record in caplog.records))
    texts = [record.getMessage() for record in caplog.records if record.name == "stream.meta.barrier_manager"]
    assert texts[0].startswith("recovery epoch=") and 'error="RuntimeError: an actor died"' in texts[0]
    assert texts[1].startswith("recovered epoch=")


def test_a_job_that_is_set_aside(tmp_path, caplog):
    with connected(f"file://{tmp_path}/store") as session:
        failed(session, feed.UNDECODABLE)
    (text,) = [record.getMessage() for record in caplog.records if record.name == "stream.meta.job_failures"]
    assert text.startswith("job failed job=t epoch=") and "followers=1" in text and "these bytes are no record" in text
