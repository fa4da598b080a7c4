// Every kernel once; compiled once per instruction set with HEADWAY_NS naming the set.
// Each output's sum has one accumulator that walks the inputs in order, so its bits depend on its row alone.
#include "kernels.h"

#include <limits>

#include "simd.h"

#include "dots.h"

namespace headway::HEADWAY_NS {
namespace {

// Rows that share one unpacked group, and tiles that share one row's codes: with 32 registers two tiles, so that there are
// fewer loads than multiplications.
constexpr int kRows = 4;
#if defined(__AVX512F__)
constexpr int kTiles = 2;
constexpr int kHeads = 8;
#else
constexpr int kTiles = 1;
constexpr int kHeads = 4;
#endif

// Asks for `N` bytes of the next tile: tiles are short, and the processor's own prefetchers restart at every page.
template <int N>
inline void ahead(const std::uint8_t* p) {
  for (int i = 0; i < N; i += 64) __builtin_prefetch(p + i, 0, 2);
}

// Loops over rows and tiles are unrolled as a whole: all sums stay in registers and run side by side.
template <Format F, int R, int T>
inline void quantised_rows(const Packed& w, const std::uint8_t* tile, const Activations& x, int row, f32 (&acc)[T][R]) {
  constexpr FormatInfo fi = info(F);
  const int groups = w.groups;
  const std::uint8_t* scales = tile + (std::size_t)groups * fi.code_bytes;
  const std::size_t ld = (std::size_t)groups * kGroup;
  const std::int8_t* codes = x.codes + row * ld;
  const float* sx = x.scale + (std::size_t)row * groups;
  const float* sum = x.sum + (std::size_t)row * groups;
  const std::int32_t* offset = x.offset + (std::size_t)row * groups * 2;
  for (int g = 0; g < groups; g++, tile += fi.code_bytes, scales += fi.scale_bytes, codes += kGroup) {
    i32 a[T][R], b[T][R];
#pragma GCC unroll 8
    for (int t = 0; t < T; t++) {
      ahead<fi.code_bytes>(tile + (T + t) * w.tile_bytes);
      ahead<fi.scale_bytes>(scales + (T + t) * w.tile_bytes);
#pragma GCC unroll 8
      for (int r = 0; r < R; r++) {
        const std::int32_t* o = offset + 2 * (r * groups + g);
        if constexpr (F == Format::Q8S) a[t][r] = iset(o[0]), b[t][r] = iset(o[1]);
        else a[t][r] = F == Format::Q8 ? iset(o[0] + o[1]) : izero();
      }
    }
    dots<F, R, T>(tile, w.tile_bytes, codes, ld, a, b);
#pragma GCC unroll 8
    for (int t = 0; t < T; t++) {
      const auto* s = (const std::uint16_t*)(scales + t * w.tile_bytes);
      const f32 d = load_f16(s), second = F == Format::Q8 ? set(0) : load_f16(s + 16);
#pragma GCC unroll 8
      for (int r = 0; r < R; r++) {
        const f32 scale = set(sx[r * groups + g]);
        acc[t][r] = fma(mul(d, scale), to_float(a[t][r]), acc[t][r]);
        if constexpr (F == Format::Q8S) acc[t][r] = fma(mul(second, scale), to_float(b[t][r]), acc[t][r]);
        else if constexpr (F != Format::Q8) acc[t][r] = fma(second, set(sum[r * groups + g]), acc[t][r]);
      }
    }
  }
}

template <Format F, int R>
inline void float_rows(const Packed& w, const std::uint8_t* tile, const Activations& x, int row, f32 (&acc)[R]) {
  const int k = w.groups * kGroup;
  if constexpr (F == Format::BF16) {
    const auto* data = (const std::uint16_t*)tile;
    const std::uint16_t* in = x.bf16 + (std::size_t)row * k;
    for (int i = 0; i < k; i += 2)
      for (int r = 0; r < R; r++) acc[r] = dot2_bf16(acc[r], data + (std::size_t)i * kLanes, in + (std::size_t)r * k + i);
  } else {
    const float* in = x.f32 + (std::size_t)row * k;
    for (int i = 0; i < k; i++) {
      f32 v;
      if constexpr (F == Format::F32) v = load((const float*)tile + (std::size_t)i * kLanes);
      else v = load_f16((const std::uint16_t*)tile + (std::size_t)i * kLanes);
      for (int r = 0; r < R; r++) acc[r] = fma(v, set(in[(std::size_t)r * k + i]), acc[r]);
    }
  }
}

template <Format F, int R, int T>
void block(const Packed& w, int tile, const Activations& x, int row, float* out, std::size_t stride, bool sum) {
  f32 acc[T][R];
#pragma GCC unroll 8
  for (int t = 0; t < T; t++)
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) acc[t][r] = set(0);
  const std::uint8_t* data = w.data + (std::size_t)tile * w.tile_bytes;
  if constexpr (F == Format::F32 || F == Format::F16 || F == Format::BF16) {
    for (int t = 0; t < T; t++) float_rows<F, R>(w, data + t * w.tile_bytes, x, row, acc[t]);
  } else {
    quantised_rows<F, R, T>(w, data, x, row, acc);
  }
#pragma GCC unroll 8
  for (int t = 0; t < T; t++)
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
      float* o = out + (std::size_t)(row + r) * stride + (std::size_t)(tile + t) * kLanes;
      if (w.bias) acc[t][r] = add(acc[t][r], load(w.bias + (std::size_t)(tile + t) * kLanes));
      store(o, sum ? add(load(o), acc[t][r]) : acc[t][r]);
    }
}

template <Format F, int T>
void rows_of(const Packed& w, int tile, const Activations& x, int row, int rows, float* out, std::size_t ld, bool sum) {
  for (; rows >= kRows; rows -= kRows, row += kRows) block<F, kRows, T>(w, tile, x, row, out, ld, sum);
  switch (rows) {
    case 1: block<F, 1, T>(w, tile, x, row, out, ld, sum); break;
    case 2: block<F, 2, T>(w, tile, x, row, out, ld, sum); break;
    case 3: block<F, 3, T>(w, tile, x, row, out, ld, sum); break;
    default: break;
  }
}

}  // namespace
}  // namespace headway::HEADWAY_NS

#include "amx.h"

namespace headway::HEADWAY_NS {
namespace {

template <Format F>
void tiles_of(const Packed& w, int tile, int tiles, const Activations& x, int row, int rows, float* out, std::size_t ld, bool sum) {
#if defined(__AMX_INT8__)
  if constexpr (kAmx<F>) {
    const int done = amx_rows<F>(w, {tile, tiles}, x, row, rows, out, ld, sum);
    row += done, rows -= done;
  }
#endif
  for (; tiles >= kTiles; tiles -= kTiles, tile += kTiles) rows_of<F, kTiles>(w, tile, x, row, rows, out, ld, sum);
  if (tiles) rows_of<F, 1>(w, tile, x, row, rows, out, ld, sum);
}

void matmul(const Packed& w, Tiles t, const Activations& x, int row, int rows, float* out, std::size_t ld, bool sum) {
  switch (w.format) {
    case Format::F32: return tiles_of<Format::F32>(w, t.first, t.count, x, row, rows, out, ld, sum);
    case Format::F16: return tiles_of<Format::F16>(w, t.first, t.count, x, row, rows, out, ld, sum);
    case Format::BF16: return tiles_of<Format::BF16>(w, t.first, t.count, x, row, rows, out, ld, sum);
    case Format::Q4: return tiles_of<Format::Q4>(w, t.first, t.count, x, row, rows, out, ld, sum);
    case Format::Q8: return tiles_of<Format::Q8>(w, t.first, t.count, x, row, rows, out, ld, sum);
    case Format::Q8M: return tiles_of<Format::Q8M>(w, t.first, t.count, x, row, rows, out, ld, sum);
    case Format::Q8S: return tiles_of<Format::Q8S>(w, t.first, t.count, x, row, rows, out, ld, sum);
  }
}

inline f32 sigmoid(f32 x) { return div(set(1), add(set(1), exp(sub(set(0), x)))); }

// cap * tanh(x / cap), for tanh(y) = 2 sigmoid(2 y) - 1.
inline f32 capped(f32 x, float cap) { return fma(sigmoid(mul(x, set(2 / cap))), set(2 * cap), set(-cap)); }

void swiglu(const float* gate, const float* up, int n, float* out) {
  for (int i = 0; i < n; i += kLanes) {
    const f32 g = load(gate + i);
    store(out + i, mul(mul(g, sigmoid(g)), load(up + i)));
  }
}

// x / 2 (1 + tanh(u)) = x sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3).
void geglu(const float* gate, const float* up, int n, float* out) {
  for (int i = 0; i < n; i += kLanes) {
    const f32 g = load(gate + i), twice = mul(g, fma(mul(g, g), set(0.0713548162726f), set(1.59576912161f)));
    store(out + i, mul(mul(g, sigmoid(twice)), load(up + i)));
  }
}

void clamped_swiglu(const float* gate, const float* up, int n, float* out) {
  for (int i = 0; i < n; i += kLanes) {
    // what is not a number must stay so: the second operand of min and max is taken then
    const f32 g = min(set(7.0f), load(gate + i)), u = max(set(-7.0f), min(set(7.0f), load(up + i)));
    store(out + i, mul(mul(g, sigmoid(mul(g, set(1.702f)))), add(u, set(1.0f))));
  }
}

// The rows it reads are zero beyond n up to whole lanes, the weights too.
void rms_norm(const float* x, const float* weight, int n, float eps, float* out) {
  f32 square = set(0);
  for (int i = 0; i < n; i += kLanes) square = fma(load(x + i), load(x + i), square);
  const f32 inverse = set(1.0f / std::sqrt(reduce_add(square) / (float)n + eps));
  for (int i = 0; i < n; i += kLanes) store(out + i, mul(mul(load(x + i), inverse), load(weight + i)));
}

void quantize(const float* x, int groups, std::int8_t* codes, float* scale, float* sum, std::int32_t* offset,
              float* rest) {
  for (int g = 0; g < groups; g++, x += kGroup, codes += kGroup) {
    const f32 a = load(x), b = load(x + kLanes);
    const float top = magnitude(a, b);
    if (!(top < std::numeric_limits<float>::infinity())) {
      // what is not finite must reach the row's own output, where it is found: the scale carries it
      std::memset(codes, 0, kGroup);
      scale[g] = sum[g] = std::numeric_limits<float>::quiet_NaN();
      offset[2 * g] = offset[2 * g + 1] = 0;
      continue;
    }
    const float d = top / 127.0f, inverse = top > 1e-30f ? 127.0f / top : 0.0f;
    const i32 qa = to_int(mul(a, set(inverse))), qb = to_int(mul(b, set(inverse)));
    store_i8(codes, qa), store_i8(codes + kLanes, qb);
    const int sa = reduce_add(qa), sb = reduce_add(qb);
    scale[g] = d;
    sum[g] = d * (float)(sa + sb);
    offset[2 * g] = -128 * sa, offset[2 * g + 1] = -128 * sb;
    if (rest) {
      store(rest + g * kGroup, fma(set(-d), to_float(qa), a));
      store(rest + g * kGroup + kLanes, fma(set(-d), to_float(qb), b));
    }
  }
}

void to_bf16(const float* x, int n, std::uint16_t* out) {
  for (int i = 0; i < n; i++) {  // round to nearest even; infinities and NaN stay
    const std::uint32_t b = std::bit_cast<std::uint32_t>(x[i]);
    const bool special = (b & 0x7f800000u) == 0x7f800000u;
    out[i] = (std::uint16_t)((special ? b | (b & 0xffffu ? 0x400000u : 0u) : b + 0x7fffu + (b >> 16 & 1u)) >> 16);
  }
}

void rope(float* x, const float* cos, const float* sin, int half) {
  for (int i = 0; i < half; i++) {
    const float a = x[i], b = x[i + half];
    x[i] = a * cos[i] - b * sin[i];
    x[i + half] = b * cos[i] + a * sin[i];
  }
}

// What is not finite becomes the greatest half: 0 * NaN in a masked lane would reach other queries. The engine finds the
// sequence by its hidden rows instead.
void write_kv(const float* k, const float* v, int head_dim, int head_pad, int offset, std::uint8_t* block) {
  const f32 most = set(65504.0f), least = set(-65504.0f);
  std::uint16_t* keys = (std::uint16_t*)block + offset;
  std::uint16_t* values = (std::uint16_t*)block + (std::size_t)head_pad * kLanes + (std::size_t)offset * head_pad;
  for (int d = 0; d < head_dim; d += kLanes) {
    alignas(64) float a[kLanes] = {}, b[kLanes] = {};
    const int n = head_dim - d < kLanes ? head_dim - d : kLanes;
    std::memcpy(a, k + d, n * sizeof(float)), std::memcpy(b, v + d, n * sizeof(float));
    std::uint16_t half[kLanes];
    store_f16(half, max(min(load(a), most), least));
    for (int i = 0; i < kLanes; i++) keys[(std::size_t)(d + i) * kLanes] = half[i];
    store_f16(values + d, max(min(load(b), most), least));
  }
}

struct Reach {  // the lanes of block `b` that a query sees
  int from, to;
  Reach(const Attention& a, int query, int b) {
    const int start = b * kLanes;
    from = a.first[query] - start, to = a.last[query] - start + 1;
    from = from < 0 ? 0 : from > kLanes ? kLanes : from;
    to = to > kLanes ? kLanes : to < from ? from : to;
  }
  bool all() const { return to - from == kLanes; }
};

struct Walk {  // the blocks of a split that any of the queries sees
  int b0, b1, end;
  Walk(const Attention& a, int split) {
    int lo = split * kSplit, hi = lo + kSplit - 1, first = hi, last = lo - 1;
    for (int i = 0; i < a.count; i++) {
      first = a.first[i] < first ? a.first[i] : first;
      last = a.last[i] > last ? a.last[i] : last;
    }
    lo = first > lo ? first : lo, hi = last < hi ? last : hi;
    b0 = lo / kLanes, end = hi + 1, b1 = lo > hi ? b0 - 1 : hi / kLanes;
  }
  bool empty() const { return b1 < b0; }
};

// Scores of N queries against B neighbouring blocks: with few queries, more blocks keep the multipliers busy. Every
// score is one sum over d in order, whatever N and B.
template <int N, int B>
void score_blocks(const Attention& a, int q0, int b, float* scores) {
  f32 acc[B][N];
  const std::uint16_t* keys[B];
  const float* queries[N];
  for (int j = 0; j < B; j++) keys[j] = (const std::uint16_t*)(a.pool + a.table[b + j] * a.block_stride);
  for (int i = 0; i < N; i++) queries[i] = a.queries[q0 + i];
  for (int j = 0; j < B; j++)
    for (int i = 0; i < N; i++) acc[j][i] = set(0);
  for (int d = 0; d < a.head_dim; d++) {
    f32 q[N];
    for (int i = 0; i < N; i++) q[i] = set(queries[i][d]);
    for (int j = 0; j < B; j++) {
      const f32 k = load_f16(keys[j] + (std::size_t)d * kLanes);
      for (int i = 0; i < N; i++) acc[j][i] = fma(k, q[i], acc[j][i]);
    }
  }
  for (int j = 0; j < B; j++)
    for (int i = 0; i < N; i++) {
      const Reach see(a, q0 + i, b + j);
      store(scores + (std::size_t)i * kSplit + j * kLanes,
            within(see.from, see.to, mul(acc[j][i], set(a.scale)), -std::numeric_limits<float>::infinity()));
    }
}

template <int N>
void score(const Attention& a, int q0, int b0, int b1, float* scores) {
  constexpr int B = N <= 2 ? 4 : N <= 4 ? 2 : 1;
  int b = b0;
  for (; b + B - 1 <= b1; b += B) score_blocks<N, B>(a, q0, b, scores + (b % (kSplit / kLanes)) * kLanes);
  for (; b <= b1; b++) score_blocks<N, 1>(a, q0, b, scores + (b % (kSplit / kLanes)) * kLanes);
}

// Weighted sums of D vectors of dimensions from `d` on; each is one sum over the keys in order.
template <int N, int D>
void weigh_dimensions(const Attention& a, int q0, int d, int b0, int b1, int end, const float* weights, float* out) {
  f32 acc[D][N];
  for (int j = 0; j < D; j++)
    for (int i = 0; i < N; i++) acc[j][i] = set(0);
  for (int b = b0; b <= b1; b++) {
    const auto* v = (const std::uint16_t*)(a.pool + a.table[b] * a.block_stride) + (std::size_t)a.head_pad * kLanes + d;
    const int keys = end - b * kLanes < kLanes ? end - b * kLanes : kLanes;
    const float* p = weights + (b % (kSplit / kLanes)) * kLanes;
    for (int key = 0; key < keys; key++) {
      f32 weight[N];
      for (int i = 0; i < N; i++) weight[i] = set(p[(std::size_t)i * kSplit + key]);
      for (int j = 0; j < D; j++) {
        const f32 value = load_f16(v + (std::size_t)key * a.head_pad + j * kLanes);
        for (int i = 0; i < N; i++) acc[j][i] = fma(value, weight[i], acc[j][i]);
      }
    }
  }
  for (int j = 0; j < D; j++)
    for (int i = 0; i < N; i++) store(out + (std::size_t)(q0 + i) * a.head_pad + d + j * kLanes, acc[j][i]);
}

template <int N>
void weigh(const Attention& a, int q0, int b0, int b1, int end, const float* weights, float* out) {
  constexpr int D = N <= 4 ? 4 : 2;
  int d = 0;
  for (; d + (D - 1) * kLanes < a.head_pad; d += D * kLanes) weigh_dimensions<N, D>(a, q0, d, b0, b1, end, weights, out);
  for (; d < a.head_pad; d += kLanes) weigh_dimensions<N, 1>(a, q0, d, b0, b1, end, weights, out);
}

template <template <int> class Call, class... A>
inline void by_count(int n, A&&... args) {
  static_assert(kHeads == 4 || kHeads == 8);
  switch (n) {
    case 1: return Call<1>()(args...);
    case 2: return Call<2>()(args...);
    case 3: return Call<3>()(args...);
    case 4: return Call<4>()(args...);
#if defined(__AVX512F__)
    case 5: return Call<5>()(args...);
    case 6: return Call<6>()(args...);
    case 7: return Call<7>()(args...);
    case 8: return Call<8>()(args...);
#endif
    default: break;
  }
}
template <int N>
struct Score {
  template <class... A>
  void operator()(A&&... args) const { score<N>(args...); }
};
template <int N>
struct Weigh {
  template <class... A>
  void operator()(A&&... args) const { weigh<N>(args...); }
};

void softcap(float* x, int n, float cap) {
  for (int i = 0; i < n; i += kLanes) store(x + i, capped(load(x + i), cap));
}

void attend(const Attention& a, int split, float* scratch, float* most, float* sum, float* out) {
  const Walk walk(a, split);
  if (walk.empty()) {
    for (int i = 0; i < a.count; i++) sum[i] = 0;
    return;
  }
  const int b0 = walk.b0, b1 = walk.b1, per = kSplit / kLanes;
  for (int q = 0; q < a.count; q += kHeads) {
    const int n = a.count - q < kHeads ? a.count - q : kHeads;
    by_count<Score>(n, a, q, b0, b1, scratch + (std::size_t)q * kSplit);
  }
  for (int i = 0; i < a.count; i++) {
    float* s = scratch + (std::size_t)i * kSplit;
    f32 top = set(-std::numeric_limits<float>::infinity());
    for (int b = b0; a.softcap > 0 && b <= b1; b++) softcap(s + (b % per) * kLanes, kLanes, a.softcap);
    for (int b = b0; b <= b1; b++) top = max(top, load(s + (b % per) * kLanes));
    most[i] = reduce_max(top);
    f32 total = set(0);
    for (int b = b0; b <= b1; b++) {
      const Reach see(a, i, b);
      float* p = s + (b % per) * kLanes;
      // lanes out of reach weigh exactly 0, so that it does not matter which queries walk together
      const f32 weight = within(see.from, see.to, exp(sub(load(p), set(most[i]))), 0.0f);
      store(p, weight);
      total = add(total, weight);
    }
    sum[i] = reduce_add(total);
  }
  for (int q = 0; q < a.count; q += kHeads) {
    const int n = a.count - q < kHeads ? a.count - q : kHeads;
    by_count<Weigh>(n, a, q, b0, b1, walk.end, scratch + (std::size_t)q * kSplit, out);
  }
}

}  // namespace
}  // namespace headway::HEADWAY_NS

#include "attention8.h"
#include "drawing.h"

namespace headway::HEADWAY_NS {
namespace {

void merge(float* most, float* sum, float* out, float later_max, float later_sum, const float* later, int head_pad) {
  if (later_sum == 0) return;
  if (*sum == 0) {
    *most = later_max, *sum = later_sum;
    std::memcpy(out, later, head_pad * sizeof(float));
    return;
  }
  const float top = *most > later_max ? *most : later_max;
  const f32 a = exp(set(*most - top)), b = exp(set(later_max - top));
  alignas(64) float fa[kLanes], fb[kLanes];
  store(fa, a), store(fb, b);
  *sum = *sum * fa[0] + later_sum * fb[0];
  *most = top;
  for (int d = 0; d < head_pad; d += kLanes) store(out + d, fma(load(later + d), b, mul(load(out + d), a)));
}

void scale(const float* x, float by, int n, float* out) {
  for (int i = 0; i < n; i++) out[i] = x[i] * by;
}

float probe_read(const std::uint8_t* data, std::size_t bytes) {
  f32 a = set(0), b = a, c = a, d = a;
  for (std::size_t i = 0; i + 256 <= bytes; i += 256) {
    const auto* p = (const float*)(data + i);
    a = add(a, load(p)), b = add(b, load(p + 16)), c = add(c, load(p + 32)), d = add(d, load(p + 48));
  }
  return reduce_add(add(add(a, b), add(c, d)));
}

}  // namespace

extern const Kernels kernels;
const Kernels kernels = {HEADWAY_ISA_NAME, matmul, swiglu, geglu, clamped_swiglu, rms_norm, quantize, to_bf16, rope, {{write_kv, nullptr, attend}, {write_kv8, query8, attend8}},
                         merge, scale, softcap, argmax, exp_sum, sum, tails, keep, permit, probe_int8, probe_read};

}  // namespace headway::HEADWAY_NS
