"""Codecs: C libraries and the pyarrow fallback write the same formats."""

import random
import threading

import pyarrow as pa
import pytest

from hummock.base.codec import CODEC_IDS, compressed, decompressed, use_c_libraries

SAMPLES = {
    "one byte": b"x",
    "zeros": bytes(100_000),
    "random": random.Random(4).randbytes(70_000),
    "words": b"".join(random.Random(5).choice([b"epoch ", b"barrier ", b"vnode "]) for _ in range(9_000)),
}
CODECS = sorted(CODEC_IDS.values())


@pytest.fixture(params=["C", "pyarrow"])
def backend(request):
    """Runs a test with the C libraries of the wheels and with pyarrow."""
    assert use_c_libraries(request.param == "C") == ((1, 2) if request.param == "C" else ())
    yield request.param
    use_c_libraries(True)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_packed_comes_back(backend, codec, name):
    packed = compressed(SAMPLES[name], codec)
    assert decompressed(packed, codec, len(SAMPLES[name])) == SAMPLES[name]


@pytest.mark.parametrize("codec", CODECS)
def test_a_wrong_size_or_a_cut_is_refused(backend, codec):
    raw = SAMPLES["words"]
    packed = compressed(raw, codec)
    n = len(raw)
    for data, size in ((packed, n + 1), (packed, n - 1), (packed[:-1], n), (packed, 1 << 40)):
        with pytest.raises(ValueError, match="are not"):
            decompressed(data, codec, size)


def test_arrow_reads_what_we_wrote_and_we_read_what_arrow_wrote(backend):
    raw = SAMPLES["words"]
    for codec, arrow in ((1, pa.Codec("lz4_raw")), (2, pa.Codec("zstd"))):
        assert arrow.decompress(compressed(raw, codec), len(raw)).to_pybytes() == raw
        assert decompressed(arrow.compress(raw).to_pybytes(), codec, len(raw)) == raw


def test_an_unknown_codec_is_refused():
    with pytest.raises(ValueError, match="codec 9"):
        compressed(b"x", 9)
    with pytest.raises(ValueError, match="codec 9"):
        decompressed(b"x", 9, 1)


def test_threads_share_the_kept_contexts():
    raw, failures = SAMPLES["words"], []

    def work() -> None:
        for _ in range(20):
            if decompressed(compressed(raw, 2), 2, len(raw)) != raw:
                failures.append(1)

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
