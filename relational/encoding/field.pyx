"""Fields of rows: the type tree of a row in the form that kernels use, and errors that name a field of a row."""

from libc.stdlib cimport calloc, free

from relational.errors import EncodingError

cdef dict REASONS = {
    TRUNCATED: "the bytes end inside a value",
    BAD_TAG: "neither a value nor NULL begins here",
    BAD_FORM: "not a form in which a value is written",
    OUT_OF_RANGE: "the value is outside what its type can hold",
    BAD_UTF8: "the text is not UTF-8",
    TRAILING: "bytes follow the last column",
    ABSENT: "there are no bytes to decode",
    OLD_FORM: "a row without column ids, a form that is no longer read",
    NO_JSON: "the text is not JSON in its canonical form",
}


cdef int raise_encoding(Reason reason, Py_ssize_t row, Py_ssize_t column, Py_ssize_t offset) except -1 nogil:
    with gil:
        raise EncodingError(
            REASONS[reason], row=row, column=column if column >= 0 else None, offset=offset if offset >= 0 else None)


cdef Field* planted(tuple types, const int* fixed_bytes) except NULL:
    cdef int count = len(types), i
    cdef Field* fields = <Field*>calloc(count + 1, sizeof(Field))
    if fields == NULL:
        raise MemoryError("no memory for the fields of a row")
    try:
        for i in range(count):
            plant_one(&fields[i], types[i], fixed_bytes)
    except BaseException:
        uproot(fields, count)
        raise
    return fields


cdef int plant_one(Field* field, object data_type, const int* fixed_bytes) except -1:
    cdef int i
    field.kind = data_type.kind
    field.scale = data_type.scale or 0
    field.precision = data_type.precision or 0
    field.fixed_bytes = fixed_bytes[field.kind]
    field.null_tag = 1
    if not data_type.children:
        return 0
    field.child_count = len(data_type.children)
    field.children = planted(data_type.children, fixed_bytes)
    for i in range(field.child_count):
        field.section += field.children[i].fixed_bytes
        field.variable += field.children[i].fixed_bytes == 0
    return 0


cdef void uproot(Field* fields, int count) noexcept:
    cdef int i
    for i in range(count):
        if fields[i].children != NULL:
            uproot(fields[i].children, fields[i].child_count)
    free(fields)


cdef class RowFormat:
    def __cinit__(self, types, *args, **options):
        self.types = tuple(types)

    def __dealloc__(self):
        if self.fields != NULL:
            uproot(self.fields, self.count)

    cdef int plant(self, const int* fixed_bytes) except -1:
        self.fields = planted(self.types, fixed_bytes)
        self.count = len(self.types)
        return 0
