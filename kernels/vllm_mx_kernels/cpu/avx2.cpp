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

template <bool streams>
inline __attribute__((always_inline)) void put(void* to, Floats value) {
  if (streams) return _mm256_stream_ps(static_cast<float*>(to), value);
  _mm256_storeu_ps(static_cast<float*>(to), value);
}

inline void settle() { _mm_sfence(); }

// The nibbles of a block: elements 0 … 7 and 16 … 23, then 8 … 15 and 24 … 31, which is what interleaving sorts.
inline __attribute__((always_inline)) __m256i halves_of_block(const uint8_t* codes) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)), low = _mm_set1_epi8(0x0F);
  const __m128i even = _mm_and_si128(bytes, low), odd = _mm_and_si128(_mm_srli_epi16(bytes, 4), low);
  const __m256i nibbles = _mm256_set_m128i(_mm_unpackhi_epi8(even, odd), _mm_unpacklo_epi8(even, odd));
  return _mm256_permute4x64_epi64(nibbles, 0b11011000);
}

// The sixteen values of a block, scaled, are a table of low and one of high bytes that all its nibbles look up at once.
template <bool streams>
inline __attribute__((always_inline)) void put_bfloat16(const uint8_t* codes, Floats scale, uint16_t* out) {
  const Bits sizes{0, 1, 2, 3, 4, 5, 6, 7};
  const Bits above = (Bits)(decode(sizes) * scale) >> 16, below = (Bits)(decode(sizes + 8) * scale);
  // Words hold a value's two bytes and those of its negative: all low bytes come together, and all high ones.
  const __m256i words = _mm256_blend_epi16((__m256i)above, (__m256i)below, 0b10101010);
  const __m256i order =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  const __m256i sorted = _mm256_shuffle_epi8(words, order);
  const __m256i lows = _mm256_permutevar8x32_epi32(sorted, _mm256_setr_epi32(0, 4, 2, 6, 0, 4, 2, 6));
  const __m256i highs = _mm256_permutevar8x32_epi32(sorted, _mm256_setr_epi32(1, 5, 3, 7, 1, 5, 3, 7));
  const __m256i nibbles = halves_of_block(codes);
  const __m256i low = _mm256_shuffle_epi8(lows, nibbles), high = _mm256_shuffle_epi8(highs, nibbles);
  put<streams>(out, (Floats)_mm256_unpacklo_epi8(low, high));
  put<streams>(out + 2 * lanes, (Floats)_mm256_unpackhi_epi8(low, high));
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
