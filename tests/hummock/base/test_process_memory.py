"""`return_freed_memory`: the allocator returns freed memory to the system."""

import ctypes
import subprocess
import sys
from types import SimpleNamespace

import pytest

from hummock.base.process import return_freed_memory
from tests.support.suites.process_memory import has_gnu_malloc

ALLOCATIONS = """
from hummock.base.process import return_freed_memory
from tests.support.suites.process_memory import status
assert return_freed_memory()
before = status("VmRSS")
for _ in range(3):
    large, small = [], []
    for _ in range(30):
        large.append(bytearray(b"x") * (3 << 20))
        small.append(bytes(400))
    held = status("VmRSS") - before
    del large
print(held, status("VmRSS") - before)
"""


@pytest.mark.skipif(not has_gnu_malloc(), reason="needs the GNU allocator")
def test_freed_pieces_go_back_to_the_system():
    done = subprocess.run([sys.executable, "-c", ALLOCATIONS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    held, left = map(int, done.stdout.split())
    assert held >= 90 << 20 and left < 8 << 20


def test_another_allocator_is_left_alone(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())
    assert not return_freed_memory()
