// Four lanes in the compiler's own vectors: SSE2 on x86-64, NEON on ARM, whatever there is elsewhere.
#include "kernels.h"

namespace mx {
namespace {

constexpr int lanes = 4;
constexpr int most_products = 8;
using Floats = float __attribute__((vector_size(16)));
using Bits = uint32_t __attribute__((vector_size(16)));

// Fields moved to float32's, except that 0 and 1/2 are E2M1's subnormals.
inline __attribute__((always_inline)) Floats decode(Bits nibbles) {
  const Bits size = nibbles & 7;
  const Bits subnormal = (Bits)(size < 2);
  const Bits normal = (size << 22) + 0x3F000000;
  const Bits value = (normal & ~subnormal) | (0x3F000000 & (0 - size) & subnormal);
  return (Floats)(value | (nibbles & 8) << 28);
}

inline __attribute__((always_inline)) Bits spread(const uint8_t* codes) {
  const uint32_t both = codes[0] | uint32_t{codes[1]} << 8;
  return Bits{both, both >> 4, both >> 8, both >> 12};
}

template <bool>
inline __attribute__((always_inline)) void put(float* to, Floats value) {
  memcpy(to, &value, sizeof value);
}

inline void settle() {}

template <bool>
inline __attribute__((always_inline)) void put_bfloat16(const uint8_t* codes, Floats scale, uint16_t* out) {
  using Halves = uint16_t __attribute__((vector_size(lanes * 2)));
  for (int i = 0; i < BLOCK; i += lanes) {
    const Halves high = __builtin_convertvector((Bits)(decode(spread(codes + i / 2)) * scale) >> 16, Halves);
    memcpy(out + i, &high, sizeof high);
  }
}

// Word i holds the elements 8i … 8i + 7 of a group, a nibble each.
inline __attribute__((always_inline)) Floats eighth(Bits words, int part) { return decode(words >> 4 * part); }

inline int64_t place(int64_t element) { return element % 8 * lanes + element / 8; }

#include "body.h"

bool runs_here() { return true; }

}  // namespace

#if defined(__aarch64__)
const Kernels plain{"neon", lanes, most_products, runs_here, quantize, dequantize, arrange, multiply};
#else
const Kernels plain{"plain", lanes, most_products, runs_here, quantize, dequantize, arrange, multiply};
#endif

}  // namespace mx
