// Sixteen lanes: the AVX-512 of servers since 2017 (F, BW, DQ, VL).
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels.h"
#include "target.h"

namespace mx {
namespace {

bool runs_here() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

MX_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,fma")

constexpr int lanes = 16;
constexpr int most_products = 16;
using Floats = float __attribute__((vector_size(64)));
using Bits = uint32_t __attribute__((vector_size(64)));

// The permutation looks at four bits of each index: a whole code.
inline __attribute__((always_inline)) Floats decode(Bits nibbles) {
  const __m512 values = _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6);
  return (Floats)_mm512_permutexvar_ps((__m512i)nibbles, values);
}

inline __attribute__((always_inline)) Bits spread(const uint8_t* codes) {
  uint32_t words[2];
  memcpy(words, codes, sizeof words);
  const Bits both = (Bits)_mm512_inserti32x8(_mm512_set1_epi32(words[0]), _mm256_set1_epi32(words[1]), 1);
  return both >> Bits{0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28};
}

template <bool streams>
inline __attribute__((always_inline)) void put(void* to, Floats value) {
  if (streams) return _mm512_stream_ps(static_cast<float*>(to), value);
  _mm512_storeu_ps(to, value);
}

inline void settle() { _mm_sfence(); }

// The sixteen values of a block, scaled, are a table that all its nibbles look up at once.
template <bool streams>
inline __attribute__((always_inline)) void put_bfloat16(const uint8_t* codes, Floats scale, uint16_t* out) {
  const Bits all{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const __m256i table = _mm512_cvtepi32_epi16((__m512i)((Bits)(decode(all) * scale) >> 16));
  const Bits pairs = (Bits)_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  const Bits nibbles = (pairs | pairs << 12) & 0x000F000F;
  put<streams>(out, (Floats)_mm512_permutexvar_epi16((__m512i)nibbles, _mm512_castsi256_si512(table)));
}

// Word i holds the elements 8i … 8i + 7 of a group, a nibble each.
inline __attribute__((always_inline)) Floats eighth(Bits words, int part) { return decode(words >> 4 * part); }

inline int64_t place(int64_t element) { return element % 8 * lanes + element / 8; }

#include "body.h"

MX_TARGET_END

}  // namespace

const Kernels avx512{"avx512", lanes, most_products, runs_here, quantize, dequantize, arrange, multiply};

}  // namespace mx
#endif
