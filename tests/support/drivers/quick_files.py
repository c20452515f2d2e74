"""Where the files of tests are: in shared memory where that is large enough, so that no test waits for a disk. They
survive a killed process there too."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY, LEAST_BYTES = Path("/dev/shm"), 4 << 30


def quick_root() -> str:
    """The directory for temporary directories."""
    is_quick = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= LEAST_BYTES
    return str(MEMORY) if is_quick else tempfile.gettempdir()


@contextmanager
def quick_directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hummock-", dir=quick_root()) as directory:
        yield Path(directory)
