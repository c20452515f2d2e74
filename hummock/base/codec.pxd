"""Block compression by C functions that need no GIL."""

from libc.stdint cimport uint8_t

cdef enum Codec:            # ids as stored in files
    CODEC_NONE = 0
    CODEC_LZ4 = 1           # one raw lz4 block
    CODEC_ZSTD = 2          # one zstd frame that states its content size

cdef Py_ssize_t compress_bound(int codec, Py_ssize_t size) noexcept nogil
# upper bound of the compressed size of `size` bytes; -1 for an unknown codec or a size above its limit

cdef Py_ssize_t compress(
    int codec, const uint8_t* source, Py_ssize_t size, uint8_t* target, Py_ssize_t capacity
) noexcept nogil
# bytes written to `target`; -1 if they do not fit or the codec failed

cdef bint decompress(
    int codec, const uint8_t* source, Py_ssize_t size, uint8_t* target, Py_ssize_t raw_size
) noexcept nogil
# decompresses to `target`; whether the result was exactly `raw_size` bytes. Safe for untrusted `source`

cdef bint can_hold(int codec, const uint8_t* source, Py_ssize_t size, Py_ssize_t raw_size) noexcept nogil
# whether `size` bytes can decompress to `raw_size`: checked before allocating memory for a size that a file claims
