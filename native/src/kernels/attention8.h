// Attention over keys and values of 8 bits. Included only by kernels.cpp, which is compiled once per instruction set.
//
// Scores are integer dot products of 32 dimensions at a time, with a scale for each key and for the query. The scale of a
// value belongs to its token, so it is folded into the token's weight; a block's 16 weights are then brought to 8 bits
// together. Every sum has one order, and what a query does not see has code 0, so it does not matter who walks along.
#pragma once

namespace headway::HEADWAY_NS {
namespace {

// Where the parts of a block lie; see KvType.
inline const std::uint8_t* keys8(const std::uint8_t* block) { return block; }
inline const std::uint8_t* values8(const std::uint8_t* block, int pad) { return block + (std::size_t)kLanes * pad; }
inline const std::uint16_t* key_scales8(const std::uint8_t* block, int pad) {
  return (const std::uint16_t*)(block + (std::size_t)2 * kLanes * pad);
}
inline const std::uint16_t* value_scales8(const std::uint8_t* block, int pad) {
  return key_scales8(block, pad) + (std::size_t)pad / kGroup * kLanes;
}

// The scale that brings `top` to 127, as it is stored. What is not finite weighs nothing: the engine finds its sequence
// by the hidden rows instead.
inline float scale8(float top, std::uint16_t* stored) {
  std::uint16_t half[kLanes];
  store_f16(half, set(top < std::numeric_limits<float>::infinity() ? std::fmin(top / 127.0f, 65504.0f) : 0.0f));
  *stored = half[0];
  alignas(64) float back[kLanes];
  store(back, load_f16(half));
  return back[0];
}

// Turns 32 dimensions by a Hadamard matrix: dot products stay, and no dimension stands out that would take the codes of the
// others (Ashkboos et al. 2024, "QuaRot").
inline void turn8(float* x) {
  for (int half = 1; half < kGroup; half *= 2)
    for (int at = 0; at < kGroup; at += 2 * half)
      for (int i = at; i < at + half; i++) {
        const float a = x[i], b = x[i + half];
        x[i] = a + b, x[i + half] = a - b;
      }
  for (int i = 0; i < kGroup; i++) x[i] *= 0.17677669529663687f;  // 1 / sqrt(32)
}

inline void codes8(const float* x, float scale, std::int8_t* out) {
  const f32 inverse = set(scale > 0 ? 1.0f / scale : 0.0f);
  store_i8(out, to_int(min(max(mul(load(x), inverse), set(-127.0f)), set(127.0f))));
}

void write_kv8(const float* k, const float* v, int head_dim, int head_pad, int offset, std::uint8_t* block) {
  auto* keys = const_cast<std::uint8_t*>(keys8(block));
  auto* values = const_cast<std::uint8_t*>(values8(block, head_pad));
  auto* key_scales = const_cast<std::uint16_t*>(key_scales8(block, head_pad));
  auto* value_scales = const_cast<std::uint16_t*>(value_scales8(block, head_pad));
  alignas(64) float x[kGroup];
  std::int8_t code[kGroup];
  const auto take = [&](const float* from, int d) {
    const int n = head_dim - d < kGroup ? head_dim - d : kGroup;
    std::memset(x, 0, sizeof x), std::memcpy(x, from + d, (n > 0 ? n : 0) * sizeof(float));
  };
  float top = 0;
  for (int d = 0; d < head_pad; d += kGroup) {
    take(v, d);
    const float here = magnitude(load(x), load(x + kLanes));
    top = here <= top ? top : here;  // NaN stays
    take(k, d);
    turn8(x);
    const float scale = scale8(magnitude(load(x), load(x + kLanes)), key_scales + d / kGroup * kLanes + offset);
    codes8(x, scale, code), codes8(x + kLanes, scale, code + kLanes);
    for (int i = 0; i < kGroup; i++)
      keys[(std::size_t)(d + i) / 4 * 64 + 4 * offset + i % 4] = (std::uint8_t)(code[i] + 128);
  }
  const float scale = scale8(top, value_scales + offset);
  for (int d = 0; d < head_pad; d += kGroup) {
    take(v, d);
    codes8(x, scale, code), codes8(x + kLanes, scale, code + kLanes);
    for (int i = 0; i < kGroup; i++)
      values[((std::size_t)(offset / 4) * head_pad + d + i) * 4 + offset % 4] = (std::uint8_t)code[i];
  }
}

void query8(const float* q, int head_dim, int head_pad, std::int8_t* codes, float* scale, std::int32_t* offset) {
  alignas(64) float x[kGroup], sum;
  for (int d = 0; d < head_pad; d += kGroup) {
    const int n = head_dim - d < kGroup ? head_dim - d : kGroup;
    std::memset(x, 0, sizeof x), std::memcpy(x, q + d, n * sizeof(float));
    turn8(x);
    quantize(x, 1, codes + d, scale + d / kGroup, &sum, offset + d / kGroup * 2, nullptr);
  }
}

// A block's 16 scores of a query, and in their place its weights: 16 codes and their scale.
struct Cell8 {
  std::uint8_t* at;
  explicit Cell8(const float* scores, int b) : at((std::uint8_t*)const_cast<float*>(scores + (b % (kSplit / kLanes)) * kLanes)) {}
  float scale() const {
    float s;
    std::memcpy(&s, at + kLanes, 4);
    return s;
  }
  void put(i32 codes, float scale) const {
    store_u8(at, codes);
    std::memcpy(at + kLanes, &scale, 4);
  }
};

// Scores of N queries against B neighbouring blocks.
template <int N, int B>
void score8_blocks(const Attention& a, int q0, int b, int b1, float* scores) {
  f32 acc[B][N];
  const std::uint8_t* block[B];
  for (int j = 0; j < B; j++) {
    block[j] = a.pool + a.table[b + j] * a.block_stride;
    if (q0 == 0 && b + B + j <= b1) {  // the whole next blocks: they are short, and lie apart
      const std::uint8_t* next = a.pool + a.table[b + B + j] * a.block_stride;
      for (int at = 0; at < 34 * a.head_pad; at += 64) __builtin_prefetch(next + at, 0, 2);
    }
    for (int i = 0; i < N; i++) acc[j][i] = set(0);
  }
  for (int g = 0; g < a.head_pad / kGroup; g++) {
    i32 part[B][N];
    for (int i = 0; i < N; i++) {
      const std::int32_t* offset = a.offsets[q0 + i] + 2 * g;
      for (int j = 0; j < B; j++) part[j][i] = iset(offset[0] + offset[1]);
    }
    for (int quad = 0; quad < kGroup / 4; quad++)
      for (int j = 0; j < B; j++) {
        const u8 key = load_u8(keys8(block[j]) + (std::size_t)(g * (kGroup / 4) + quad) * 64);
        for (int i = 0; i < N; i++) part[j][i] = dot4(part[j][i], key, a.codes[q0 + i] + g * kGroup + 4 * quad);
      }
    for (int j = 0; j < B; j++) {
      const f32 d = load_f16(key_scales8(block[j], a.head_pad) + g * kLanes);
      for (int i = 0; i < N; i++)
        acc[j][i] = fma(to_float(part[j][i]), mul(d, set(a.scales[q0 + i][g] * a.scale)), acc[j][i]);
    }
  }
  for (int j = 0; j < B; j++)
    for (int i = 0; i < N; i++) {
      const Reach see(a, q0 + i, b + j);
      store(scores + (std::size_t)i * kSplit + j * kLanes,
            see.all() ? acc[j][i] : within(see.from, see.to, acc[j][i], -std::numeric_limits<float>::infinity()));
    }
}

template <int N>
void score8(const Attention& a, int q0, int b0, int b1, float* scores) {
  constexpr int B = N <= 2 ? 4 : N <= 4 ? 2 : 1;
  int b = b0;
  for (; b + B - 1 <= b1; b += B) score8_blocks<N, B>(a, q0, b, b1, scores + (b % (kSplit / kLanes)) * kLanes);
  for (; b <= b1; b++) score8_blocks<N, 1>(a, q0, b, b1, scores + (b % (kSplit / kLanes)) * kLanes);
}

template <int N, int D>
void weigh8_dimensions(const Attention& a, int q0, int d, int b0, int b1, const float* weights, float* out) {
  f32 acc[D][N];
  for (int j = 0; j < D; j++)
    for (int i = 0; i < N; i++) acc[j][i] = set(0);
  for (int b = b0; b <= b1; b++) {
    const std::uint8_t* values = values8(a.pool + a.table[b] * a.block_stride, a.head_pad) + (std::size_t)d * 4;
    i32 part[D][N];
    for (int j = 0; j < D; j++)
      for (int i = 0; i < N; i++) part[j][i] = izero();
    for (int quad = 0; quad < kLanes / 4; quad++)
      for (int j = 0; j < D; j++) {
        const u8 value = load_u8(values + ((std::size_t)quad * a.head_pad + j * kLanes) * 4);
        for (int i = 0; i < N; i++)
          part[j][i] = dot4_signed(part[j][i], value, Cell8(weights + (std::size_t)i * kSplit, b).at + 4 * quad);
      }
    for (int i = 0; i < N; i++) {
      const f32 scale = set(Cell8(weights + (std::size_t)i * kSplit, b).scale());
      for (int j = 0; j < D; j++) acc[j][i] = fma(to_float(part[j][i]), scale, acc[j][i]);
    }
  }
  for (int j = 0; j < D; j++)
    for (int i = 0; i < N; i++) store(out + (std::size_t)(q0 + i) * a.head_pad + d + j * kLanes, acc[j][i]);
}

template <int N>
void weigh8(const Attention& a, int q0, int b0, int b1, const float* weights, float* out) {
  constexpr int D = N <= 2 ? 4 : N <= 4 ? 2 : 1;
  int d = 0;
  for (; d + (D - 1) * kLanes < a.head_pad; d += D * kLanes) weigh8_dimensions<N, D>(a, q0, d, b0, b1, weights, out);
  for (; d < a.head_pad; d += kLanes) weigh8_dimensions<N, 1>(a, q0, d, b0, b1, weights, out);
}

template <int N>
struct Score8 {
  template <class... A>
  void operator()(A&&... args) const { score8<N>(args...); }
};
template <int N>
struct Weigh8 {
  template <class... A>
  void operator()(A&&... args) const { weigh8<N>(args...); }
};

// Scores to codes, in place; gives the sum of the weights.
inline float soften8(const Attention& a, int query, int b0, int b1, float most, float* scores) {
  f32 total = set(0);
  for (int b = b0; b <= b1; b++) {
    const Reach see(a, query, b);
    f32 weight = exp(sub(load(scores + (b % (kSplit / kLanes)) * kLanes), set(most)));
    if (!see.all()) weight = within(see.from, see.to, weight, 0.0f);
    total = add(total, weight);
    const f32 scaled = mul(weight, load_f16(value_scales8(a.pool + a.table[b] * a.block_stride, a.head_pad)));
    const float top = reduce_max(scaled);
    Cell8(scores, b).put(to_int(mul(scaled, set(top > 1e-30f ? 255.0f / top : 0.0f))), top / 255.0f);
  }
  return reduce_add(total);
}

void attend8(const Attention& a, int split, float* scratch, float* most, float* sum, float* out) {
  const Walk walk(a, split);
  if (walk.empty()) {
    for (int i = 0; i < a.count; i++) sum[i] = 0;
    return;
  }
  for (int q = 0; q < a.count; q += kHeads)
    by_count<Score8>(a.count - q < kHeads ? a.count - q : kHeads, a, q, walk.b0, walk.b1, scratch + (std::size_t)q * kSplit);
  for (int i = 0; i < a.count; i++) {
    float* s = scratch + (std::size_t)i * kSplit;
    f32 top = set(-std::numeric_limits<float>::infinity());
    for (int b = walk.b0; b <= walk.b1; b++) top = max(top, load(s + (b % (kSplit / kLanes)) * kLanes));
    most[i] = reduce_max(top);
    sum[i] = soften8(a, i, walk.b0, walk.b1, most[i], s);
  }
  for (int q = 0; q < a.count; q += kHeads)
    by_count<Weigh8>(a.count - q < kHeads ? a.count - q : kHeads, a, q, walk.b0, walk.b1, scratch + (std::size_t)q * kSplit, out);
}

}  // namespace
}  // namespace headway::HEADWAY_NS
