"""Our commands tune their process; importing the library leaves the host process unchanged."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hummock.base import process

PRINT_INTERVAL = "import sys; print(sys.getswitchinterval())"


def test_threads_take_turns_more_often_and_freed_memory_goes_back(monkeypatch):
    done = []
    monkeypatch.setattr(sys, "setswitchinterval", done.append)
    monkeypatch.setattr(process, "return_freed_memory", lambda size: done.append(("mapped", size)))
    monkeypatch.setattr(process, "keep_freed_memory", lambda size: done.append(("kept", size)))
    process.prepare_process()
    assert done == [0.0005, ("mapped", process.MAPPED_BYTES)]
    process.prepare_process(64 << 20)
    assert done[2:] == [0.0005, ("mapped", 16 << 20), ("kept", 64 << 20)]


def printed(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_opening_a_store_leaves_the_process_as_it_is():
    opened = "import hummock; hummock.open('memory://').close(); " + PRINT_INTERVAL
    assert printed(opened) == printed(PRINT_INTERVAL)


@pytest.mark.parametrize("module", ["hummock", "stream"])
def test_each_of_our_commands_prepares_its_process(module):
    code = ("import atexit, runpy, sys; atexit.register(lambda: print('interval', sys.getswitchinterval())); "
            f"sys.argv = ['x', 'version', 'memory://']; runpy.run_module('{module}', run_name='__main__')")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "interval 0.0005" in done.stdout


@pytest.mark.parametrize(("options", "environment", "pool"), [
    ("", {}, "system"), (", system_arrow_pool=False", {}, "mimalloc"),
    ("", {"ARROW_DEFAULT_MEMORY_POOL": "mimalloc"}, "mimalloc")])
def test_a_session_makes_arrow_allocate_as_the_process_does_unless_told_otherwise(options, environment, pool):
    code = (f"import stream, pyarrow as pa; stream.connect('memory://'{options}).close(); "
            "print(pa.default_memory_pool().backend_name)")
    kept = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True,
                          env={**kept, **environment})
    assert done.stdout.strip() == pool


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="compares with what Linux says")
def test_the_peak_of_memory_is_in_bytes():
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    shown = int(status["VmHWM"].split()[0]) << 10
    assert abs(process.peak_memory_bytes() - shown) < max(shown // 10, 4 << 20)


def test_usable_memory_is_that_of_the_machine_or_of_a_control_group_around_this_process(tmp_path):
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert process.usable_memory_bytes(tmp_path) == machine
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text(f"{1 << 62}\n")
    assert process.usable_memory_bytes(tmp_path) == machine
    assert 0 < process.usable_memory_bytes() <= machine


@pytest.mark.parametrize(("text", "name", "expected"), [
    ("0::/a/b\n", "a/memory.max", 5), ("0::/a/b\n", "memory.max", 5), ("0::/\n", "memory.max", 5),
    ("7:memory:/c\n1:cpu:/a\n", "memory/c/memory.limit_in_bytes", 5), ("1:cpu:/a\n", "a/memory.max", None),
    ("0::/a/b\n", "a/b/c/memory.max", None),
])
def test_limits_of_the_groups_above_count(tmp_path, text, name, expected):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(f"{expected or 5}\n")
    found = list(process.limits_of_groups(text, tmp_path))
    assert found == ([] if expected is None else [expected])
