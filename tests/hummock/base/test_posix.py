"""What Linux tells of threads."""

import os

import pytest

from hummock.base.posix import waited_ns


def read(folder, text):
    path = folder / "schedstat"
    path.write_text(text)
    file = os.open(path, os.O_RDONLY)
    try:
        return waited_ns(file)
    finally:
        os.close(file)


def test_the_wait_is_the_second_number(tmp_path):
    assert read(tmp_path, "72345678901 2345678901234 17\n") == 2345678901234


@pytest.mark.parametrize("text", ["", "\n", "72345678901", "72345678901\n"])
def test_anything_else_is_refused(tmp_path, text):
    with pytest.raises(OSError, match="not a schedstat"):
        read(tmp_path, text)


def test_a_closed_file_is_refused(tmp_path):
    file = os.open(tmp_path, os.O_RDONLY)
    os.close(file)
    with pytest.raises(OSError, match="not a schedstat"):
        waited_ns(file)
