"""The content hash where it is a number in a record; content_hash.pxd says what it is."""

from libc.stdint cimport uint64_t

from hummock.base.row_digest cimport hash_under


def under_epoch(uint64_t content_hash, uint64_t own, uint64_t other) -> int:
    """The content hash under epoch `other` of rows that all stand under `own`, where theirs is `content_hash`."""
    return hash_under(content_hash, own, other)
