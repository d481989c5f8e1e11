// The kernels, written once in terms of `lanes`, `Floats`, `Bits` and functions such as `decode`, `put` and `eighth`,
// which the including file defines for its instruction set. Everything lies in its unnamed namespace: code compiled for
// AVX-512 must never be the copy that the linker keeps for a machine without it. For the same reason nothing of the
// standard library is used.

#define MX_INLINE inline __attribute__((always_inline))
// Loops over vectors must vanish, or the vectors would live in memory.
#define MX_UNROLL _Pragma("GCC unroll 16")

// Vectors and elements ------------------------------------------------------------------------------------------------

MX_INLINE Floats load(const float* from) {
  Floats value;
  memcpy(&value, from, sizeof value);
  return value;
}

MX_INLINE Bits load_words(const uint8_t* from) {
  Bits value;
  memcpy(&value, from, sizeof value);
  return value;
}

MX_INLINE void store(float* to, Floats value) { memcpy(to, &value, sizeof value); }

MX_INLINE float sum(Floats value) {
  float part[lanes];
  store(part, value);
  for (int half = lanes / 2; half; half /= 2)
    for (int i = 0; i < half; ++i) part[i] += part[i + half];
  return part[0];
}

// The float32 bits of 2^(code − 127). 2^−127 is subnormal and 0xFF is NaN: both have the top fraction bit set.
MX_INLINE Bits scale_bits(Bits code) {
  const Bits special = (Bits)(((code + 1) & 0xFE) == 0);
  return (code << 23) | (special & 0x00400000);
}

// Streams of blocks ask for what comes 2 KiB later. Hardware stops at the page, and where much is computed for each line
// it falls behind before: quantizing took three times as long, unpacking a tenth longer.
template <int bytes>
MX_INLINE void ask_ahead(const void* block) {
  MX_UNROLL
  for (int line = 0; line < bytes; line += 64) __builtin_prefetch(static_cast<const char*>(block) + 2048 + line);
}

// Quantize ------------------------------------------------------------------------------------------------------------

MX_INLINE uint32_t float_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

MX_INLINE float from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

MX_INLINE uint32_t widen(uint32_t float32) { return float32; }

struct Bfloat16 {
  uint16_t bits;
};

MX_INLINE uint32_t widen(Bfloat16 x) { return uint32_t{x.bits} << 16; }

struct Float16 {
  uint16_t bits;
};

// Moved to float32's fields, the exponent is 112 too small; multiplying repairs that for subnormals, too.
MX_INLINE uint32_t widen(Float16 x) {
  const uint32_t size = x.bits & 0x7FFF;
  const uint32_t finite = float_bits(from_bits(size << 13) * 0x1p112f);
  const uint32_t special = size >= 0x7C00 ? 0x7F800000 : 0;
  return finite | special | (uint32_t{x.bits} & 0x8000) << 16;
}

// The E2M1 code of a float32. Its values are multiples of a step, 1/2 below 2, 1 below 4, 2 above; adding 2^23 steps
// rounds to such a multiple, ties to even. Two codes lie below each doubling of the step.
MX_INLINE uint32_t to_e2m1(float value) {
  const uint32_t sign = float_bits(value) >> 31;
  uint32_t size = float_bits(value) & 0x7FFFFFFF;
  size = size > 0x40C00000 ? 0x40C00000 : size;  // 6
  const uint32_t octave = (size < 0x3F800000 ? 0x3F800000 : size) & 0x7F800000;
  const uint32_t steps = octave + (22u << 23);
  const uint32_t rounded = float_bits(from_bits(size) + from_bits(steps)) - steps;
  return rounded + ((octave - 0x3F800000) >> 22) + (sign << 3);
}

MX_INLINE uint8_t shared_scale(uint32_t amax, uint32_t carry_from) {
  if (amax >= 0x7F800000) return 0xFF;
  const uint32_t exponent = (amax + (0x00800000 - carry_from)) >> 23;
  return exponent < 2 || amax == 0 ? 0 : exponent - 2;
}

template <class Input>
MX_INLINE uint8_t quantize_block(const Input* x, uint32_t carry_from, uint8_t* codes) {
  uint32_t bits[BLOCK], code[BLOCK], amax = 0;
  for (int i = 0; i < BLOCK; ++i) bits[i] = widen(x[i]);
  for (int i = 0; i < BLOCK; ++i) amax = (bits[i] & 0x7FFFFFFF) > amax ? bits[i] & 0x7FFFFFFF : amax;
  const uint8_t scale = shared_scale(amax, carry_from);
  if (scale == 0xFF) {
    memset(codes, 0, BLOCK / 2);
    return scale;
  }
  const float inverse = from_bits((254u - scale) << 23);
  for (int i = 0; i < BLOCK; ++i) code[i] = to_e2m1(from_bits(bits[i]) * inverse);
  for (int i = 0; i < BLOCK / 2; ++i) codes[i] = code[2 * i] | code[2 * i + 1] << 4;
  return scale;
}

template <class Input>
void quantize_all(const void* x, int64_t blocks, uint32_t carry_from, uint8_t* codes, uint8_t* scales) {
  const Input* from = static_cast<const Input*>(x);
  for (int64_t b = 0; b < blocks; ++b) {
    ask_ahead<BLOCK * sizeof(Input)>(from + b * BLOCK);
    scales[b] = quantize_block(from + b * BLOCK, carry_from, codes + b * BLOCK / 2);
  }
}

void quantize(const void* x, Kind kind, int64_t blocks, uint32_t carry_from, uint8_t* codes, uint8_t* scales) {
  if (kind == Kind::float32) return quantize_all<uint32_t>(x, blocks, carry_from, codes, scales);
  if (kind == Kind::bfloat16) return quantize_all<Bfloat16>(x, blocks, carry_from, codes, scales);
  quantize_all<Float16>(x, blocks, carry_from, codes, scales);
}

// Dequantize ----------------------------------------------------------------------------------------------------------

// E2M1 × 2^s has at most two significant bits, so that cutting a float32 to bfloat16 loses nothing.

template <bool streams>
MX_INLINE void put_block(const uint8_t* codes, Floats scale, uint16_t* out) {
  put_bfloat16<streams>(codes, scale, out);
}

template <bool streams>
MX_INLINE void put_block(const uint8_t* codes, Floats scale, float* out) {
  MX_UNROLL
  for (int i = 0; i < BLOCK; i += lanes) put<streams>(out + i, decode(spread(codes + i / 2)) * scale);
}

template <bool streams, class Output>
void dequantize_all(const uint8_t* codes, const uint8_t* scales, int64_t blocks, Output* out) {
  for (int64_t b = 0; b < blocks; ++b) {
    ask_ahead<BLOCK / 2>(codes + b * BLOCK / 2);
    put_block<streams>(codes + b * BLOCK / 2, (Floats)scale_bits(Bits{} + scales[b]), out + b * BLOCK);
  }
  if (streams) settle();
}

template <class Output>
void dequantize_to(const uint8_t* codes, const uint8_t* scales, int64_t blocks, Output* out, bool streams) {
  const bool aligned = reinterpret_cast<uintptr_t>(out) % sizeof(Floats) == 0;
  if (streams && aligned) return dequantize_all<true>(codes, scales, blocks, out);
  dequantize_all<false>(codes, scales, blocks, out);
}

void dequantize(const uint8_t* codes, const uint8_t* scales, int64_t blocks, Kind kind, void* out, bool streams) {
  if (kind == Kind::float32) return dequantize_to(codes, scales, blocks, static_cast<float*>(out), streams);
  dequantize_to(codes, scales, blocks, static_cast<uint16_t*>(out), streams);
}

// Multiply ------------------------------------------------------------------------------------------------------------
// A vector of 32-bit words of codes holds a group of 8 × lanes elements, four words a block. `eighth` decodes them in
// the order that is cheapest, lanes / 4 blocks side by side; `place` says where an element went, and x is put in that
// order beforehand.

constexpr int64_t group = 8 * lanes;

MX_INLINE int64_t padded(int64_t k) { return (k + group - 1) / group * group; }

void arrange(const float* x, int64_t k, float* arranged) {
  for (int64_t i = 0; i < padded(k); ++i) arranged[i / group * group + place(i % group)] = i < k ? x[i] : 0.0f;
}

MX_INLINE Floats group_scales(const uint8_t* scales) {
  uint32_t packed = 0;
  memcpy(&packed, scales, lanes / 4);
  Bits shifts;
  for (int i = 0; i < lanes; ++i) shifts[i] = i / 4 * 8;
  return (Floats)scale_bits(((Bits{} + packed) >> shifts) & 0xFF);
}

// Rows of a weight, all at the same group.
struct Rows {
  const uint8_t *codes, *scales;
  int64_t codes_stride, scales_stride, ahead;  // `ahead`: bytes of codes
};

// Adds one group's products of `ns` rows of the weight and `ms` rows of x, the elements scaled first or not at all.
template <bool scaled, int ns, int ms>
MX_INLINE void add_products(Floats (&sums)[ns][ms], const float* x, int64_t x_stride, const Bits (&words)[ns],
                            const Floats (&scales)[ns]) {
  MX_UNROLL
  for (int part = 0; part < 8; ++part) {
    Floats elements[ns];
    MX_UNROLL
    for (int n = 0; n < ns; ++n) {
      elements[n] = eighth(words[n], part);
      if (scaled) elements[n] *= scales[n];
    }
    MX_UNROLL
    for (int m = 0; m < ms; ++m) {
      const Floats factor = load(x + m * x_stride + part * lanes);
      MX_UNROLL
      for (int n = 0; n < ns; ++n) sums[n][m] += elements[n] * factor;
    }
  }
}

// Scales go on the elements where many rows of x share them, otherwise on their sum: that is fewer products, and a
// shorter chain of sums.
template <bool scaled, int ns, int ms>
MX_INLINE void add_group(Floats (&sums)[ns][ms], const float* x, int64_t x_stride, Rows weight) {
  Bits words[ns];
  Floats scales[ns];
  MX_UNROLL
  for (int n = 0; n < ns; ++n) {
    words[n] = load_words(weight.codes + n * weight.codes_stride);
    // The same place of later rows. Hardware stops at the page, which at K = 4096 is two rows: this saves a third.
    __builtin_prefetch(weight.codes + n * weight.codes_stride + weight.ahead);
    scales[n] = group_scales(weight.scales + n * weight.scales_stride);
  }
  if (scaled) return add_products<true>(sums, x, x_stride, words, scales);
  Floats unscaled[ns][ms] = {};
  add_products<false>(unscaled, x, x_stride, words, scales);
  MX_UNROLL
  for (int i = 0; i < ns * ms; ++i) sums[i / ms][i % ms] += unscaled[i / ms][i % ms] * scales[i / ms];
}

// The last group of a row whose K does not fill it: codes beyond K are zero, so is x there.
template <bool scaled, int ns, int ms>
MX_INLINE void add_rest(Floats (&sums)[ns][ms], const float* x, int64_t x_stride, Rows weight, int64_t elements) {
  uint8_t codes[ns][group / 2] = {}, scales[ns][lanes / 4] = {};
  for (int n = 0; n < ns; ++n) {
    memcpy(codes[n], weight.codes + n * weight.codes_stride, elements / 2);
    memcpy(scales[n], weight.scales + n * weight.scales_stride, elements / BLOCK);
  }
  add_group<scaled, ns, ms>(sums, x, x_stride, Rows{codes[0], scales[0], group / 2, lanes / 4, 0});
}

template <bool scaled, int ns, int ms>
void multiply_tile(const float* x, int64_t k, Rows weight, int64_t y_stride, float* y) {
  Floats sums[ns][ms] = {};
  const int64_t whole = k / group * group;
  const auto at = [&](int64_t i) {
    return Rows{weight.codes + i / 2, weight.scales + i / BLOCK, weight.codes_stride, weight.scales_stride, weight.ahead};
  };
  for (int64_t i = 0; i < whole; i += group) add_group<scaled, ns, ms>(sums, x + i, padded(k), at(i));
  if (whole < k) add_rest<scaled, ns, ms>(sums, x + whole, padded(k), at(whole), k - whole);
  MX_UNROLL
  for (int i = 0; i < ns * ms; ++i) y[i % ms * y_stride + i / ms] = sum(sums[i / ms][i % ms]);
}

using MultiplyTile = void (*)(const float* x, int64_t k, Rows weight, int64_t y_stride, float* y);

// The tile of `ns` × `ms`, which registers hold. Beyond two tokens scales always go on the elements: twice as many sums
// would not fit.
template <int ns>
MultiplyTile tile_of(int64_t ms, bool scaled) {
  if (ms >= 8 && ns * 8 <= most_products) return multiply_tile<true, ns, ns * 8 <= most_products ? 8 : 1>;
  if (ms >= 4 && ns * 4 <= most_products) return multiply_tile<true, ns, ns * 4 <= most_products ? 4 : 1>;
  if (ms >= 2) return scaled ? multiply_tile<true, ns, 2> : multiply_tile<false, ns, 2>;
  return scaled ? multiply_tile<true, ns, 1> : multiply_tile<false, ns, 1>;
}

// All rows of x against `ns` rows of the weight: as many tokens at a time as the tile says, then by two, then one.
template <int ns>
void multiply_rows(const float* x, int64_t m, int64_t k, Rows weight, int64_t y_stride, float* y, Tile tile) {
  int64_t done = 0;
  for (int64_t ms = tile.tokens; ms; ms = ms > 2 ? 2 : ms - 1) {
    const MultiplyTile run = tile_of<ns>(ms, ms > tile.scaled_sums);
    for (; m - done >= ms; done += ms) run(x + done * padded(k), k, weight, y_stride, y + done * y_stride);
  }
}

template <int ns>
int64_t multiply_by(const float* arranged, int64_t m, int64_t k, const uint8_t* codes, const uint8_t* scales,
                    int64_t first, int64_t last, int64_t n, float* y, Tile tile) {
  const int64_t ahead = tile.prefetch * ns * (k / 2);
  for (; first + ns <= last; first += ns)
    multiply_rows<ns>(arranged, m, k, Rows{codes + first * (k / 2), scales + first * (k / BLOCK), k / 2, k / BLOCK, ahead},
                      n, y + first, tile);
  return first;
}

void multiply(const float* arranged, int64_t m, int64_t k, const uint8_t* codes, const uint8_t* scales, int64_t first,
              int64_t last, int64_t n, float* y, Tile tile) {
  while (tile.tokens > 1 && tile.rows * tile.tokens > most_products) tile.tokens /= 2;
  if (tile.rows >= 4) first = multiply_by<4>(arranged, m, k, codes, scales, first, last, n, y, tile);
  if (tile.rows >= 2) first = multiply_by<2>(arranged, m, k, codes, scales, first, last, n, y, tile);
  multiply_by<1>(arranged, m, k, codes, scales, first, last, n, y, tile);
}
