"""Exports columns of keys and values as Arrow record batches and streams of them, without a copy.

A stream is imported under one release of the GIL, where importing column by column would switch it twice per column.
See https://arrow.apache.org/docs/format/CStreamInterface.html
"""

import pyarrow as pa

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.errno cimport ENOMEM
from libc.stdlib cimport calloc, free

from hummock.columnar.arrow_c cimport (
    ARROW_FLAG_NULLABLE, ArrowArray, ArrowSchema, array_in, new_array_capsule, new_schema_capsule, schema_in,
    take_array,
)

cdef extern from * nogil:
    """
    #ifndef ARROW_C_STREAM_INTERFACE
    #define ARROW_C_STREAM_INTERFACE
    struct ArrowArrayStream {
        int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
        int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
        const char *(*get_last_error)(struct ArrowArrayStream *);
        void (*release)(struct ArrowArrayStream *);
        void *private_data;
    };
    #endif
    """
    struct ArrowArrayStream:
        int (*get_schema)(ArrowArrayStream*, ArrowSchema*) noexcept nogil
        int (*get_next)(ArrowArrayStream*, ArrowArray*) noexcept nogil
        const char* (*get_last_error)(ArrowArrayStream*) noexcept nogil
        void (*release)(ArrowArrayStream*) noexcept nogil
        void* private_data

cdef struct SchemaParts:                # private data of an exported schema
    ArrowSchema columns[2]
    ArrowSchema* pointers[2]

cdef struct BatchParts:                 # private data of an exported batch
    ArrowArray columns[2]
    ArrowArray* pointers[2]
    const void* validity                # NULL: no row of the batch itself is null

cdef struct StreamParts:                # private data of a stream
    Py_ssize_t count
    Py_ssize_t given                    # batches returned by get_next
    ArrowArray* batches


def table_of(list batches not None) -> pa.Table:
    """The rows of these batches as a table (key: binary, value: binary), one chunk per batch."""
    return pa.RecordBatchReader._import_from_c_capsule(stream_of(batches)).read_all()


def struct_of(keys, values) -> tuple:
    """The Arrow PyCapsule protocol: (schema, array) capsules of a record batch that shares the columns' memory."""
    cdef object schema_capsule = new_schema_capsule(), array_capsule = new_array_capsule()
    if fill_schema(schema_in(schema_capsule)) != 0:
        raise MemoryError("no memory for an Arrow schema")
    fill_batch(array_in(array_capsule), keys, values)
    return schema_capsule, array_capsule


cdef object stream_of(list batches):
    """A capsule around a stream of the batches."""
    cdef StreamParts* parts = <StreamParts*>calloc(1, sizeof(StreamParts))
    cdef ArrowArrayStream* stream = <ArrowArrayStream*>calloc(1, sizeof(ArrowArrayStream))
    cdef object capsule
    if parts == NULL or stream == NULL:
        free(parts)
        free(stream)
        raise MemoryError("no memory for an Arrow stream")
    stream.get_schema, stream.get_next, stream.get_last_error = stream_schema, stream_next, last_error
    stream.private_data, stream.release = parts, release_stream
    capsule = PyCapsule_New(stream, "arrow_array_stream", free_stream_capsule)
    parts.batches = <ArrowArray*>calloc(<size_t>max(1, len(batches)), sizeof(ArrowArray))
    if parts.batches == NULL:
        raise MemoryError(f"no memory for a stream of {len(batches)} batches")
    for batch in batches:
        parts.count += 1
        fill_batch(&parts.batches[parts.count - 1], batch.keys, batch.values)
    return capsule


cdef int fill_batch(ArrowArray* array, keys, values) except -1:
    cdef BatchParts* parts = <BatchParts*>calloc(1, sizeof(BatchParts))
    cdef int at
    if parts == NULL:
        raise MemoryError("no memory for an Arrow batch")
    array.private_data, array.release = parts, release_batch
    array.n_children, array.children = 2, parts.pointers
    array.n_buffers, array.buffers = 1, &parts.validity
    array.length = len(keys)
    for at, column in enumerate((keys, values)):
        parts.pointers[at] = &parts.columns[at]
        parts.columns[at] = take_array(column.__arrow_c_array__()[1])
    return 0


cdef int fill_schema(ArrowSchema* schema) noexcept nogil:
    cdef SchemaParts* parts = <SchemaParts*>calloc(1, sizeof(SchemaParts))
    cdef int at
    if parts == NULL:
        return ENOMEM
    schema.format, schema.name, schema.metadata, schema.dictionary, schema.flags = "+s", "", NULL, NULL, 0
    schema.n_children, schema.children = 2, parts.pointers
    schema.private_data, schema.release = parts, release_schema
    for at in range(2):
        parts.pointers[at] = &parts.columns[at]
        parts.columns[at].format, parts.columns[at].name = "z", "key" if at == 0 else "value"
        parts.columns[at].flags, parts.columns[at].release = ARROW_FLAG_NULLABLE, release_column_schema
    return 0


cdef int stream_schema(ArrowArrayStream* stream, ArrowSchema* out) noexcept nogil:
    return fill_schema(out)


cdef int stream_next(ArrowArrayStream* stream, ArrowArray* out) noexcept nogil:
    cdef StreamParts* parts = <StreamParts*>stream.private_data
    if parts.given == parts.count:
        out.release = NULL              # end of the stream
        return 0
    out[0] = parts.batches[parts.given]
    parts.batches[parts.given].release = NULL
    parts.given += 1
    return 0


cdef const char* last_error(ArrowArrayStream* stream) noexcept nogil:
    return "no memory for a schema"


cdef void release_column_schema(ArrowSchema* schema) noexcept nogil:
    schema.release = NULL               # format and name are literals


cdef void release_schema(ArrowSchema* schema) noexcept nogil:
    free(schema.private_data)           # children own nothing, even if moved out
    schema.release = NULL


cdef void release_batch(ArrowArray* array) noexcept nogil:
    cdef BatchParts* parts = <BatchParts*>array.private_data
    cdef int at
    for at in range(2):
        if parts.columns[at].release != NULL:
            parts.columns[at].release(&parts.columns[at])
    free(parts)
    array.release = NULL


cdef void release_stream(ArrowArrayStream* stream) noexcept nogil:
    cdef StreamParts* parts = <StreamParts*>stream.private_data
    cdef Py_ssize_t at
    for at in range(parts.given, parts.count):
        if parts.batches[at].release != NULL:
            parts.batches[at].release(&parts.batches[at])
    free(parts.batches)
    free(parts)
    stream.release = NULL


cdef void free_stream_capsule(object capsule) noexcept:
    cdef ArrowArrayStream* stream = <ArrowArrayStream*>PyCapsule_GetPointer(capsule, "arrow_array_stream")
    if stream.release != NULL:
        stream.release(stream)
    free(stream)
