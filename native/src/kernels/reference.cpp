#include "kernels/reference.h"

#include <bit>
#include <cmath>
#include <vector>

#include "weights.h"

namespace headway::reference {
namespace {

float half(std::uint16_t h) {
  float out;
  dequantise_row(Type::F16, (const std::uint8_t*)&h, 1, &out);
  return out;
}

double key(KvType type, const std::uint8_t* block, int pad, int token, int d) {
  if (type == KvType::F16) return half(((const std::uint16_t*)block)[d * kLanes + token]);
  const auto* scales = (const std::uint16_t*)(block + 2 * kLanes * pad);
  double sum = 0;  // turned back: the Hadamard matrix is its own inverse
  for (int i = d / kGroup * kGroup; i < (d / kGroup + 1) * kGroup; i++)
    sum += (std::popcount((unsigned)(i & d & (kGroup - 1))) % 2 ? -1 : 1) * (block[i / 4 * 64 + 4 * token + i % 4] - 128);
  return sum / std::sqrt((double)kGroup) * half(scales[d / kGroup * kLanes + token]);
}

double value(KvType type, const std::uint8_t* block, int pad, int token, int d) {
  if (type == KvType::F16) return half(((const std::uint16_t*)block)[pad * kLanes + token * pad + d]);
  const auto* scales = (const std::uint16_t*)(block + 2 * kLanes * pad) + pad / kGroup * kLanes;
  const auto* codes = (const std::int8_t*)block + kLanes * pad;
  return (double)half(scales[token]) * codes[(token / 4 * pad + d) * 4 + token % 4];
}

}  // namespace

double dot(const Packed& w, int column, const Activations& x, int row) {
  std::vector<float> weights((std::size_t)w.columns);
  unpack_row(w, column, weights.data());
  const std::size_t width = (std::size_t)w.groups * kGroup;
  double sum = w.bias ? w.bias[column] : 0;
  for (int k = 0; k < w.columns; k++) {
    const std::size_t at = row * width + (std::size_t)k;
    double in;
    switch (w.format) {
      case Format::F32:
      case Format::F16: in = x.f32[at]; break;
      case Format::BF16: in = std::bit_cast<float>((std::uint32_t)x.bf16[at] << 16); break;
      default: in = (double)x.scale[at / kGroup] * x.codes[at];
    }
    sum += in * weights[(std::size_t)k];
  }
  return sum;
}

void rms_norm(const float* x, const float* weight, int n, float eps, double* out) {
  double square = 0;
  for (int i = 0; i < n; i++) square += (double)x[i] * x[i];
  for (int i = 0; i < n; i++) out[i] = x[i] / std::sqrt(square / n + eps) * weight[i];
}

double swiglu(float gate, float up) { return gate / (1 + std::exp(-(double)gate)) * up; }

double geglu(float gate, float up) {
  const double x = gate, root = 0.79788456080286535588;  // sqrt(2 / pi)
  return x / 2 * (1 + std::tanh(root * (x + 0.044715 * x * x * x))) * up;
}

double clamped_swiglu(float gate, float up) {
  const double g = std::fmin(gate, 7), u = std::fmax(-7, std::fmin(up, 7));
  return (u + 1) * g / (1 + std::exp(-1.702 * g));
}

void attend(const Attention& a, KvType type, int query, double* out) {
  std::vector<double> score;
  double top = -1e300, total = 0;
  const auto block = [&](int position) { return a.pool + a.table[position / kLanes] * a.block_stride; };
  for (int p = a.first[query]; p <= a.last[query]; p++) {
    double s = 0;
    for (int d = 0; d < a.head_dim; d++) s += (double)a.queries[query][d] * key(type, block(p), a.head_pad, p % kLanes, d);
    s *= a.scale;
    score.push_back(a.softcap > 0 ? a.softcap * std::tanh(s / a.softcap) : s);
    top = std::fmax(top, score.back());
  }
  for (double& s : score) total += s = std::exp(s - top);
  for (int d = 0; d < a.head_dim; d++) {
    out[d] = 0;
    for (int p = a.first[query]; p <= a.last[query]; p++)
      out[d] += score[(std::size_t)(p - a.first[query])] / total * value(type, block(p), a.head_pad, p % kLanes, d);
  }
}

}  // namespace headway::reference
