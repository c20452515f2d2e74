"""Compressed text files: `bids.csv.gz` is read as `bids.csv` would be, and so for bz2, zst and lz4 (frames).

Such a file is read from its beginning to its end, and positions in it are those of its decompressed bytes. Where these
end is known once they were read. To continue at a position, everything before it is decompressed again.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
SKIPPED_BYTES = 1 << 20


def with_compressed(suffixes: Sequence[str]) -> tuple[str, ...]:
    """These suffixes, and those of compressed files."""
    return tuple(suffix + compressed for suffix in suffixes for compressed in ("", *CODECS))


def codec_of_name(name: str) -> str | None:
    """How a file of that name is compressed; None: not at all."""
    return next((codec for suffix, codec in CODECS.items() if name.endswith(suffix)), None)


class DecompressedFile:
    """The decompressed bytes of `source`, read forwards. The last part that was read is kept: the next one may
    begin in it."""

    def __init__(self, source: pa.NativeFile, codec: str) -> None:
        self._source, self._codec = source, codec
        self._stream: pa.CompressedInputStream | None = None
        self._begin = 0  # of `_kept`
        self._kept = pa.py_buffer(b"")

    def read(self, begin: int, length: int) -> pa.Buffer:
        """The bytes from `begin` on: `length` of them, or fewer at the end. OSError, ArrowException; EOFError if there
        are none before `begin`."""
        if self._stream is None:
            self._stream = pa.CompressedInputStream(self._source, self._codec)
        if begin < self._begin:
            raise ValueError(f"byte {begin:,} was passed: the file is to be opened again")
        while begin > self._begin + self._kept.size:
            self._begin += self._kept.size
            self._kept = self._stream.read_buffer(min(SKIPPED_BYTES, begin - self._begin))
            if not self._kept.size:
                raise EOFError(f"its text ends at byte {self._begin:,}")
        parts = [self._kept.slice(begin - self._begin)]
        left = length - parts[0].size
        while left > 0:
            part = self._stream.read_buffer(left)
            if not part.size:
                break
            parts.append(part)
            left -= part.size
        self._begin, self._kept = begin, _joined(parts)
        return self._kept.slice(0, min(length, self._kept.size))


def _joined(parts: Sequence[pa.Buffer]) -> pa.Buffer:
    filled = [part for part in parts if part.size]
    return filled[0] if len(filled) == 1 else pa.py_buffer(b"".join(filled))
