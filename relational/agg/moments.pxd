"""Arithmetic of variances: exact for whole numbers, in pairs of doubles for floating ones.

The sum of squared deviations from the mean is (n Σx² - (Σx)²) / n. Both products have up to 252 bits; a difference of
rounded ones would have no correct digit where values are large and close to one another.
"""

from libc.stdint cimport int64_t, uint64_t

cdef extern from * nogil:
    """
    #ifndef HUMMOCK_MOMENTS
    #define HUMMOCK_MOMENTS
    #include <math.h>
    #include <stdint.h>
    #include <string.h>
    static inline void hummock_square(int64_t value, void *out) {
        __int128 square = (__int128)value * value;
        memcpy(out, &square, 16);
    }
    static double hummock_exact_spread(const void *sum, const uint64_t *squares, int64_t count) {
        __int128 total;
        unsigned __int128 magnitude, part = 0;
        uint64_t left[4], right[4] = {0, 0, 0, 0};
        double spread = 0.0;
        int limb, other;
        for (limb = 0; limb < 4; limb++) {
            part += limb < 3 ? (unsigned __int128)squares[limb] * (uint64_t)count : 0;
            left[limb] = (uint64_t)part;
            part >>= 64;
        }
        memcpy(&total, sum, 16);
        magnitude = total < 0 ? -(unsigned __int128)total : (unsigned __int128)total;
        for (limb = 0; limb < 2; limb++) {
            uint64_t factor = (uint64_t)(magnitude >> 64 * limb);
            part = 0;
            for (other = 0; other < 2; other++) {
                part += (unsigned __int128)factor * (uint64_t)(magnitude >> 64 * other) + right[limb + other];
                right[limb + other] = (uint64_t)part;
                part >>= 64;
            }
            right[limb + 2] += (uint64_t)part;
        }
        part = 0;                                       /* the borrow */
        for (limb = 0; limb < 4; limb++) {
            unsigned __int128 taken = (unsigned __int128)right[limb] + part;
            part = left[limb] < taken;
            left[limb] -= (uint64_t)taken;
        }
        for (limb = 3; limb >= 0; limb--) spread = spread * 0x1p64 + (double)left[limb];
        return spread / (double)count;
    }
    static inline void hummock_add_double(double *high, double *low, double value) {
        double total = *high + value, part = total - *high;
        *low += (*high - (total - part)) + (value - part);
        *high = total;
    }
    static inline void hummock_add_square(double *high, double *low, double value, double sign) {
        double square = value * value;
        hummock_add_double(high, low, sign * square);
        *low += sign * fma(value, value, -square);
    }
    static inline void hummock_add_product(double *sum, double one, double other, double sign) {
        double product = one * other;
        hummock_add_double(sum, sum + 1, sign * product);
        sum[1] += sign * fma(one, other, -product);
    }
    static double hummock_co_spread(const double *one, const double *other, const double *products, int64_t count) {
        double n = (double)count;
        double x = one[0] + one[1], x_rest = one[1] - (x - one[0]);
        double y = other[0] + other[1], y_rest = other[1] - (y - other[0]);
        double sum = products[0] + products[1], sum_rest = products[1] - (sum - products[0]);
        double product = x * y, product_rest = fma(x, y, -product) + (x * y_rest + x_rest * y);
        double quotient = product / n, quotient_rest = (fma(-quotient, n, product) + product_rest) / n;
        return (sum - quotient) + (sum_rest - quotient_rest);
    }
    static double hummock_float_spread(
        double high, double low, double squares_high, double squares_low, int64_t count
    ) {
        double n = (double)count, sum = high + low, rest = low - (sum - high);
        double squares = squares_high + squares_low, squares_rest = squares_low - (squares - squares_high);
        double product = sum * sum, product_rest = fma(sum, sum, -product) + 2.0 * sum * rest;
        double quotient = product / n, quotient_rest = (fma(-quotient, n, product) + product_rest) / n;
        double spread = (squares - quotient) + (squares_rest - quotient_rest);
        return spread > 0.0 ? spread : spread == spread ? 0.0 : NAN;
    }
    #endif
    """
    void square_of "hummock_square"(int64_t value, void* out) noexcept          # 128 bits
    double exact_spread "hummock_exact_spread"(const void* sum, const uint64_t* squares, int64_t count) noexcept
    # the sum of squared deviations of `count` values with this sum (128 bits) and sum of squares (192); count > 0
    void add_double "hummock_add_double"(double* high, double* low, double value) noexcept
    void add_square "hummock_add_square"(double* high, double* low, double value, double sign) noexcept
    double float_spread "hummock_float_spread"(double high, double low, double squares_high, double squares_low,
                                               int64_t count) noexcept
    void add_product "hummock_add_product"(double* sum, double one, double other, double sign) noexcept
    # adds the exact product to a pair of doubles
    double co_spread "hummock_co_spread"(const double* one, const double* other, const double* products,
                                         int64_t count) noexcept
    # the sum of products of deviations from the means, of the sums of x, y and xy as pairs of doubles; count > 0
