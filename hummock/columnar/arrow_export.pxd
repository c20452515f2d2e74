"""What an Arrow stream of keys and values is made of."""

from hummock.columnar.arrow_c cimport ArrowArray, ArrowSchema

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
    Py_ssize_t given                    # batches that were taken
    ArrowArray* batches
