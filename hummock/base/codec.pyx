"""Block compression by C functions that need no GIL.

The installed wheels of `lz4` and `zstandard` contain the C libraries with exported functions, which are looked up
when this module is imported and must pass a round trip and a fixed example before they are used. For a wheel built
without them, `pyarrow.Codec` produces the same bytes but acquires the GIL for each block.
"""

import ctypes
import importlib.util
from pathlib import Path

import pyarrow as pa

from libc.stdint cimport uint8_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from hummock.base.posix cimport pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock

CODEC_IDS = {"none": CODEC_NONE, "lz4": CODEC_LZ4, "zstd": CODEC_ZSTD}
CODEC_NAMES = {number: name for name, number in CODEC_IDS.items()}

cdef enum:
    ZSTD_LEVEL = 3
    LZ4_ACCELERATION = 4                # measured: 1.0x-1.8x the speed of 1 for 0-9 % more bytes
    KEPT_CONTEXTS = 8                   # zstd contexts kept for reuse, per direction
    LZ4_LARGEST = 0x7E000000            # the library's limit for one block

ctypedef int (*Lz4Compress)(const char*, char*, int, int, int) noexcept nogil
ctypedef int (*Lz4Decompress)(const char*, char*, int, int) noexcept nogil
ctypedef void* (*ZstdCreate)() noexcept nogil
ctypedef size_t (*ZstdFree)(void*) noexcept nogil
ctypedef size_t (*ZstdCompress)(void*, void*, size_t, const void*, size_t, int) noexcept nogil
ctypedef size_t (*ZstdDecompress)(void*, void*, size_t, const void*, size_t) noexcept nogil
ctypedef unsigned int (*ZstdIsError)(size_t) noexcept nogil
ctypedef unsigned long long (*ZstdContentSize)(const void*, size_t) noexcept nogil

cdef Lz4Compress lz4_compress = NULL            # NULL: the library was not found or failed its test
cdef Lz4Decompress lz4_decompress = NULL
cdef ZstdCompress zstd_compress = NULL
cdef ZstdDecompress zstd_decompress = NULL
cdef ZstdIsError zstd_is_error = NULL
cdef ZstdContentSize zstd_content_size = NULL


cdef struct ContextPool:
    ZstdCreate create
    ZstdFree free
    pthread_mutex_t lock
    int kept
    void* contexts[KEPT_CONTEXTS]

cdef ContextPool compressors, decompressors
compressors.kept = decompressors.kept = 0
pthread_mutex_init(&compressors.lock, NULL)
pthread_mutex_init(&decompressors.lock, NULL)


cdef void* acquire_context(ContextPool* pool) noexcept nogil:
    cdef void* context = NULL
    pthread_mutex_lock(&pool.lock)
    if pool.kept > 0:
        pool.kept -= 1
        context = pool.contexts[pool.kept]
    pthread_mutex_unlock(&pool.lock)
    return context if context != NULL else pool.create()


cdef void release_context(ContextPool* pool, void* context) noexcept nogil:
    pthread_mutex_lock(&pool.lock)
    if pool.kept < KEPT_CONTEXTS:
        pool.contexts[pool.kept] = context
        pool.kept += 1
        context = NULL
    pthread_mutex_unlock(&pool.lock)
    if context != NULL:
        pool.free(context)


cdef Py_ssize_t compress_bound(int codec, Py_ssize_t size) noexcept nogil:
    if size < 0 or size > LZ4_LARGEST:
        return -1
    if codec == CODEC_NONE:
        return size
    if codec == CODEC_LZ4:
        return size + size // 255 + 16
    if codec == CODEC_ZSTD:
        return size + (size >> 8) + 1024
    return -1


cdef Py_ssize_t compress(
    int codec, const uint8_t* source, Py_ssize_t size, uint8_t* target, Py_ssize_t capacity
) noexcept nogil:
    cdef Py_ssize_t written
    if size < 0 or size > LZ4_LARGEST:
        return -1
    if codec == CODEC_NONE:
        if capacity < size:
            return -1
        memcpy(target, source, <size_t>size)
        return size
    if codec == CODEC_LZ4 and lz4_compress != NULL:
        written = lz4_compress(
            <const char*>source, <char*>target, <int>size,
            <int>(capacity if capacity < LZ4_LARGEST else LZ4_LARGEST), LZ4_ACCELERATION)
        return written if written > 0 else -1
    if codec == CODEC_ZSTD and zstd_compress != NULL:
        return compress_zstd(source, size, target, capacity)
    if codec == CODEC_LZ4 or codec == CODEC_ZSTD:
        with gil:
            return compress_by_pyarrow(codec, source, size, target, capacity)
    return -1


cdef Py_ssize_t compress_zstd(
    const uint8_t* source, Py_ssize_t size, uint8_t* target, Py_ssize_t capacity
) noexcept nogil:
    cdef void* context = acquire_context(&compressors)
    cdef size_t written
    if context == NULL:
        return -1
    written = zstd_compress(context, target, <size_t>capacity, source, <size_t>size, ZSTD_LEVEL)
    release_context(&compressors, context)
    return -1 if zstd_is_error(written) else <Py_ssize_t>written


cdef bint decompress(
    int codec, const uint8_t* source, Py_ssize_t size, uint8_t* target, Py_ssize_t raw_size
) noexcept nogil:
    cdef void* context
    cdef size_t written
    if not can_hold(codec, source, size, raw_size):
        return False
    if codec == CODEC_NONE:
        memcpy(target, source, <size_t>size)
        return True
    if codec == CODEC_LZ4 and lz4_decompress != NULL:
        return lz4_decompress(<const char*>source, <char*>target, <int>size, <int>raw_size) == raw_size
    if codec == CODEC_ZSTD and zstd_decompress != NULL:
        context = acquire_context(&decompressors)
        if context == NULL:
            return False
        written = zstd_decompress(context, target, <size_t>raw_size, source, <size_t>size)
        release_context(&decompressors, context)
        return written == <size_t>raw_size      # error codes are far above any size
    with gil:
        return decompress_by_pyarrow(codec, source, size, target, raw_size)


cdef bint can_hold(int codec, const uint8_t* source, Py_ssize_t size, Py_ssize_t raw_size) noexcept nogil:
    cdef unsigned long long stated
    if size < 0 or raw_size < 0 or size > LZ4_LARGEST or raw_size > LZ4_LARGEST:
        return False
    if codec == CODEC_NONE:
        return size == raw_size
    if codec == CODEC_LZ4:
        return raw_size <= size * 255           # a length byte adds at most 255 bytes
    if codec == CODEC_ZSTD:
        if zstd_content_size == NULL:
            return raw_size <= size << 15       # 4 bytes encode a run of at most 128 KiB
        stated = zstd_content_size(source, <size_t>size)
        return stated == <unsigned long long>raw_size and raw_size <= size << 15
    return False


cdef Py_ssize_t compress_by_pyarrow(
    int codec, const uint8_t* source, Py_ssize_t size, uint8_t* target, Py_ssize_t capacity
) noexcept:
    cdef bytes packed
    try:
        packed = pyarrow_codec(codec).compress((<const char*>source)[:size], asbytes=True)
    except (pa.ArrowException, OSError, MemoryError):
        return -1                               # the caller stores the block uncompressed
    if len(packed) > capacity:
        return -1
    memcpy(target, <const char*>packed, <size_t>len(packed))
    return len(packed)


cdef bint decompress_by_pyarrow(
    int codec, const uint8_t* source, Py_ssize_t size, uint8_t* target, Py_ssize_t raw_size
) noexcept:
    cdef bytes packed = (<const char*>source)[:size]
    cdef bytes raw = unpacked_by_pyarrow(codec, packed, raw_size)
    if raw is None or len(raw) != raw_size:
        return False                            # the caller raises Corruption with the object's name
    # pyarrow does not report the real size of an lz4 block: a shorter one would leave stale memory behind it
    if codec == CODEC_LZ4 and unpacked_by_pyarrow(codec, packed, raw_size - 1) is not None:
        return False
    memcpy(target, <const char*>raw, <size_t>raw_size)
    return True


cdef bytes unpacked_by_pyarrow(int codec, bytes packed, Py_ssize_t raw_size):
    try:
        return pyarrow_codec(codec).decompress(packed, raw_size, asbytes=True)
    except (pa.ArrowException, OSError, MemoryError):
        return None


cdef object pyarrow_codec(int codec):
    return pa.Codec("lz4_raw") if codec == CODEC_LZ4 else pa.Codec("zstd", compression_level=ZSTD_LEVEL)


def compressed(const uint8_t[::1] data, int codec) -> bytes:
    """A non-empty buffer compressed by that codec id. Raises ValueError if the codec fails."""
    cdef Py_ssize_t size = data.shape[0], bound = compress_bound(codec, size), written = -1
    cdef uint8_t* target = NULL if bound < 0 else <uint8_t*>malloc(<size_t>bound + 1)
    try:
        if target != NULL and size > 0:
            with nogil:
                written = compress(codec, &data[0], size, target, bound)
        if written < 0:
            raise ValueError(f"codec {codec} could not compress {size} bytes")
        return (<const char*>target)[:written]
    finally:
        free(target)


def decompressed(const uint8_t[::1] data, int codec, Py_ssize_t raw_size) -> bytes:
    """The `raw_size` bytes that a non-empty buffer decompresses to. Raises ValueError if it does not."""
    cdef uint8_t* target = NULL
    cdef bint whole = False
    try:
        if data.shape[0] > 0 and can_hold(codec, &data[0], data.shape[0], raw_size):
            target = <uint8_t*>malloc(<size_t>raw_size + 1)
        if target != NULL:
            with nogil:
                whole = decompress(codec, &data[0], data.shape[0], target, raw_size)
        if not whole:
            raise ValueError(f"{data.shape[0]} bytes are not {raw_size} bytes by codec {codec}")
        return (<const char*>target)[:raw_size]
    finally:
        free(target)


cdef uintptr_t address_in(object library, str name) except 0:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value


cdef load_lz4():
    global lz4_compress, lz4_decompress
    library = ctypes.CDLL(importlib.util.find_spec("lz4.block._block").origin)
    lz4_compress = <Lz4Compress>address_in(library, "LZ4_compress_fast")
    lz4_decompress = <Lz4Decompress>address_in(library, "LZ4_decompress_safe")


cdef load_zstd():
    global zstd_compress, zstd_decompress, zstd_is_error, zstd_content_size
    package = Path(importlib.util.find_spec("zstandard").origin).parent
    library = ctypes.CDLL(str(next(package.glob("_cffi*.so"))))
    compressors.create = <ZstdCreate>address_in(library, "ZSTD_createCCtx")
    compressors.free = <ZstdFree>address_in(library, "ZSTD_freeCCtx")
    decompressors.create = <ZstdCreate>address_in(library, "ZSTD_createDCtx")
    decompressors.free = <ZstdFree>address_in(library, "ZSTD_freeDCtx")
    zstd_is_error = <ZstdIsError>address_in(library, "ZSTD_isError")
    zstd_content_size = <ZstdContentSize>address_in(library, "ZSTD_getFrameContentSize")
    zstd_compress = <ZstdCompress>address_in(library, "ZSTD_compressCCtx")
    zstd_decompress = <ZstdDecompress>address_in(library, "ZSTD_decompressDCtx")


cdef forget(int codec):
    global lz4_compress, lz4_decompress, zstd_compress, zstd_decompress, zstd_content_size
    if codec == CODEC_LZ4:
        lz4_compress, lz4_decompress = NULL, NULL
    else:
        zstd_compress, zstd_decompress, zstd_content_size = NULL, NULL, NULL


EXAMPLE = b"hummock hummock hummock hummock hummock hummock "
EXAMPLE_PACKED = {      # EXAMPLE as compressed by other implementations of the two formats
    CODEC_LZ4: bytes.fromhex("8f68756d6d6f636b20080010506d6f636b20"),
    CODEC_ZSTD: bytes.fromhex("28b52ffd20307500004068756d6d6f636b20010057162e"),
}


cdef bint passes_test(int codec):
    try:
        if decompressed(EXAMPLE_PACKED[codec], codec, len(EXAMPLE)) != EXAMPLE:
            return False
        return decompressed(compressed(EXAMPLE, codec), codec, len(EXAMPLE)) == EXAMPLE
    except ValueError:
        return False


def use_c_libraries(bint wanted) -> tuple:
    """Looks up the C functions, or falls back to pyarrow; returns the ids of the codecs that now run in C."""
    forget(CODEC_LZ4)
    forget(CODEC_ZSTD)
    found = []
    for codec, load in ((CODEC_LZ4, load_lz4), (CODEC_ZSTD, load_zstd)) if wanted else ():
        try:
            load()
        except (OSError, AttributeError, StopIteration, ImportError):
            forget(codec)
            continue
        if passes_test(codec):
            found.append(codec)
        else:
            forget(codec)
    return tuple(found)


use_c_libraries(True)
