// The torch operators vllm_mx::*: check, choose an instruction set, divide among torch's threads, run.
#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>
#include <tuple>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "kernels.h"

namespace {

using at::Tensor;
using mx::BLOCK;
using mx::Kind;

// Elements a thread should get at least: about 20 µs of work.
constexpr int64_t GRAIN = 1 << 16;

// How a product is divided; in the order of `CpuTile` (tiles.py), which says what each is.
struct Division {
  int64_t fused_tokens = 16;     // up to so many rows of x the codes are multiplied as they are
  mx::Tile tile{2, 8, 2, 1};     // of those products
  int64_t task_rows = 0;         // rows of the weight that a thread takes at a time; 0: an equal share each
  int64_t decoded = 1 << 20;     // elements decoded at a time for torch to multiply: 4 MiB as float32
  int64_t batch = 0;             // rows of x that meet them at a time; 0: all
  int64_t own_tiles = 0;         // 1: each thread decodes and multiplies rows of its own
  int64_t float32 = 0;           // 1: not in bfloat16, even where the processor multiplies it
};

Division division(at::IntArrayRef values) {
  Division d;
  if (values.empty()) return d;
  TORCH_CHECK_VALUE(values.size() == 10, "a tile has 10 numbers, not ", values.size());
  const auto one_of = [](int64_t value, std::initializer_list<int64_t> known) {
    return std::find(known.begin(), known.end(), value) != known.end();
  };
  d = {values[0], {values[1], values[2], values[3], values[4]}, values[5], values[6], values[7], values[8], values[9]};
  const mx::Tile& t = d.tile;
  TORCH_CHECK_VALUE(one_of(t.rows, {1, 2, 4}) && one_of(t.tokens, {1, 2, 4, 8}) && one_of(t.scaled_sums, {0, 1, 2}) &&
                        0 <= t.prefetch && t.prefetch <= 64 && d.fused_tokens >= 0 && d.task_rows >= 0 &&
                        d.decoded >= 1 && d.batch >= 0 && one_of(d.own_tiles, {0, 1}) && one_of(d.float32, {0, 1}),
                    "no tile ", values);
  return d;
}

// Instruction sets ----------------------------------------------------------------------------------------------------

// The best first.
std::vector<const mx::Kernels*> usable() {
  std::vector<const mx::Kernels*> found;
#if defined(__x86_64__)
  for (const mx::Kernels* kernels : {&mx::avx512, &mx::avx2})
    if (kernels->runs_here()) found.push_back(kernels);
#endif
  found.push_back(&mx::plain);
  return found;
}

// ADVISOR_MX_ISA is read at each call, so that a test may go through all of them.
const mx::Kernels& chosen() {
  static const std::vector<const mx::Kernels*> all = usable();
  const char* wanted = std::getenv("ADVISOR_MX_ISA");
  if (!wanted || !*wanted) return *all.front();
  for (const mx::Kernels* kernels : all)
    if (std::string(wanted) == kernels->name) return *kernels;
  TORCH_CHECK_VALUE(false, "ADVISOR_MX_ISA=", wanted, " is not an instruction set of this machine");
}

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const mx::Kernels* kernels : usable()) names.emplace_back(kernels->name);
  return names;
}

// Checks --------------------------------------------------------------------------------------------------------------

Kind kind_of(at::ScalarType type, const char* what) {
  if (type == at::kFloat) return Kind::float32;
  if (type == at::kBFloat16) return Kind::bfloat16;
  TORCH_CHECK_VALUE(type == at::kHalf, what, " must be float32, bfloat16 or float16, not ", type);
  return Kind::float16;
}

void check_weight(const Tensor& codes, const Tensor& scales) {
  TORCH_CHECK_VALUE(codes.scalar_type() == at::kByte && scales.scalar_type() == at::kByte,
                    "codes and scales must be uint8, not ", codes.scalar_type(), " and ", scales.scalar_type());
  TORCH_CHECK_VALUE(codes.dim() >= 1 && codes.dim() == scales.dim() &&
                        codes.sizes().slice(0, codes.dim() - 1) == scales.sizes().slice(0, scales.dim() - 1) &&
                        codes.size(-1) * 2 == scales.size(-1) * BLOCK,
                    "scales ", scales.sizes(), " are not one for each 32 of codes ", codes.sizes());
}

std::vector<int64_t> unpacked(const Tensor& codes) {
  std::vector<int64_t> shape = codes.sizes().vec();
  shape.back() *= 2;
  return shape;
}

// Operators -----------------------------------------------------------------------------------------------------------

std::tuple<Tensor, Tensor> quantize(const Tensor& x, int64_t carry_from) {
  const Kind kind = kind_of(x.scalar_type(), "x");
  TORCH_CHECK_VALUE(x.dim() >= 1 && x.size(-1) % BLOCK == 0, "the last dimension of ", x.sizes(),
                    " is no multiple of the block of 32");
  TORCH_CHECK_VALUE(0 <= carry_from && carry_from <= 1 << 23, "no scale mode carries from ", carry_from);
  const Tensor from = x.contiguous();
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() /= 2;
  Tensor codes = at::empty(shape, x.options().dtype(at::kByte));
  shape.back() /= BLOCK / 2;
  Tensor scales = at::empty(shape, x.options().dtype(at::kByte));

  const mx::Kernels& kernels = chosen();
  const auto* data = static_cast<const char*>(from.const_data_ptr());
  auto *to = codes.data_ptr<uint8_t>(), *to_scales = scales.data_ptr<uint8_t>();
  at::parallel_for(0, scales.numel(), GRAIN / BLOCK, [&](int64_t first, int64_t last) {
    kernels.quantize(data + first * BLOCK * from.element_size(), kind, last - first, carry_from, to + first * BLOCK / 2,
                     to_scales + first);
  });
  return {codes, scales};
}

void dequantize_to(const Tensor& out, const Tensor& codes, const Tensor& scales, bool streams) {
  check_weight(codes, scales);
  const Kind kind = kind_of(out.scalar_type(), "the result");
  TORCH_CHECK_VALUE(kind != Kind::float16, "the result must be float32 or bfloat16: float16 does not hold all scales");
  TORCH_CHECK_VALUE(out.is_contiguous() && out.sizes() == unpacked(codes), "the result of codes ", codes.sizes(),
                    " must be contiguous and twice as wide, not ", out.sizes());
  const Tensor from = codes.contiguous(), from_scales = scales.contiguous();
  const mx::Kernels& kernels = chosen();
  const auto *data = from.const_data_ptr<uint8_t>(), *scale_data = from_scales.const_data_ptr<uint8_t>();
  auto* to = static_cast<char*>(out.mutable_data_ptr());
  at::parallel_for(0, scales.numel(), GRAIN / BLOCK, [&](int64_t first, int64_t last) {
    kernels.dequantize(data + first * BLOCK / 2, scale_data + first, last - first, kind,
                       to + first * BLOCK * out.element_size(), streams);
  });
}

void dequantize_into(const Tensor& codes, const Tensor& scales, const Tensor& out) {
  constexpr size_t beyond_caches = 8 << 20;  // of one core
  dequantize_to(out, codes, scales, out.nbytes() >= beyond_caches);
}

// Most of the time of writing fresh memory goes to page faults: 17 ms for 32 MiB in pages of 4 KiB, 4 ms in huge ones.
void ask_for_huge_pages(const Tensor& fresh) {
#if defined(__linux__)
  constexpr uintptr_t page = 4096, worth_it = 4 << 20;
  if (fresh.nbytes() < worth_it) return;
  const auto first = (reinterpret_cast<uintptr_t>(fresh.data_ptr()) + page - 1) / page * page;
  const auto last = (reinterpret_cast<uintptr_t>(fresh.data_ptr()) + fresh.nbytes()) / page * page;
  madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);  // advice: a refusal changes nothing
#endif
}

Tensor dequantize(const Tensor& codes, const Tensor& scales, at::ScalarType type) {
  check_weight(codes, scales);
  Tensor out = at::empty(unpacked(codes), codes.options().dtype(type));
  ask_for_huge_pages(out);
  dequantize_to(out, codes, scales, false);  // a page that the system has just cleared lies in the caches
  return out;
}

// x [M, K] in float32 and in the order of the codes: [M, K rounded up to whole groups].
Tensor arranged(const Tensor& x, const mx::Kernels& kernels) {
  const int64_t group = 8 * kernels.lanes, k = x.size(1);
  const Tensor from = x.to(at::kFloat).contiguous();
  Tensor to = at::empty({x.size(0), (k + group - 1) / group * group}, from.options());
  for (int64_t m = 0; m < x.size(0); ++m)
    kernels.arrange(from.const_data_ptr<float>() + m * k, k, to.data_ptr<float>() + m * to.size(1));
  return to;
}

// Calls `run(first, last)` for rows first … last − 1, all of 0 … n − 1, on torch's threads: an equal share each, or
// `rows` at a time to whoever comes first.
template <class Run>
void divide(int64_t n, int64_t rows, int64_t grain, const Run& run) {
  if (!rows) return at::parallel_for(0, n, grain, run);
  std::atomic<int64_t> next{0};
  const int64_t tasks = (n + rows - 1) / rows, threads = std::min<int64_t>(at::get_num_threads(), tasks);
  at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
    if (begin == end) return;
    for (int64_t task = next++; task < tasks; task = next++) run(task * rows, std::min(n, (task + 1) * rows));
  });
}

Tensor multiply_fused(const Tensor& x, const Tensor& codes, const Tensor& scales, const std::optional<Tensor>& bias,
                      const Division& by) {
  const mx::Kernels& kernels = chosen();
  const Tensor factors = arranged(x, kernels);
  const int64_t m = x.size(0), k = x.size(1), n = codes.size(0), width = factors.size(1);
  const int64_t batch = by.batch ? by.batch : std::max<int64_t>(m, 1);
  Tensor y = at::empty({m, n}, factors.options());
  const auto *data = codes.const_data_ptr<uint8_t>(), *scale_data = scales.const_data_ptr<uint8_t>();
  const auto* factor_data = factors.const_data_ptr<float>();
  auto* to = y.data_ptr<float>();
  divide(n, by.task_rows, GRAIN / std::max<int64_t>(k, 1) + 1, [&](int64_t first, int64_t last) {
    for (int64_t token = 0; token < m; token += batch)
      kernels.multiply(factor_data + token * width, std::min(batch, m - token), k, data, scale_data, first, last, n,
                       to + token * n, by.tile);
  });
  return bias ? y.add_(bias->to(at::kFloat)) : y;
}

// Without instructions for bfloat16 torch multiplies it several times more slowly than float32.
bool multiplies_bfloat16() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

// One product in which whole tiles of the weight are decoded for torch.
struct Decoded {
  Tensor factors, codes, scales, y;
  std::optional<Tensor> bias;
  int64_t batch;

  // Rows first … first + size − 1 of the weight, by way of `memory` for as many decoded ones.
  void multiply(const Tensor& memory, int64_t first, int64_t size) const {
    const auto part = [&](const Tensor& whole) { return whole.narrow(0, first, size); };
    const Tensor tile = memory.narrow(0, 0, size);
    dequantize_to(tile, part(codes), part(scales), false);  // it is read at once
    const auto tile_bias = bias ? std::optional(part(*bias).to(factors.scalar_type())) : std::nullopt;
    for (int64_t token = 0; token < factors.size(0); token += batch) {
      const int64_t tokens = std::min(batch, factors.size(0) - token);
      y.narrow(0, token, tokens).narrow(1, first, size).copy_(
          at::linear(factors.narrow(0, token, tokens), tile, tile_bias));
    }
  }
};

Tensor multiply_by_tiles(const Tensor& x, const Tensor& codes, const Tensor& scales, const std::optional<Tensor>& bias,
                         const Division& by) {
  const bool native = x.scalar_type() == at::kBFloat16 && multiplies_bfloat16() && !by.float32;
  const Tensor factors = native ? x : x.to(at::kFloat);
  const int64_t n = codes.size(0), rows = std::clamp<int64_t>(by.decoded / x.size(1), 1, std::max<int64_t>(n, 1));
  const Tensor y = at::empty({x.size(0), n}, factors.options());
  const Decoded product{factors, codes, scales, y, bias, by.batch ? by.batch : x.size(0)};
  const auto memory = [&] { return at::empty({rows, x.size(1)}, factors.options()); };
  if (!by.own_tiles) {
    const Tensor decoded = memory();
    for (int64_t first = 0; first < n; first += rows) product.multiply(decoded, first, std::min(rows, n - first));
    return y;
  }
  const at::ThreadLocalState state;  // other threads must not record gradients either, and see inference mode
  divide(n, rows, 1, [&](int64_t first, int64_t last) {
    const at::ThreadLocalStateGuard guard(state);
    product.multiply(memory(), first, last - first);
  });
  return y;
}

Tensor linear(const Tensor& x, const Tensor& codes, const Tensor& scales, const std::optional<Tensor>& bias,
              at::IntArrayRef tile) {
  kind_of(x.scalar_type(), "x");
  check_weight(codes, scales);
  TORCH_CHECK_VALUE(x.dim() == 2 && codes.dim() == 2 && x.size(1) == codes.size(1) * 2, "x ", x.sizes(),
                    " does not multiply codes ", codes.sizes());
  TORCH_CHECK_VALUE(!bias || bias->sizes() == codes.sizes().slice(0, 1), "the bias must be one for each row of codes ",
                    codes.sizes());
  const Division by = division(tile);
  const bool fused = x.size(0) <= by.fused_tokens || x.size(1) == 0 || x.size(0) == 0;
  const auto multiply = fused ? multiply_fused : multiply_by_tiles;
  return multiply(x, codes.contiguous(), scales.contiguous(), bias, by).to(x.scalar_type());
}

}  // namespace

TORCH_LIBRARY(vllm_mx, library) {
  library.def("quantize_mxfp4(Tensor x, int carry_from) -> (Tensor, Tensor)");
  library.def("dequantize_mxfp4(Tensor codes, Tensor scales, ScalarType dtype) -> Tensor");
  library.def("dequantize_mxfp4_into(Tensor codes, Tensor scales, Tensor(a!) out) -> ()");
  library.def("linear_mxfp4(Tensor x, Tensor codes, Tensor scales, Tensor? bias, int[] tile=[]) -> Tensor");
  library.def("instruction_sets() -> str[]", instruction_sets);
}

TORCH_LIBRARY_IMPL(vllm_mx, CPU, library) {
  library.impl("quantize_mxfp4", quantize);
  library.impl("dequantize_mxfp4", dequantize);
  library.impl("dequantize_mxfp4_into", dequantize_into);
  library.impl("linear_mxfp4", linear);
}
