#include "quantise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "half.h"
#include "weights.h"

namespace headway {
namespace {

void write_half(std::uint8_t* out, float value) {
  const std::uint16_t h = float_to_half(value);
  std::memcpy(out, &h, 2);
}

void q8_0(const float* x, std::uint8_t* out) {
  float most = 0;
  for (int i = 0; i < kGroup; i++) most = std::max(most, std::fabs(x[i]));
  const float d = most / 127, by = d ? 1 / d : 0;
  write_half(out, d);
  for (int i = 0; i < kGroup; i++) out[2 + i] = (std::uint8_t)(std::int8_t)std::round(x[i] * by);
}

void q4_1(const float* x, std::uint8_t* out) {
  const auto [least, most] = std::minmax_element(x, x + kGroup);
  const float d = (*most - *least) / 15, by = d ? 1 / d : 0;
  write_half(out, d), write_half(out + 2, *least);
  const auto code = [&](int i) { return std::min(15, (int)((x[i] - *least) * by + 0.5f)); };
  for (int i = 0; i < kGroup / 2; i++) out[4 + i] = (std::uint8_t)(code(i) | code(i + kGroup / 2) << 4);
}

}  // namespace

void quantise(const Tensor& from, Type to, std::uint8_t* out) {
  if (from.type != Type::F32 && from.type != Type::F16 && from.type != Type::BF16)
    throw std::invalid_argument("only F32, F16 and BF16 are quantised");
  if (to != Type::Q8_0 && to != Type::Q4_1) throw std::invalid_argument("weights are quantised to Q8_0 or Q4_1");
  const std::size_t stride = row_bytes(from.type, from.columns), width = row_bytes(to, from.columns), block = row_bytes(to, kGroup);
  std::vector<float> row((std::size_t)from.columns);
  for (std::int64_t r = 0; r < from.rows; r++) {
    dequantise_row(from.type, from.data + (std::size_t)r * stride, from.columns, row.data());
    for (std::int64_t g = 0; g < from.columns / kGroup; g++)
      (to == Type::Q8_0 ? q8_0 : q4_1)(row.data() + g * kGroup, out + (std::size_t)r * width + (std::size_t)g * block);
  }
}

}  // namespace headway
