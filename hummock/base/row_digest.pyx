"""The content hash as an integer in records; row_digest.pxd defines it."""

from libc.stdint cimport uint64_t

from hummock.base.row_digest cimport hash_under


def under_epoch(uint64_t content_hash, uint64_t own, uint64_t other) -> int:
    """Converts the content hash of rows that all have epoch `own` to epoch `other`."""
    return hash_under(content_hash, own, other)
