"""crc32c of stored bytes, and the key hash for filters.

crc32c is CRC-32C (Castagnoli, as in iSCSI): with the instruction of SSE4.2 or of ARMv8 three interleaved streams of it,
combined by tables that advance a checksum over zeros; with AVX-512 and VPCLMULQDQ by folding 256 bytes at a time into
the next ones, which is twice as fast; elsewhere by eight table lookups per word. All give the same result.
`hash64` is part of the file format and is specified in sstable/FORMAT.md.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef extern from * nogil:
    """
    #define CRC_LANE 2048               /* bytes of one of the three streams */

    static uint32_t crc_words[8][256];          /* slicing by eight */
    static uint32_t crc_lane[4][256];           /* advances a checksum over CRC_LANE zero bytes */

    static uint32_t crc_over_zeros(uint32_t crc, int64_t bytes) {
        for (; bytes > 0; bytes--) crc = crc_words[0][crc & 255] ^ (crc >> 8);
        return crc;
    }

    static uint32_t crc_portable(uint32_t crc, const uint8_t *p, int64_t size) {
        for (; size >= 8; size -= 8, p += 8) {
            uint64_t w = hummock_word(p) ^ crc;
            crc = crc_words[7][w & 255] ^ crc_words[6][w >> 8 & 255] ^ crc_words[5][w >> 16 & 255]
                ^ crc_words[4][w >> 24 & 255] ^ crc_words[3][w >> 32 & 255] ^ crc_words[2][w >> 40 & 255]
                ^ crc_words[1][w >> 48 & 255] ^ crc_words[0][w >> 56];
        }
        for (; size > 0; size--) crc = crc_words[0][(crc ^ *p++) & 255] ^ (crc >> 8);
        return crc;
    }

    static uint32_t (*crc_run)(uint32_t, const uint8_t *, int64_t) = crc_portable;

    #if defined(HUMMOCK_PORTABLE)
    #elif defined(__x86_64__)
    #ifdef __clang__
    #define CRC_INSTRUCTION __attribute__((target("sse4.2,crc32")))
    #else
    #define CRC_INSTRUCTION __attribute__((target("sse4.2")))
    #endif
    #define crc_of_word(crc, word) __builtin_ia32_crc32di(crc, word)
    #define crc_of_byte(crc, byte) __builtin_ia32_crc32qi((uint32_t)(crc), byte)
    #define crc_has_instruction() (__builtin_cpu_init(), __builtin_cpu_supports("sse4.2"))
    #elif defined(__aarch64__) && (defined(__linux__) || defined(__ARM_FEATURE_CRC32))
    #define CRC_INSTRUCTION
    /* Assembler: compilers differ in how they name the instructions where the target need not have them. */
    static inline uint64_t crc_of_word(uint64_t crc, uint64_t word) {
        __asm__(".arch_extension crc\\n\\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
        return crc;
    }
    static inline uint64_t crc_of_byte(uint64_t crc, uint8_t byte) {
        __asm__(".arch_extension crc\\n\\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"((uint32_t)byte));
        return crc;
    }
    #if defined(__ARM_FEATURE_CRC32)
    #define crc_has_instruction() 1
    #else
    #include <sys/auxv.h>
    #define crc_has_instruction() (getauxval(AT_HWCAP) >> 7 & 1)        /* HWCAP_CRC32 */
    #endif
    #endif

    #if defined(CRC_INSTRUCTION)
    static inline uint32_t crc_advance(uint32_t crc) {
        return crc_lane[0][crc & 255] ^ crc_lane[1][crc >> 8 & 255] ^ crc_lane[2][crc >> 16 & 255]
            ^ crc_lane[3][crc >> 24];
    }

    CRC_INSTRUCTION
    static uint32_t crc_streams(uint32_t crc, const uint8_t *p, int64_t size) {
        uint64_t a = crc;
        while (size >= 3 * CRC_LANE) {
            const uint8_t *end = p + CRC_LANE;
            uint64_t b = 0, c = 0;
            for (; p < end; p += 8) {
                a = crc_of_word(a, hummock_word(p));
                b = crc_of_word(b, hummock_word(p + CRC_LANE));
                c = crc_of_word(c, hummock_word(p + 2 * CRC_LANE));
            }
            a = crc_advance((uint32_t)a) ^ b;
            a = crc_advance((uint32_t)a) ^ c;
            p += 2 * CRC_LANE;
            size -= 3 * CRC_LANE;
        }
        for (; size >= 8; size -= 8, p += 8) a = crc_of_word(a, hummock_word(p));
        for (; size > 0; size--) a = crc_of_byte(a, *p++);
        return (uint32_t)a;
    }
    #endif

    #if defined(__x86_64__) && defined(CRC_INSTRUCTION) && __GNUC__ >= 9
    #define CRC_FOLDS
    #include <immintrin.h>

    /* What takes the two words of 16 bytes to where they count so many bits further: x^(bits + 63), x^(bits - 1). */
    static const int crc_fold_bits[5] = {2048, 512, 384, 256, 128};
    static uint64_t crc_folds[5][2];

    static uint64_t crc_power(int exponent) {
        uint32_t power = 0x80000000u;
        for (; exponent > 0; exponent--) power = power & 1 ? 0x82F63B78u ^ (power >> 1) : power >> 1;
        return (uint64_t)power << 32;
    }

    #define CRC_WIDE __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.2")))

    CRC_WIDE static inline __m512i crc_fold_wide(__m512i from, __m512i by, __m512i to) {
        return _mm512_ternarylogic_epi64(
            _mm512_clmulepi64_epi128(from, by, 0x00), _mm512_clmulepi64_epi128(from, by, 0x11), to, 0x96);
    }

    CRC_WIDE static inline __m128i crc_fold(__m128i from, int by, __m128i to) {
        __m128i fold = _mm_loadu_si128((const __m128i *)crc_folds[by]);
        return _mm_xor_si128(to, _mm_xor_si128(
            _mm_clmulepi64_si128(from, fold, 0x00), _mm_clmulepi64_si128(from, fold, 0x11)));
    }

    CRC_WIDE static uint32_t crc_avx512(uint32_t crc, const uint8_t *p, int64_t size) {
        __m512i a, b, c, d, by;
        __m128i rest;
        if (size < 512) return crc_streams(crc, p, size);
        by = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)crc_folds[0]));
        a = _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
        b = _mm512_loadu_si512(p + 64);
        c = _mm512_loadu_si512(p + 128);
        d = _mm512_loadu_si512(p + 192);
        for (p += 256, size -= 256; size >= 256; p += 256, size -= 256) {
            a = crc_fold_wide(a, by, _mm512_loadu_si512(p));
            b = crc_fold_wide(b, by, _mm512_loadu_si512(p + 64));
            c = crc_fold_wide(c, by, _mm512_loadu_si512(p + 128));
            d = crc_fold_wide(d, by, _mm512_loadu_si512(p + 192));
        }
        by = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)crc_folds[1]));
        a = crc_fold_wide(crc_fold_wide(crc_fold_wide(a, by, b), by, c), by, d);
        rest = crc_fold(_mm512_extracti32x4_epi32(a, 0), 2, _mm512_extracti32x4_epi32(a, 3));
        rest = crc_fold(_mm512_extracti32x4_epi32(a, 1), 3, rest);
        rest = crc_fold(_mm512_extracti32x4_epi32(a, 2), 4, rest);
        crc = (uint32_t)__builtin_ia32_crc32di(
            __builtin_ia32_crc32di(0, (uint64_t)_mm_cvtsi128_si64(rest)), (uint64_t)_mm_extract_epi64(rest, 1));
        return crc_streams(crc, p, size);
    }
    #endif

    static uint32_t (*crc_narrow)(uint32_t, const uint8_t *, int64_t) = crc_portable;     /* without the folds */

    static void crc_prepare(void) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t crc = i;
            for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? 0x82F63B78u ^ (crc >> 1) : crc >> 1;
            crc_words[0][i] = crc;
        }
        for (int word = 1; word < 8; word++)
            for (int i = 0; i < 256; i++)
                crc_words[word][i] = crc_words[0][crc_words[word - 1][i] & 255] ^ (crc_words[word - 1][i] >> 8);
        /* advancing is linear: the images of the 32 single bits give those of every byte */
        for (int byte = 0; byte < 4; byte++) {
            crc_lane[byte][0] = 0;
            for (int bit = 0; bit < 8; bit++) {
                uint32_t image = crc_over_zeros(1u << (8 * byte + bit), CRC_LANE);
                for (int low = 0; low < 1 << bit; low++)
                    crc_lane[byte][low + (1 << bit)] = crc_lane[byte][low] ^ image;
            }
        }
    #if defined(CRC_INSTRUCTION)
        if (crc_has_instruction()) crc_run = crc_narrow = crc_streams;
    #endif
    #if defined(CRC_FOLDS)
        for (int i = 0; i < 5; i++) {
            crc_folds[i][0] = crc_power(crc_fold_bits[i] + 63);
            crc_folds[i][1] = crc_power(crc_fold_bits[i] - 1);
        }
        if (crc_run == crc_streams && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq"))
            crc_run = crc_avx512;
    #endif
    }
    """
    void crc_prepare() noexcept
    uint32_t crc_portable(uint32_t crc, const uint8_t* data, Py_ssize_t size) noexcept
    uint32_t crc_narrow(uint32_t crc, const uint8_t* data, Py_ssize_t size) noexcept
    uint32_t crc_run(uint32_t crc, const uint8_t* data, Py_ssize_t size) noexcept

cdef enum:
    LONG_BYTES = 1 << 18        # checksums of so many take longer than another thread may wait for the GIL

crc_prepare()


cdef uint32_t crc32c(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    return crc_run(0xFFFFFFFF, data, size) ^ <uint32_t>0xFFFFFFFF


def crc32c_of(const uint8_t[::1] data, uint32_t before=0) -> int:
    """CRC-32C of any buffer, or of bytes whose checksum is `before` followed by it."""
    cdef uint32_t crc = ~before
    if data.shape[0] < LONG_BYTES:
        return ~(crc_run(crc, &data[0], data.shape[0]) if data.shape[0] > 0 else crc)
    with nogil:
        crc = crc_run(crc, &data[0], data.shape[0])
    return ~crc


def crc32c_narrow_of(const uint8_t[::1] data) -> int:
    """The same by the path for machines without AVX-512."""
    if data.shape[0] == 0:
        return 0
    return crc_narrow(0xFFFFFFFF, &data[0], data.shape[0]) ^ <uint32_t>0xFFFFFFFF


def crc32c_portable_of(const uint8_t[::1] data) -> int:
    """The same by the path for machines without the crc32 instruction."""
    if data.shape[0] == 0:
        return 0
    return crc_portable(0xFFFFFFFF, &data[0], data.shape[0]) ^ <uint32_t>0xFFFFFFFF


def hash64_of(const uint8_t[::1] data) -> int:
    """The 64-bit key hash of any buffer."""
    cdef uint8_t nothing = 0
    return hash64(&data[0] if data.shape[0] > 0 else &nothing, data.shape[0])
