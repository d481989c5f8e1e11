// What the C++ path computes, without torch: one table of functions for each instruction set, filled from `body.h`.
#pragma once

#include <cstdint>
#include <cstring>

namespace mx {

constexpr int64_t BLOCK = 32;  // elements that share a scale

enum class Kind { float32, bfloat16, float16 };

// How `multiply` goes through its operands: `rows` of the weight side by side (1, 2 or 4) against `tokens` rows of x
// (1, 2, 4 or 8) in registers, as many as `most_products` allows; `scaled_sums`: tiles of up to so many tokens (0 … 2)
// put scales on the sums, others on the elements; `prefetch`: how many times `rows` ahead codes are asked for.
struct Tile {
  int64_t rows, tokens, scaled_sums, prefetch;
};

struct Kernels {
  const char* name;
  int lanes;  // float32 in a vector; `arrange` pads rows of x to 8 × lanes
  int most_products;  // sums that the registers hold
  bool (*runs_here)();

  // `blocks` blocks of 32 elements → 16 bytes of codes and one scale each. `carry_from` chooses the scale mode: the
  // fraction bits of a float32 from which it takes the next exponent (scales.py).
  void (*quantize)(const void* x, Kind kind, int64_t blocks, uint32_t carry_from, uint8_t* codes, uint8_t* scales);
  // The reverse, to float32 or bfloat16. `streams`: past the caches, for results that they do not hold; written the
  // usual way, each line of it would be read first.
  void (*dequantize)(const uint8_t* codes, const uint8_t* scales, int64_t blocks, Kind kind, void* out, bool streams);
  // One row of x, in the order in which `multiply` meets the codes.
  void (*arrange)(const float* x, int64_t k, float* arranged);
  // y[m, n] = x[m, :] · weight[n, :] for all `m` rows of x and the rows first … last − 1 of the weight; y has n columns.
  void (*multiply)(const float* arranged, int64_t m, int64_t k, const uint8_t* codes, const uint8_t* scales,
                   int64_t first, int64_t last, int64_t n, float* y, Tile tile);
};

extern const Kernels plain;
#if defined(__x86_64__)
extern const Kernels avx2;
extern const Kernels avx512;
#endif

}  // namespace mx
