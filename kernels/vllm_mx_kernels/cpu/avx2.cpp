// Eight lanes: AVX2 and FMA.
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels.h"
#include "target.h"

namespace mx {
namespace {

bool runs_here() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

MX_TARGET_BEGIN("avx2,fma")

constexpr int lanes = 8;
constexpr int most_products = 8;
using Floats = float __attribute__((vector_size(32)));
using Bits = uint32_t __attribute__((vector_size(32)));

// The permutation looks at three bits of each index: the size. The sign follows.
inline __attribute__((always_inline)) Floats decode(Bits nibbles) {
  const __m256 sizes = _mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6);
  const Bits size = (Bits)_mm256_permutevar8x32_ps(sizes, (__m256i)nibbles);
  return (Floats)(size ^ (nibbles << 28 & 0x80000000));
}

inline __attribute__((always_inline)) Bits spread(const uint8_t* codes) {
  uint32_t word;
  memcpy(&word, codes, sizeof word);
  return (Bits{} + word) >> Bits{0, 4, 8, 12, 16, 20, 24, 28};
}

// A byte look-up turns 32 nibbles into the high, another into the low bytes of bfloat16; interleaved, each 32-bit word
// holds two. Half as many instructions as eight times `decode`.
inline __attribute__((always_inline)) Floats eighth(Bits words, int part) {
  const __m256i highs = _mm256_broadcastsi128_si256(_mm_setr_epi8(0x00, 0x3F, 0x3F, 0x3F, 0x40, 0x40, 0x40, 0x40,  //
                                                                  -0x80, -0x41, -0x41, -0x41, -0x40, -0x40, -0x40, -0x40));
  const __m256i lows = _mm256_set1_epi64x(0xC0804000C0800000);
  const __m256i nibbles = (__m256i)((part < 4 ? words : words >> 4) & 0x0F0F0F0F);
  const __m256i high = _mm256_shuffle_epi8(highs, nibbles), low = _mm256_shuffle_epi8(lows, nibbles);
  const Bits pairs = (Bits)(part & 2 ? _mm256_unpackhi_epi8(low, high) : _mm256_unpacklo_epi8(low, high));
  return (Floats)(part & 1 ? pairs & 0xFFFF0000 : pairs << 16);
}

// Bits of an element's index in its group, from the highest: block, byte ≥ 8 of the block, two for the word, which of a
// pair, nibble.
inline int64_t place(int64_t element) {
  const int64_t block = element / 32, half = element / 16 % 2, word = element / 4 % 4, second = element / 2 % 2;
  const int64_t part = element % 2 * 4 + half * 2 + second;
  return part * lanes + block * 4 + word;
}

#include "body.h"

MX_TARGET_END

}  // namespace

const Kernels avx2{"avx2", lanes, most_products, runs_here, quantize, dequantize, arrange, multiply};

}  // namespace mx
#endif
