"""Exact sums: 128-bit two's complement in 16 bytes of memory, as Arrow's decimal128 has them."""

from libc.stdint cimport int64_t

cdef extern from * nogil:
    """
    #ifndef HUMMOCK_INT128
    #define HUMMOCK_INT128
    #include <stdint.h>
    #include <string.h>
    typedef __int128 hummock_i128;
    static inline hummock_i128 hummock_i128_of(const void *p) { hummock_i128 x; memcpy(&x, p, 16); return x; }
    static inline hummock_i128 hummock_i128_power(int digits) {
        hummock_i128 power = 1;
        while (digits-- > 0) power *= 10;
        return power;
    }
    static inline int hummock_i128_add(void *sum, hummock_i128 value) {
        hummock_i128 out;
        if (__builtin_add_overflow(hummock_i128_of(sum), value, &out)) return -1;
        memcpy(sum, &out, 16);
        return 0;
    }
    static inline int hummock_add_int64(void *sum, int64_t value, int sign) {
        return hummock_i128_add(sum, (hummock_i128)value * sign);
    }
    static inline int hummock_add_int128(void *sum, const void *value, int sign) {
        hummock_i128 x = hummock_i128_of(value);
        return hummock_i128_add(sum, sign < 0 ? -x : x);
    }
    static inline void hummock_power_of_ten(int digits, void *out) {
        hummock_i128 power = hummock_i128_power(digits);
        memcpy(out, &power, 16);
    }
    static inline int hummock_lies_within(const void *value, const void *limit) {
        hummock_i128 x = hummock_i128_of(value), most = hummock_i128_of(limit);
        return x > -most && x < most;
    }
    static inline int hummock_fits_int64(const void *value) {
        hummock_i128 x = hummock_i128_of(value);
        return x == (int64_t)x;
    }
    static inline int64_t hummock_low_int64(const void *value) { return (int64_t)hummock_i128_of(value); }
    static inline int hummock_average(const void *sum, int64_t count, int more_digits, void *out) {
        hummock_i128 total = hummock_i128_of(sum), quotient = total / count, rest = total % count;
        int sign = total < 0 ? -1 : 1;
        while (more_digits > 0) {
            int digits = more_digits < 18 ? more_digits : 18;
            hummock_i128 power = hummock_i128_power(digits);
            if (__builtin_mul_overflow(quotient, power, &quotient)) return -1;
            quotient += rest * power / count;
            rest = rest * power % count;
            more_digits -= digits;
        }
        if (2 * (rest < 0 ? -rest : rest) >= count) quotient += sign;
        memcpy(out, &quotient, 16);
        return 0;
    }
    #endif
    """
    # these two return -1, and change nothing, where the sum does not fit 128 bits
    int add_int64 "hummock_add_int64"(void* sum, int64_t value, int sign) noexcept
    int add_int128 "hummock_add_int128"(void* sum, const void* value, int sign) noexcept
    void power_of_ten "hummock_power_of_ten"(int digits, void* out) noexcept            # digits at most 38
    bint lies_within "hummock_lies_within"(const void* value, const void* limit) noexcept   # |value| < limit
    bint fits_int64 "hummock_fits_int64"(const void* value) noexcept
    int64_t low_int64 "hummock_low_int64"(const void* value) noexcept
    int average "hummock_average"(const void* sum, int64_t count, int more_digits, void* out) noexcept
    # out = sum * 10**more_digits / count, rounded half away from zero; REQUIRES count > 0; -1: does not fit
