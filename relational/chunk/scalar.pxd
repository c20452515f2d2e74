"""Single values between memory and bytes: byte order, sign bits, calendars, and reading within bounds."""

from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from * nogil:
    """
    typedef __int128 hummock_int128;
    typedef unsigned __int128 hummock_uint128;
    """
    ctypedef long long int128_t "hummock_int128"
    ctypedef unsigned long long uint128_t "hummock_uint128"
    uint16_t __builtin_bswap16(uint16_t) noexcept
    uint32_t __builtin_bswap32(uint32_t) noexcept
    uint64_t __builtin_bswap64(uint64_t) noexcept

cdef enum:
    EPOCH_DAY = 719_163                 # 1970-01-01, where 0001-01-01 is day 1
    SECONDS_PER_DAY = 86_400
    MICROSECONDS = 1_000_000            # in a second

cdef struct ArrowInterval:              # Arrow's month_day_nano_interval
    int32_t months
    int32_t days
    int64_t nanoseconds


cdef inline uint16_t load16(const uint8_t* at) noexcept nogil:
    cdef uint16_t out
    memcpy(&out, at, 2)
    return out


cdef inline uint32_t load32(const uint8_t* at) noexcept nogil:
    cdef uint32_t out
    memcpy(&out, at, 4)
    return out


cdef inline uint64_t load64(const uint8_t* at) noexcept nogil:
    cdef uint64_t out
    memcpy(&out, at, 8)
    return out


cdef inline void store16(uint8_t* at, uint16_t value) noexcept nogil:
    memcpy(at, &value, 2)


cdef inline void store32(uint8_t* at, uint32_t value) noexcept nogil:
    memcpy(at, &value, 4)


cdef inline void store64(uint8_t* at, uint64_t value) noexcept nogil:
    memcpy(at, &value, 8)


cdef inline int64_t floor_divide(int64_t value, int64_t unit) noexcept nogil:
    """value / unit towards minus infinity; REQUIRES unit > 0."""
    cdef int64_t quotient = value // unit if value >= 0 else -((-(value + 1)) // unit) - 1
    return quotient


cdef inline uint32_t ordered32_of_float(uint32_t bits) noexcept nogil:
    """IEEE bits as an integer in the order of the floats; one NaN, above all; -0.0 is 0.0."""
    if (bits & <uint32_t>0x7FFFFFFF) > <uint32_t>0x7F800000:
        bits = 0x7FC00000
    elif bits == <uint32_t>0x80000000:
        bits = 0
    return ~bits if bits >> 31 else bits | <uint32_t>0x80000000


cdef inline uint64_t ordered64_of_double(uint64_t bits) noexcept nogil:
    cdef uint64_t sign = (<uint64_t>1) << 63
    if (bits & ~sign) > <uint64_t>0x7FF0000000000000:
        bits = <uint64_t>0x7FF8000000000000
    elif bits == sign:
        bits = 0
    return ~bits if bits >> 63 else bits | sign


cdef inline uint32_t float_of_ordered32(uint32_t ordered) noexcept nogil:
    return ordered & 0x7FFFFFFF if ordered >> 31 else ~ordered


cdef inline uint64_t double_of_ordered64(uint64_t ordered) noexcept nogil:
    return ordered & ~((<uint64_t>1) << 63) if ordered >> 63 else ~ordered


cdef inline bint day_number(int32_t arrow_day, int32_t* day) noexcept nogil:
    """Days since 1970 to days since 0001-01-01 (which is 1); False beyond int32."""
    day[0] = <int32_t>(<uint32_t>arrow_day + <uint32_t>EPOCH_DAY)
    return arrow_day <= INT32_MAX - EPOCH_DAY


cdef inline bint arrow_day(int32_t day, int32_t* out) noexcept nogil:
    out[0] = <int32_t>(<uint32_t>day - <uint32_t>EPOCH_DAY)
    return day >= INT32_MIN + EPOCH_DAY


cdef inline bint clock_of_time(int64_t microseconds, uint32_t* seconds, uint32_t* nanoseconds) noexcept nogil:
    """A time of day in seconds and nanoseconds; False outside [0, 24 h)."""
    seconds[0] = <uint32_t>(<uint64_t>microseconds // MICROSECONDS)
    nanoseconds[0] = <uint32_t>(<uint64_t>microseconds % MICROSECONDS) * 1000
    return 0 <= microseconds < <int64_t>SECONDS_PER_DAY * MICROSECONDS


cdef inline bint time_of_clock(uint32_t seconds, uint32_t nanoseconds, int64_t* microseconds) noexcept nogil:
    microseconds[0] = <int64_t>seconds * MICROSECONDS + nanoseconds // 1000
    return seconds < SECONDS_PER_DAY and nanoseconds < 1_000_000_000 and nanoseconds % 1000 == 0


cdef inline void split_timestamp(int64_t microseconds, int64_t* seconds, uint32_t* nanoseconds) noexcept nogil:
    seconds[0] = floor_divide(microseconds, MICROSECONDS)
    nanoseconds[0] = <uint32_t>(microseconds - seconds[0] * MICROSECONDS) * 1000


cdef inline bint join_timestamp(int64_t seconds, uint32_t nanoseconds, int64_t* microseconds) noexcept nogil:
    """False if that instant has no int64 of microseconds."""
    cdef int128_t joined = <int128_t>seconds * MICROSECONDS + nanoseconds // 1000
    microseconds[0] = <int64_t>joined
    return microseconds[0] == joined and nanoseconds < 1_000_000_000 and nanoseconds % 1000 == 0


cdef inline int128_t length_of_interval(const ArrowInterval* interval) noexcept nogil:
    """Microseconds by which intervals compare: 1 month = 30 days, 1 day = 24 hours; rounded down."""
    cdef int64_t days = <int64_t>interval.months * 30 + interval.days
    return (<int128_t>days * SECONDS_PER_DAY * MICROSECONDS
            + floor_divide(interval.nanoseconds, 1000))


cdef inline bint interval_of_length(int128_t length, ArrowInterval* out) noexcept nogil:
    """The justified interval of that length: fewer than 30 days, less than a day of clock, one sign.

    The excess over int32 months is added to the days, and from there to the clock; False if even that overflows.
    """
    cdef bint negative = length < 0
    cdef uint128_t day = <uint64_t>SECONDS_PER_DAY * MICROSECONDS
    cdef uint128_t rest = <uint128_t>(-length) if negative else <uint128_t>length
    cdef uint128_t most = <uint64_t>INT32_MAX + negative
    cdef uint128_t months = rest // (30 * day)
    cdef uint128_t days
    cdef int128_t nanoseconds
    if months > most:
        months = most
    rest -= months * (30 * day)
    days = rest // day
    if days > most:
        days = most
    rest -= days * day
    if rest > <uint64_t>INT64_MAX:
        return False
    nanoseconds = <int128_t>rest * (-1000 if negative else 1000)
    out.months = <int32_t>(-<int64_t>months if negative else <int64_t>months)
    out.days = <int32_t>(-<int64_t>days if negative else <int64_t>days)
    out.nanoseconds = <int64_t>nanoseconds
    return out.nanoseconds == nanoseconds
