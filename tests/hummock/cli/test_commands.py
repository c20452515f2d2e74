"""Every command on several kinds of stores: text output, JSON output, errors in one line."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import hummock
from hummock.cli import main
from hummock.columnar.write_batch import WriteBatch
from hummock.meta import open_meta_store
from hummock.meta.hummock_manager import HummockManager
from hummock.meta.records import OBSOLETE, UPLOADS, lease_key
from hummock.meta.store.base import MetaOperations
from hummock.object_store import open_object_store
from hummock.object_store.base import sstable_data_path, sstable_meta_path
from hummock.tools.verify import verify_sstable, verify_version

COMMITS = 12
ROWS = 300
ROOT = Path(__file__).resolve().parents[3]
INSPECTIONS = ["version", "levels", "stats", "sst-dump", "verify"]


def fill(url, meta=None):
    """Writes a store of two tables in enough commits that compaction is due; returns its URL."""
    with hummock.open(url, role="writer", meta=meta, compaction=False, inline_bytes=0) as store:
        epochs = hummock.EpochGenerator(last=store.committed_epoch)
        for number in range(COMMITS):
            epoch = epochs.next()
            rows = [(hummock.user_key(table, 0, b"%06d" % row), b"%d" % number)
                    for table in (1, 2) for row in range(number % 3, ROWS)]
            store.ingest_batch(WriteBatch(rows), epoch)
            store.commit(epoch)
    return url


@pytest.fixture
def url(tmp_path):
    return fill(f"file://{tmp_path}/store")


def run(*arguments, status=0):
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == status, result.output
    assert "Traceback" not in result.output
    return result


def run_json(*arguments, status=0):
    return json.loads(run(*arguments, "--json", status=status).stdout)


def content(url, meta=None):
    with hummock.open(url, meta=meta) as store:
        return list(store.scan(hummock.KeyRange(), store.committed_epoch))


def test_commands_of_sessions_are_said_to_be_elsewhere():
    assert "No such command 'sql'" in run("sql", "shop", status=2).output
    assert "For sql and the other commands of sessions see hummock --help." in " ".join(run("--help").output.split())


# -- inspecting --------------------------------------------------------------------------------------------------


def test_levels_shows_each_run(url):
    text = run("levels", url).stdout
    assert text.count("1/0/") == text.count("2/0/") == COMMITS and "readable from" in text
    record = run_json("levels", url)
    assert [run["run"] for run in record["levels"][0]["runs"]] == sorted(range(1, COMMITS + 1), reverse=True)
    assert record["tasks"] == []


def test_json_of_each_look_is_one_document(url):
    version, stats = run_json("version", url), run_json("stats", url)
    names = [info["name"] for level in version["levels"] for run in level for info in run["sstables"]]
    assert len(names) == COMMITS and stats["tables"] == {"1": COMMITS, "2": COMMITS}
    assert stats["stored"]["found"]["live"]["files"] == COMMITS
    assert {record["name"] for record in run_json("sst-dump", url)["files"]} == set(names)
    assert "blocks and" in run_json("sst-dump", url, names[0][-12:])["lines"][-1]
    verified = run_json("verify", url)
    assert (verified["objects"], verified["damaged"]) == (2 * COMMITS, []) and verified["rows"] > COMMITS


def test_a_look_changes_nothing(url, tmp_path):
    def snapshot():
        return {str(path): path.read_bytes() for path in sorted((tmp_path / "store").rglob("*"))
                if path.is_file() and "-shm" not in path.name}

    before = snapshot()
    for command in INSPECTIONS:
        run(command, url)
        run_json(command, url)
    run("vacuum", url, "--dry-run")
    assert snapshot() == before


@pytest.mark.parametrize("command", [*INSPECTIONS, "vacuum", "compact"])
def test_what_is_no_store_is_said_in_one_line_and_left_alone(tmp_path, command):
    for url, word in ((f"file://{tmp_path}/nothing", "there is no store"), ("ftp://x/y", "InvalidOption"),
                      ("nonsense", "there is no store"), (f"file://{tmp_path}", "")):
        result = run(command, url, status=1)
        assert result.stdout == "" and word in result.stderr and len(result.stderr.splitlines()) == 1
        record = run_json(command, url, status=1)
        assert set(record) == {"error", "message"}
    assert not (tmp_path / "nothing").exists()


def test_a_store_is_given_by_position_or_by_option_and_once(url):
    assert run_json("levels", "--store", url) == run_json("levels", url)
    assert run_json("levels", url.removeprefix("file://")) == run_json("levels", url)
    for arguments in ((), (url, "--store", url), ("--store", "")):
        assert "--store URL" in run("levels", *arguments, status=2).output


def test_an_empty_store_in_memory_is_shown_too():
    for command in (*INSPECTIONS, "vacuum", "compact"):
        run(command, "memory://")


def test_the_meta_store_may_be_elsewhere(tmp_path):
    url, meta = f"file://{tmp_path}/objects", f"sqlite://{tmp_path}/elsewhere.sqlite"
    fill(url, meta)
    assert run_json("verify", url, "--meta", meta)["objects"] == 2 * COMMITS
    run("verify", url, status=1)
    run("verify", url, "--meta", "nonsense://", status=1)


def test_a_log_among_the_objects_is_read_too(tmp_path):
    url = f"file://{tmp_path}/objects"
    fill(url, "log")
    assert run_json("verify", url, "--meta", "log")["objects"] == 2 * COMMITS
    assert run_json("vacuum", url, "--meta", "log", "--grace", "0")["removed"]["files"] == 0


# -- verifying ---------------------------------------------------------------------------------------------------


def test_a_damaged_row_is_named(url):
    meta_store = open_meta_store(url, create=False)
    keys = [UPLOADS + "0" * 16, lease_key("n"), OBSOLETE + "7", "hummock/unheard-of", "hummock/unheard/of"]
    meta_store.transaction(MetaOperations(put=dict.fromkeys(keys, b'{"format":1}')))
    meta_store.close()
    damaged = {found["path"] for found in run_json("verify", url, status=1)["damaged"]}
    assert damaged == set(keys)


def test_a_file_that_leaves_while_it_is_read_is_no_damage(url):
    objects, meta_store = open_object_store(url), open_meta_store(url, create=False)
    manager = HummockManager(meta_store, objects)
    old = manager.version
    run_json("compact", url)
    run_json("vacuum", url, "--grace", "0")
    assert any(found.damages for found in verify_version(old, objects, threads=3))
    assert not any(found.damages for found in verify_version(old, objects, threads=3, refresh=manager.refresh))
    meta_store.close()


def test_rows_out_of_order_are_found_though_every_checksum_holds(url):
    """The files are intact, but the record of them in the version is not."""
    objects, meta_store = open_object_store(url), open_meta_store(url, create=False)
    info = next(HummockManager(meta_store, objects).version.sstables)
    meta_store.close()
    meta = objects.get(sstable_meta_path(info.name))
    assert not any(found.damages for found in verify_sstable(info, objects))
    for wrong in (replace(info, rows=info.rows + 1), replace(info, smallest=b"\0"), replace(info, meta_bytes=7),
                  replace(info, content_hash=info.content_hash ^ 1)):
        assert any(found.damages for found in verify_sstable(wrong, objects)), (wrong, len(meta))


# -- maintaining -------------------------------------------------------------------------------------------------


def test_compact_merges_what_is_due_and_vacuum_removes_what_it_left(url):
    before = content(url)
    record = run_json("compact", url)
    assert record["done"] >= 1 and record["failed"] == 0 and record["bytes_read"] > record["bytes_written"] > 0
    runs = [run for level in run_json("levels", url)["levels"] for run in level["runs"]]
    assert len(runs) < COMMITS and content(url) == before
    dry = run_json("vacuum", url, "--dry-run")
    assert dry["removed"]["files"] == dry["found"]["stale"]["files"] > 0
    done = run_json("vacuum", url)
    assert done["removed"] == dry["removed"] and not done["dry_run"]
    assert run_json("vacuum", url)["removed"]["files"] == 0
    assert content(url) == before and run_json("verify", url)["damaged"] == []


def test_compact_merges_the_named_table_or_range(url):
    before = content(url)
    run_json("compact", url, "--table", "1", "--range", "00000002", "00000003", "--threads", "1", "--tasks", "1")
    levels = run_json("levels", url)["levels"]
    assert levels[0]["runs"] == [] and levels[-1]["runs"] and content(url) == before


@pytest.mark.parametrize("arguments", [(), ("--table", "1")], ids=["what is due", "a table"])
def test_compact_of_a_damaged_file_names_it_in_one_document_or_line(url, arguments):
    objects = open_object_store(url)
    name = next(iter(objects.list("sst/"))).path.removeprefix("sst/").partition(".")[0]
    data = bytearray(objects.get(sstable_data_path(name)))
    data[len(data) // 2] ^= 1
    objects.put(sstable_data_path(name), bytes(data))
    record = run_json("compact", url, *arguments, status=1)
    assert record["error"] == "Corruption" and name in record["message"]
    result = run("compact", url, *arguments, status=1)
    assert "failed" in result.stdout
    assert [line.partition(":")[0] for line in result.stderr.splitlines() if name in line][-1] == "Corruption"


@pytest.mark.parametrize("arguments", [
    ("--table", "-1"), ("--table", "4294967296"), ("--table", "x"), ("--range", "zz", "00"), ("--range", "02", "01"),
    ("--range", "01"), ("--threads", "0"), ("--metrics-port", "65536"),
])
def test_compact_refuses_what_names_no_table_or_range(url, arguments):
    run("compact", url, *arguments, status=2)


def test_vacuum_leaves_young_orphans_alone_and_takes_old_ones(url):
    objects = open_object_store(url)
    for path_of in (sstable_data_path, sstable_meta_path):
        objects.put(path_of("ab" * 16), b"x" * 50)
    assert run_json("vacuum", url)["found"]["in_flight"] == {"files": 1, "bytes": 100}
    text = run("vacuum", url, "--grace", "0s", "--dry-run").stdout
    assert "would be removed" in text and "100 B" in text
    assert run_json("vacuum", url, "--grace", "0")["removed"] == {"files": 1, "bytes": 100}
    assert not list(objects.list("sst/ab"))


@pytest.mark.parametrize("grace", ["x", "-1", "1w", "1e3", "nan", "inf", "", "99999999999d", "\u0661"])
def test_what_is_no_duration_is_refused(url, grace):
    run("vacuum", url, "--grace", grace, status=2)


def test_vacuum_that_follows_is_not_dry(url):
    run("vacuum", url, "--dry-run", "--follow", status=2)


# -- as a process ------------------------------------------------------------------------------------------------


def process(*arguments):
    return subprocess.Popen([sys.executable, "-m", "hummock", *arguments], cwd=ROOT, text=True,
                            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize("command", ["vacuum", "compact"])
def test_a_process_serves_metrics_here_only_and_ends_on_a_signal(url, command):
    child = process(command, url, "--follow", "--metrics-port", "0")
    try:
        line = child.stdout.readline()
        match = re.search(r"http://127\.0\.0\.1:\d+/metrics", line)
        assert match, line + child.stderr.read()
        text = urllib.request.urlopen(match[0], timeout=30).read().decode()
        assert "hummock_object_store_seconds" in text and "hummock_vacuum_files" in text
        child.send_signal(signal.SIGTERM)
        output, errors = child.stdout.read(), child.stderr.read()   # `communicate` loses what `readline` buffered
        assert child.wait(60) == 0 and errors == "", errors
        assert ("live" if command == "vacuum" else "tasks done") in output
    finally:
        child.kill()
        child.communicate()


def test_an_error_in_a_process_is_one_line_and_a_status(tmp_path):
    child = process("verify", f"file://{tmp_path}/nothing")
    output, errors = child.communicate(timeout=60)
    assert (child.returncode, output) == (1, "") and errors.startswith("StoreNotFound: ")
    assert len(errors.splitlines()) == 1


def test_a_port_that_is_taken_is_said_so(url):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        assert "InvalidOption" in run("compact", url, "--metrics-port", port, status=1).stderr
