"""Buffer pool and growable byte buffers."""

import threading

import pytest

from hummock.columnar.buffer_pool import ByteBuffer, pool_kept_bytes, set_pool_limit

DEFAULT_LIMIT = 256 << 20


@pytest.fixture
def limited_pool():
    yield set_pool_limit
    set_pool_limit(DEFAULT_LIMIT)


def test_a_buffer_holds_what_was_written():
    buffer, plain = ByteBuffer(), bytearray()
    for size in (0, 1, 5, 100, 5_000, 70_000, 3):
        buffer.write(bytes([size % 251]) * size)
        plain += bytes([size % 251]) * size
        assert len(buffer) == len(plain) == buffer.size
    assert buffer.to_bytes() == bytes(plain) == bytes(buffer)


def test_an_empty_buffer_is_readable():
    assert bytes(ByteBuffer()) == b"" == ByteBuffer().to_bytes()


def test_a_view_freezes_the_buffer():
    buffer = ByteBuffer()
    buffer.write(b"abc")
    with memoryview(buffer) as view:
        assert view.readonly and bytes(view) == b"abc"
        with pytest.raises(BufferError):
            buffer.write(b"d")
    buffer.write(b"d")
    assert bytes(buffer) == b"abcd"


def test_freed_memory_is_kept_up_to_the_limit(limited_pool):
    limited_pool(0)
    assert pool_kept_bytes() == 0
    limited_pool(1 << 20)
    buffers = [ByteBuffer(300_000) for _ in range(8)]
    del buffers
    assert 300_000 <= pool_kept_bytes() <= 1 << 20
    limited_pool(400_000)
    assert pool_kept_bytes() <= 400_000
    with pytest.raises(ValueError, match="negative"):
        limited_pool(-1)


def test_bytes_stay_while_memory_of_each_kind_grows_into_the_next(limited_pool):
    limited_pool(0)
    grown, written = ByteBuffer(600_000), b""
    for number in range(9):
        part = bytes([number]) * (1 << 20)
        grown.write(part)
        written += part
        assert grown.to_bytes() == written


def test_a_large_buffer_grows_into_one_that_is_kept(limited_pool):
    limited_pool(0)
    limited_pool(64 << 20)
    ByteBuffer(16 << 20)
    assert pool_kept_bytes() == 16 << 20
    grown = ByteBuffer(8 << 20)
    grown.write(b"a" * (8 << 20))
    grown.write(b"b")
    assert pool_kept_bytes() == 8 << 20
    assert grown.to_bytes() == b"a" * (8 << 20) + b"b"


def test_threads_take_and_give_at_once():
    failures = []

    def work(seed: int) -> None:
        for step in range(300):
            buffer = ByteBuffer()
            chunk = bytes([seed]) * (997 * (step % 40 + 1))
            buffer.write(chunk)
            buffer.write(chunk)
            if bytes(buffer) != chunk + chunk:
                failures.append((seed, step))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
