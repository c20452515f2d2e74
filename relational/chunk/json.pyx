"""JSON text in the canonical form that JSONB is stored in: equal values are equal bytes.

No white space. The keys of an object are sorted by length, then by bytes; of duplicate keys the last value wins, as in
PostgreSQL. Numbers are exact: no leading or trailing zeros, plain notation where it adds at most 20 zeros, otherwise
one digit before the decimal point and an exponent (1e+21). Strings escape only what JSON requires, in the shortest way.
"""

import pyarrow as pa

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport qsort
from libc.string cimport memcmp, memcpy, memset

from hummock.base.key cimport Slice
from hummock.columnar.binary_column cimport BinaryColumn, BinaryColumnBuilder
from hummock.columnar.buffer_pool cimport ByteBuffer

from relational.errors import EncodingError

cdef enum:
    MOST_DEPTH = 1_000                  # of nested arrays and objects
    MOST_EXPONENT = 131_072             # PostgreSQL's limit on digits before the decimal point
    MOST_ZEROS = 20                     # that the plain notation of a number may add to its digits

cdef const char* HEX = "0123456789abcdef"


cdef int put_zeros(ByteBuffer out, int64_t count) except -1 nogil:
    out.reserve(count)
    memset(out.data + out.size, b"0", <size_t>count)
    out.size += count
    return 0


cdef int put_integer(ByteBuffer out, int64_t value) except -1 nogil:
    if value >= 10:
        put_integer(out, value // 10)
    return put(out, <uint8_t>(48 + value % 10))


cdef int put_number(
    ByteBuffer out, bint negative, const uint8_t* digits, Py_ssize_t count, int64_t point
) except -1 nogil:
    if count == 0:
        return put(out, b"0")
    if negative:
        put(out, b"-")
    if point > 0 and point - count <= MOST_ZEROS:
        out.append(digits, min(count, point))
        if point >= count:
            return put_zeros(out, point - count)
        put(out, b".")
        return out.append(digits + point, count - point)
    if -MOST_ZEROS <= point <= 0:
        out.append(<const uint8_t*>b"0.", 2)
        put_zeros(out, -point)
        return out.append(digits, count)
    put(out, digits[0])
    if count > 1:
        put(out, b".")
        out.append(digits + 1, count - 1)
    out.append(<const uint8_t*>(b"e+" if point > 0 else b"e-"), 2)
    return put_integer(out, point - 1 if point > 0 else 1 - point)


cdef int put_escaped(ByteBuffer out, uint8_t byte) except -1 nogil:
    cdef uint8_t short_form = 0
    if byte >= 32 and byte != b'"' and byte != b"\\":
        return put(out, byte)
    put(out, b"\\")
    if byte == b'"' or byte == b"\\":
        short_form = byte
    elif byte == 10:
        short_form = b"n"
    elif byte == 9:
        short_form = b"t"
    elif byte == 13:
        short_form = b"r"
    elif byte == 8:
        short_form = b"b"
    elif byte == 12:
        short_form = b"f"
    if short_form:
        return put(out, short_form)
    out.append(<const uint8_t*>b"u00", 3)
    put(out, HEX[byte >> 4])
    return put(out, HEX[byte & 15])


cdef int compare_members(const void* a, const void* b) noexcept nogil:
    """Orders by length of the key, by its bytes, then by position in the text."""
    cdef const Member* left = <const Member*>a
    cdef const Member* right = <const Member*>b
    cdef int order = compare_keys(left, right)
    return order if order else (1 if left.number > right.number else -1)


cdef int compare_keys(const Member* left, const Member* right) noexcept nogil:
    cdef const uint8_t* x = left.base + left.start + 1
    cdef const uint8_t* y = right.base + right.start + 1
    cdef Py_ssize_t i
    cdef int order
    if left.key_bytes != right.key_bytes:
        return 1 if left.key_bytes > right.key_bytes else -1
    for i in range(left.key_bytes):
        order = <int>unescaped(&x) - <int>unescaped(&y)
        if order:
            return order
    return 0


cdef class JsonText:
    """`write` appends one canonical text to `out`."""

    def __cinit__(self):
        self.out, self.members, self.digits, self.spare = ByteBuffer(), ByteBuffer(), ByteBuffer(), ByteBuffer()

    cdef bint write(self, const uint8_t* text, Py_ssize_t size) except -1 nogil:
        self.at, self.stop = text, text + size
        self.members.size = 0
        self.skip_blanks()
        if not self.value(0):
            return False
        self.skip_blanks()
        return True if self.at == self.stop else self.fail("something follows the value")

    cdef bint fail(self, const char* problem) noexcept nogil:
        self.problem = problem
        return False

    cdef int skip_blanks(self) noexcept nogil:
        while self.at < self.stop and (self.at[0] == 32 or 9 <= self.at[0] <= 10 or self.at[0] == 13):
            self.at += 1
        return self.at[0] if self.at < self.stop else 0

    cdef bint value(self, int depth) except -1 nogil:
        cdef Py_ssize_t ignored = 0
        cdef int first = self.at[0] if self.at < self.stop else 0
        if first == b"{" or first == b"[":
            if depth == MOST_DEPTH:
                return self.fail("more than 1,000 arrays and objects in each other")
            return self.object(depth + 1) if first == b"{" else self.array(depth + 1)
        if first == b'"':
            return self.string(&ignored)
        if first == b"t":
            return self.word("true", 4)
        if first == b"f":
            return self.word("false", 5)
        if first == b"n":
            return self.word("null", 4)
        return self.number()

    cdef bint word(self, const char* word, Py_ssize_t size) except -1 nogil:
        if self.stop - self.at < size or memcmp(self.at, word, <size_t>size) != 0:
            return self.fail("no value begins here")
        self.out.append(self.at, size)
        self.at += size
        return True

    cdef bint array(self, int depth) except -1 nogil:
        cdef int next = 0
        put(self.out, b"[")
        self.at += 1
        if self.skip_blanks() == b"]":
            self.at += 1
            put(self.out, b"]")
            return True
        while True:
            self.skip_blanks()
            if not self.value(depth):
                return False
            next = self.skip_blanks()
            if next != b"," and next != b"]":
                return self.fail("an array goes on with a comma or ends with a bracket")
            self.at += 1
            put(self.out, <uint8_t>next)
            if next == b"]":
                return True

    cdef bint object(self, int depth) except -1 nogil:
        cdef Py_ssize_t first = self.members.size, start = self.out.size
        cdef Member member
        cdef int next = 0
        put(self.out, b"{")
        self.at += 1
        if self.skip_blanks() == b"}":
            self.at += 1
            put(self.out, b"}")
            return True
        member.number = 0
        member.base = NULL
        while next != b"}":
            if self.skip_blanks() != b'"':
                return self.fail("a key of an object is a string")
            member.start = self.out.size
            if not self.string(&member.key_bytes):
                return False
            if self.skip_blanks() != b":":
                return self.fail("a key is followed by a colon")
            self.at += 1
            put(self.out, b":")
            self.skip_blanks()
            if not self.value(depth):
                return False
            member.stop = self.out.size
            self.members.append(<const uint8_t*>&member, sizeof(Member))
            member.number += 1
            next = self.skip_blanks()
            if next != b"," and next != b"}":
                return self.fail("an object goes on with a comma or ends with a brace")
            self.at += 1
            put(self.out, <uint8_t>next)
        self.settle(first, start)
        self.members.size = first
        return True

    cdef int settle(self, Py_ssize_t first, Py_ssize_t start) except -1 nogil:
        """Sorts the members of the object that begins at `start` of the output and keeps the last of each key."""
        cdef Member* members = <Member*>(self.members.data + first)
        cdef Py_ssize_t count = (self.members.size - first) // <Py_ssize_t>sizeof(Member), i
        cdef bint is_sorted = True
        for i in range(count):
            members[i].base = self.out.data
            is_sorted = is_sorted and (i == 0 or compare_keys(&members[i - 1], &members[i]) < 0)
        if is_sorted:
            return 0
        qsort(members, <size_t>count, sizeof(Member), compare_members)
        self.spare.size = 0
        for i in range(count):
            if i + 1 == count or compare_keys(&members[i], &members[i + 1]) != 0:
                self.spare.append(self.out.data + members[i].start, members[i].stop - members[i].start)
                put(self.spare, b",")
        self.spare.data[self.spare.size - 1] = b"}"
        memcpy(self.out.data + start + 1, self.spare.data, <size_t>self.spare.size)
        self.out.size = start + 1 + self.spare.size
        return 0

    cdef bint string(self, Py_ssize_t* bytes) except -1 nogil:
        """`bytes`: of the string unescaped."""
        put(self.out, b'"')
        self.at += 1
        bytes[0] = 0
        while self.at < self.stop:
            if self.at[0] == b'"':
                self.at += 1
                put(self.out, b'"')
                return True
            if self.at[0] == b"\\":
                if not self.escape(bytes):
                    return False
                continue
            if self.at[0] < 32:
                return self.fail("a control character in a string is escaped")
            put(self.out, self.at[0])
            self.at += 1
            bytes[0] += 1
        return self.fail("a string does not end")

    cdef int hex4(self) noexcept nogil:
        """The four digits at `at`, which advances past them; -1 if they are not hexadecimal."""
        cdef int code = 0, i, digit
        if self.stop - self.at < 4:
            return -1
        for i in range(4):
            digit = self.at[i]
            if 48 <= digit <= 57:
                digit -= 48
            elif 97 <= (digit | 32) <= 102:
                digit = (digit | 32) - 87
            else:
                return -1
            code = code * 16 + digit
        self.at += 4
        return code

    cdef bint escape(self, Py_ssize_t* bytes) except -1 nogil:
        cdef int letter = self.at[1] if self.stop - self.at > 1 else 0, code = -1, low
        self.at += 2
        if letter == b'"' or letter == b"\\" or letter == b"/":
            code = letter
        elif letter == b"n":
            code = 10
        elif letter == b"t":
            code = 9
        elif letter == b"r":
            code = 13
        elif letter == b"b":
            code = 8
        elif letter == b"f":
            code = 12
        elif letter == b"u":
            code = self.hex4()
            if 0xD800 <= code < 0xDC00 and self.stop - self.at > 1 and self.at[0] == b"\\" and self.at[1] == b"u":
                self.at += 2
                low = self.hex4()
                code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00) if 0xDC00 <= low < 0xE000 else -1
        if code <= 0 or 0xD800 <= code < 0xE000:
            return self.fail("an escape that is no character, or is character 0")
        if code < 0x80:
            bytes[0] += 1
            put_escaped(self.out, <uint8_t>code)
            return True
        bytes[0] += 2 if code < 0x800 else 3 if code < 0x10000 else 4
        if code < 0x800:
            put(self.out, <uint8_t>(0xC0 | code >> 6))
        else:
            if code < 0x10000:
                put(self.out, <uint8_t>(0xE0 | code >> 12))
            else:
                put(self.out, <uint8_t>(0xF0 | code >> 18))
                put(self.out, <uint8_t>(0x80 | (code >> 12 & 0x3F)))
            put(self.out, <uint8_t>(0x80 | (code >> 6 & 0x3F)))
        put(self.out, <uint8_t>(0x80 | (code & 0x3F)))
        return True

    cdef bint number(self) except -1 nogil:
        cdef bint negative = self.at < self.stop and self.at[0] == b"-", minus
        cdef int64_t point = 0, exponent = 0
        cdef const uint8_t* begin
        cdef Py_ssize_t first = 0, count
        self.digits.size = 0
        self.at += negative
        begin = self.at
        while self.at < self.stop and 48 <= self.at[0] <= 57:
            self.at += 1
        point = self.at - begin
        if point == 0 or (point > 1 and begin[0] == b"0"):
            return self.fail("no value begins here")
        self.digits.append(begin, point)
        if self.at < self.stop and self.at[0] == b".":
            self.at += 1
            begin = self.at
            while self.at < self.stop and 48 <= self.at[0] <= 57:
                self.at += 1
            if self.at == begin:
                return self.fail("digits follow the point of a number")
            self.digits.append(begin, self.at - begin)
        if self.at < self.stop and self.at[0] | 32 == b"e":
            self.at += 1
            minus = self.at < self.stop and self.at[0] == b"-"
            self.at += minus or (self.at < self.stop and self.at[0] == b"+")
            begin = self.at
            while self.at < self.stop and 48 <= self.at[0] <= 57:
                exponent = min(exponent * 10 + self.at[0] - 48, <int64_t>1 << 40)
                self.at += 1
            if self.at == begin:
                return self.fail("digits follow the e of a number")
            point += -exponent if minus else exponent
        count = self.digits.size
        while first < count and self.digits.data[first] == b"0":
            first += 1
        point -= first
        while count > first and self.digits.data[count - 1] == b"0":
            count -= 1
        if first < count and not -MOST_EXPONENT <= point <= MOST_EXPONENT:
            return self.fail("a number needs more than 131,072 digits")
        put_number(self.out, negative, self.digits.data + first, count - first, point)
        return True


def canonical_json(texts, uint8_t[::1] bad=None) -> pa.Array:
    """The canonical form of each JSON text (Arrow utf8); null stays null. Invalid JSON is an EncodingError, or, with
    `bad` (uint8[rows], zeros), null and marked there.
    """
    cdef BinaryColumn column = BinaryColumn.from_arrow(texts.cast(pa.binary()))
    cdef BinaryColumnBuilder out = BinaryColumnBuilder()
    cdef JsonText json = JsonText()
    cdef Py_ssize_t row, failed = -1
    cdef Slice text
    with nogil:
        for row in range(column.rows):
            if column.is_null(row):
                out.append_null()
                continue
            text = column.at(row)
            json.out.size = 0
            if not json.write(text.data, text.size):
                if bad is None:
                    failed = row
                    break
                bad[row] = 1
                out.append_null()
                continue
            text.data, text.size = json.out.data, json.out.size
            out.append(text)
    if failed >= 0:
        text = column.at(failed)
        problem = (<bytes>json.problem).decode()
        raise EncodingError(f"this is no JSON: {problem}", row=failed, offset=json.at - text.data)
    return out.finish().to_arrow().cast(pa.utf8())
