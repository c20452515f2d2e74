"""Exact sums: 128-bit two's complement in 16 bytes of memory, as in Arrow's decimal128, or 192 bits with a separate
high word. `sum` and `out` point to 16 bytes, `high` to the word above them.
"""

from libc.stdint cimport int64_t, uint64_t

cdef extern from * nogil:
    """
    #ifndef HUMMOCK_INT128
    #define HUMMOCK_INT128
    #include <stdint.h>
    #include <string.h>
    typedef __int128 hummock_i128;
    typedef unsigned __int128 hummock_u128;
    static inline hummock_i128 hummock_i128_of(const void *p) { hummock_i128 x; memcpy(&x, p, 16); return x; }
    static inline hummock_i128 hummock_i128_power(int digits) {
        hummock_i128 power = 1;
        while (digits-- > 0) power *= 10;
        return power;
    }
    static inline void hummock_add_int64(void *sum, int64_t value, int sign) {
        hummock_i128 out = hummock_i128_of(sum) + (hummock_i128)value * sign;
        memcpy(sum, &out, 16);
    }
    static inline void hummock_add_int128(void *sum, const void *value, int sign) {
        hummock_i128 x = hummock_i128_of(value), out = hummock_i128_of(sum) + (sign < 0 ? -x : x);
        memcpy(sum, &out, 16);
    }
    static inline void hummock_add_wide(void *sum, void *high, const void *value, int sign) {
        hummock_i128 x = hummock_i128_of(value);
        int64_t word;
        if (sign < 0) x = -x;
        hummock_u128 low = (hummock_u128)hummock_i128_of(sum), out = low + (hummock_u128)x;
        memcpy(&word, high, 8);
        word += (x < 0 ? -1 : 0) + (out < low);
        memcpy(high, &word, 8);
        memcpy(sum, &out, 16);
    }
    static inline void hummock_add_192(void *sum, void *high, const void *other, int64_t other_high, int sign) {
        hummock_u128 low = (hummock_u128)hummock_i128_of(sum), more = (hummock_u128)hummock_i128_of(other), out;
        uint64_t word;
        memcpy(&word, high, 8);
        if (sign < 0) {
            out = low - more;
            word -= (uint64_t)other_high + (low < more);
        } else {
            out = low + more;
            word += (uint64_t)other_high + (out < low);
        }
        memcpy(high, &word, 8);
        memcpy(sum, &out, 16);
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
    #define HUMMOCK_TEN_38 ((hummock_u128)0x4b3b4ca85a86c47a << 64 | 0x098a224000000000)
    static inline int64_t hummock_sign(const void *sum) { return hummock_i128_of(sum) < 0 ? -1 : 0; }
    #define HUMMOCK_REACH ((uint64_t)1 << 62)
    static inline uint64_t hummock_reach(const void *values, int64_t count) {
        hummock_u128 reach = (hummock_u128)count;
        for (int64_t i = 0; i < count; i++) {
            hummock_i128 x = hummock_i128_of((const char *)values + 16 * i);
            reach += (x < 0 ? -(hummock_u128)x : (hummock_u128)x) >> 64;
        }
        return reach < HUMMOCK_REACH ? (uint64_t)reach : HUMMOCK_REACH;
    }
    static inline int hummock_is_narrow(const void *sum, int64_t high) {
        return high == (hummock_i128_of(sum) < 0 ? -1 : 0);
    }
    static inline int hummock_scale_quotient(
        hummock_i128 quotient, hummock_i128 rest, int64_t count, int more_digits, int sign, void *out
    ) {
        while (more_digits > 0) {
            int digits = more_digits < 18 ? more_digits : 18;
            hummock_i128 power = hummock_i128_power(digits);
            if (__builtin_mul_overflow(quotient, power, &quotient)) return -1;
            if (__builtin_add_overflow(quotient, rest * power / count, &quotient)) return -1;
            rest = rest * power % count;
            more_digits -= digits;
        }
        if (2 * (rest < 0 ? -rest : rest) >= count && __builtin_add_overflow(quotient, sign, &quotient)) return -1;
        memcpy(out, &quotient, 16);
        return 0;
    }
    static inline int hummock_average(const void *sum, int64_t count, int more_digits, void *out) {
        hummock_i128 total = hummock_i128_of(sum);
        if (total == (int64_t)total && more_digits < 19) {      /* divisions of 64 bits are several times as fast */
            int64_t narrow = (int64_t)total, power = 1, rest;
            for (int digit = 0; digit < more_digits; digit++) power *= 10;
            if (!__builtin_mul_overflow(narrow % count, power, &rest)) {
                hummock_i128 quotient = (hummock_i128)(narrow / count) * power + rest / count;
                uint64_t left = (uint64_t)(rest < 0 ? -(rest % count) : rest % count);
                if (2 * left >= (uint64_t)count) quotient += total < 0 ? -1 : 1;
                memcpy(out, &quotient, 16);
                return 0;
            }
        }
        return hummock_scale_quotient(total / count, total % count, count, more_digits, total < 0 ? -1 : 1, out);
    }
    static inline int hummock_magnitude(const void *sum, int64_t high, uint64_t *limbs) {
        hummock_u128 low = (hummock_u128)hummock_i128_of(sum);
        int negative = high < 0;
        if (negative) {
            low = -low;
            high = (int64_t)(~(uint64_t)high + (low == 0));
        }
        limbs[0] = (uint64_t)low, limbs[1] = (uint64_t)(low >> 64), limbs[2] = (uint64_t)high;
        return negative;
    }
    static int hummock_wide_average(const void *sum, int64_t high, int64_t count, int more_digits, void *out) {
        uint64_t limbs[3];
        int sign = hummock_magnitude(sum, high, limbs) ? -1 : 1, i;
        hummock_u128 rest = 0;
        for (i = 2; i >= 0; i--) {
            hummock_u128 part = rest << 64 | limbs[i];
            limbs[i] = (uint64_t)(part / (uint64_t)count);
            rest = part % (uint64_t)count;
        }
        if (limbs[2] != 0 || limbs[1] >> 63 != 0) return -1;
        hummock_i128 quotient = (hummock_i128)((hummock_u128)limbs[1] << 64 | limbs[0]);
        return hummock_scale_quotient(quotient * sign, (hummock_i128)rest * sign, count, more_digits, sign, out);
    }
    static void hummock_split_wide(const void *sum, int64_t high, void *low, int64_t *above) {
        hummock_i128 limit = (hummock_i128)HUMMOCK_TEN_38, value = hummock_i128_of(sum);
        *above = 0;
        if (!hummock_is_narrow(sum, high) || value >= limit || value <= -limit) {
            uint64_t limbs[3], quotient = 0;
            int negative = hummock_magnitude(sum, high, limbs), bit;
            hummock_u128 rest = 0;
            for (bit = 191; bit >= 0; bit--) {
                rest = rest << 1 | (limbs[bit >> 6] >> (bit & 63) & 1);
                quotient = quotient << 1 | (rest >= (hummock_u128)limit);
                if (rest >= (hummock_u128)limit) rest -= (hummock_u128)limit;
            }
            value = negative ? -(hummock_i128)rest : (hummock_i128)rest;
            *above = negative ? -(int64_t)quotient : (int64_t)quotient;
        }
        memcpy(low, &value, 16);
    }
    static void hummock_join_wide(const void *low, int64_t above, void *sum, void *high) {
        hummock_u128 limit = HUMMOCK_TEN_38;
        uint64_t count = above < 0 ? -(uint64_t)above : (uint64_t)above;
        hummock_u128 bottom = (hummock_u128)(uint64_t)limit * count;
        hummock_u128 top = (limit >> 64) * count + (bottom >> 64);
        hummock_u128 product = top << 64 | (uint64_t)bottom;
        int64_t word = (int64_t)(top >> 64);
        if (above < 0) {
            product = -product;
            word = (int64_t)(~(uint64_t)word + (product == 0));
        }
        memcpy(sum, &product, 16);
        memcpy(high, &word, 8);
        hummock_add_wide(sum, high, low, 1);
    }
    #endif
    """
    void add_int64 "hummock_add_int64"(void* sum, int64_t value, int sign) noexcept     # modulo 2**128
    void add_int128 "hummock_add_int128"(void* sum, const void* value, int sign) noexcept
    void add_wide "hummock_add_wide"(void* sum, void* high, const void* value, int sign) noexcept
    # adds 128 bits to 192, modulo 2**192
    void add_192 "hummock_add_192"(void* sum, void* high, const void* other, int64_t other_high, int sign) noexcept
    # adds or subtracts 192 bits, modulo 2**192
    void power_of_ten "hummock_power_of_ten"(int digits, void* out) noexcept            # digits at most 38
    bint lies_within "hummock_lies_within"(const void* value, const void* limit) noexcept   # |value| < limit
    bint fits_int64 "hummock_fits_int64"(const void* value) noexcept
    int64_t low_int64 "hummock_low_int64"(const void* value) noexcept
    int64_t sign_of "hummock_sign"(const void* sum) noexcept                            # the word above 128 bits
    uint64_t REACH "HUMMOCK_REACH"
    uint64_t reach_of "hummock_reach"(const void* values, int64_t count) noexcept
    # at most REACH; if less: no subset sum of the values reaches reach * 2**64 in magnitude
    bint is_narrow "hummock_is_narrow"(const void* sum, int64_t high) noexcept
    # 192 bits have the value of the low 128
    int average "hummock_average"(const void* sum, int64_t count, int more_digits, void* out) noexcept
    # out = sum * 10**more_digits / count, rounded half away from zero; REQUIRES count > 0; -1: does not fit 128 bits
    int wide_average "hummock_wide_average"(const void* sum, int64_t high, int64_t count, int more_digits,
                                            void* out) noexcept
    void split_wide "hummock_split_wide"(const void* sum, int64_t high, void* low, int64_t* above) noexcept
    # sum = above * 10**38 + low, |low| < 10**38, both of one sign; REQUIRES |sum| < 2**63 * 10**38
    void join_wide "hummock_join_wide"(const void* low, int64_t above, void* sum, void* high) noexcept
    # the inverse: the sum of any such parts
