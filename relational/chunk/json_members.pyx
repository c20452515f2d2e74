"""Members of JSON objects, as canonical JSON text: for columns of JSONB in records that are read as columns."""

import pyarrow as pa

from libc.stdint cimport uint8_t
from libc.string cimport memcmp

from hummock.base.key cimport Slice
from hummock.columnar.binary_column cimport BinaryColumn, BinaryColumnBuilder
from hummock.columnar.buffer_pool cimport ByteBuffer
from relational.chunk.json cimport JsonText, put, put_escaped

from relational.errors import EncodingError
from relational.chunk.json import canonical_json


def json_members(texts not None, path not None, bint keep_null=False) -> pa.Array:
    """utf8[rows]: of each JSON text (Arrow utf8 or binary) the value at `path`, the names of an object's member, of a
    member of that, and so on; null where there is none, or where it is JSON's null, unless `keep_null`. Canonical.
    EncodingError for a text that is no JSON.
    """
    cdef BinaryColumn column = BinaryColumn.from_arrow(texts.cast(pa.binary()))
    cdef BinaryColumn names = BinaryColumn.from_arrow(keys_of(path))
    cdef BinaryColumnBuilder out = BinaryColumnBuilder()
    cdef JsonText json = JsonText()
    cdef Py_ssize_t row, failed = -1, level
    cdef Slice text, found
    with nogil:
        for row in range(column.rows):
            text = column.at(row)
            json.out.size = 0
            if column.is_null(row):
                out.append_null()
                continue
            if not json.write(text.data, text.size):
                failed = row
                break
            found.data, found.size = json.out.data, json.out.size
            for level in range(names.rows):
                found = member(found, names.at(level))
            if found.size == 0 or (not keep_null and found.size == 4 and memcmp(found.data, b"null", 4) == 0):
                out.append_null()
            else:
                out.append(found)
    if failed >= 0:
        raise EncodingError(f"this is no JSON: {(<bytes>json.problem).decode()}", row=failed)
    return out.finish().to_arrow().cast(pa.utf8())


def json_strings(texts not None) -> pa.Array:
    """utf8[rows]: each text as a JSON string, canonical; null for null."""
    cdef BinaryColumn column = BinaryColumn.from_arrow(texts.cast(pa.binary()))
    cdef BinaryColumnBuilder out = BinaryColumnBuilder()
    cdef ByteBuffer written = ByteBuffer()
    cdef Py_ssize_t row, byte
    cdef Slice text, found
    with nogil:
        for row in range(column.rows):
            if column.is_null(row):
                out.append_null()
                continue
            text = column.at(row)
            written.size = 0
            put(written, b'"')
            for byte in range(text.size):
                put_escaped(written, text.data[byte])
            put(written, b'"')
            found.data, found.size = written.data, written.size
            out.append(found)
    return out.finish().to_arrow().cast(pa.utf8())


def keys_of(path) -> pa.Array:
    """The names as canonical JSON strings."""
    return json_strings(pa.array(path, pa.utf8())).cast(pa.binary())


cdef Slice member(Slice object, Slice name) noexcept nogil:
    """The value of a member of a canonical object; empty if there is none, or the value is no object."""
    cdef const uint8_t* at = object.data + 1
    cdef const uint8_t* stop = object.data + object.size
    cdef const uint8_t* key
    cdef const uint8_t* value
    cdef Slice found
    found.data, found.size = NULL, 0
    if object.size == 0 or object.data[0] != b"{" or object.size == 2:
        return found
    while at < stop:
        key, value = at, after_string(at) + 1
        at = after_value(value)
        if value - 1 - key == name.size and memcmp(key, name.data, <size_t>name.size) == 0:
            found.data, found.size = value, at - value
            return found
        at += 1                         # the comma, or the last brace
    return found


cdef const uint8_t* after_string(const uint8_t* at) noexcept nogil:
    """The end of the string that begins at `at`. REQUIRES canonical JSON."""
    at += 1
    while at[0] != b'"':
        at += 2 if at[0] == b"\\" else 1
    return at + 1


cdef const uint8_t* after_value(const uint8_t* at) noexcept nogil:
    """The end of the value that begins at `at`, which a comma, a brace or a bracket follows. REQUIRES canonical JSON.
    """
    cdef int depth = 0
    while True:
        if at[0] == b'"':
            at = after_string(at)
            continue
        if at[0] == b"{" or at[0] == b"[":
            depth += 1
        elif at[0] == b"}" or at[0] == b"]":
            if depth == 0:
                return at
            depth -= 1
        elif at[0] == b"," and depth == 0:
            return at
        at += 1
