"""The Arrow C Data Interface: its structs, and PyCapsules of them.

A consumer keeps the capsule of an array as the owner of its memory: destroying the capsule releases the array. A
consumer that releases without the GIL moves the struct out (`take_array`) and calls `release` itself. Producers fill a
malloc'ed struct and wrap it. See https://arrow.apache.org/docs/format/CDataInterface.html
"""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free

cdef extern from * nogil:
    """
    #ifndef ARROW_C_DATA_INTERFACE
    #define ARROW_C_DATA_INTERFACE
    #include <stdint.h>
    #define ARROW_FLAG_DICTIONARY_ORDERED 1
    #define ARROW_FLAG_NULLABLE 2
    #define ARROW_FLAG_MAP_KEYS_SORTED 4
    struct ArrowSchema {
        const char *format, *name, *metadata;
        int64_t flags, n_children;
        struct ArrowSchema **children, *dictionary;
        void (*release)(struct ArrowSchema *);
        void *private_data;
    };
    struct ArrowArray {
        int64_t length, null_count, offset, n_buffers, n_children;
        const void **buffers;
        struct ArrowArray **children, *dictionary;
        void (*release)(struct ArrowArray *);
        void *private_data;
    };
    #endif
    """
    enum:
        ARROW_FLAG_NULLABLE

    struct ArrowSchema:
        const char* format
        const char* name
        const char* metadata
        int64_t flags
        int64_t n_children
        ArrowSchema** children
        ArrowSchema* dictionary
        void (*release)(ArrowSchema*) noexcept nogil
        void* private_data

    struct ArrowArray:
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_buffers
        int64_t n_children
        const void** buffers
        ArrowArray** children
        ArrowArray* dictionary
        void (*release)(ArrowArray*) noexcept nogil
        void* private_data


cdef inline void free_schema_capsule(object capsule) noexcept:
    cdef ArrowSchema* schema = <ArrowSchema*>PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release != NULL:
        schema.release(schema)
    free(schema)


cdef inline void free_array_capsule(object capsule) noexcept:
    cdef ArrowArray* array = <ArrowArray*>PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release != NULL:
        array.release(array)
    free(array)


cdef inline object new_schema_capsule():
    """A capsule around a zeroed ArrowSchema for a producer to fill; released and freed with the capsule."""
    cdef ArrowSchema* schema = <ArrowSchema*>calloc(1, sizeof(ArrowSchema))
    if schema == NULL:
        raise MemoryError("no memory for an ArrowSchema")
    return PyCapsule_New(schema, "arrow_schema", free_schema_capsule)


cdef inline object new_array_capsule():
    """A capsule around a zeroed ArrowArray for a producer to fill; released and freed with the capsule."""
    cdef ArrowArray* array = <ArrowArray*>calloc(1, sizeof(ArrowArray))
    if array == NULL:
        raise MemoryError("no memory for an ArrowArray")
    return PyCapsule_New(array, "arrow_array", free_array_capsule)


cdef inline ArrowSchema* schema_in(object capsule) except NULL:
    """The struct in a schema capsule, valid as long as the capsule. ValueError for any other object."""
    return <ArrowSchema*>PyCapsule_GetPointer(capsule, "arrow_schema")


cdef inline ArrowArray* array_in(object capsule) except NULL:
    """The struct in an array capsule, valid as long as the capsule. ValueError for any other object."""
    return <ArrowArray*>PyCapsule_GetPointer(capsule, "arrow_array")


cdef inline ArrowArray take_array(object capsule) except *:
    """Moves the struct out of an array capsule: the caller must call `release` exactly once."""
    cdef ArrowArray* array = array_in(capsule)
    cdef ArrowArray moved = array[0]
    if array.release == NULL:
        raise ValueError("this Arrow array was already taken")
    array.release = NULL
    return moved
