// Sixteen lanes, written once for four instruction sets. Included only by kernels.cpp, which is compiled once per set.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace headway::HEADWAY_NS {

#if defined(__AVX512F__)

struct f32 { __m512 v; };
struct i32 { __m512i v; };
struct u8 { __m512i v; };  // 64 bytes: lane c holds 4 consecutive k of column c

inline f32 load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store(float* p, f32 a) { _mm512_storeu_ps(p, a.v); }
inline f32 set(float x) { return {_mm512_set1_ps(x)}; }
inline f32 fma(f32 a, f32 b, f32 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline f32 add(f32 a, f32 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline f32 sub(f32 a, f32 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline f32 mul(f32 a, f32 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline f32 div(f32 a, f32 b) { return {_mm512_div_ps(a.v, b.v)}; }
inline f32 max(f32 a, f32 b) { return {_mm512_max_ps(a.v, b.v)}; }
inline f32 min(f32 a, f32 b) { return {_mm512_min_ps(a.v, b.v)}; }
inline f32 abs(f32 a) { return {_mm512_abs_ps(a.v)}; }
inline f32 round(f32 a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
inline i32 to_int(f32 a) { return {_mm512_cvtps_epi32(a.v)}; }
inline f32 to_float(i32 a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline f32 pow2(i32 e) {  // 2^e for -126 <= e <= 127
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(e.v, _mm512_set1_epi32(127)), 23))};
}
inline f32 load_f16(const std::uint16_t* p) { return {_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p))}; }
inline void store_f16(std::uint16_t* p, f32 a) {
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline void store_i8(std::int8_t* p, i32 a) { _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8(a.v)); }
inline void store_u8(std::uint8_t* p, i32 a) { _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8(a.v)); }
inline i32 izero() { return {_mm512_setzero_si512()}; }
inline i32 iset(std::int32_t x) { return {_mm512_set1_epi32(x)}; }
inline i32 iadd(i32 a, i32 b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline int reduce_add(i32 a) { return _mm512_reduce_add_epi32(a.v); }
// Keeps lane i where from <= i < to, else takes `other`.
inline f32 within(int from, int to, f32 a, float other) {
  const auto keep = (__mmask16)(((1u << to) - 1) & ~((1u << from) - 1));
  return {_mm512_mask_blend_ps(keep, _mm512_set1_ps(other), a.v)};
}
// Lane i gets lane i ^ By.
template <int By>
inline f32 crossed(f32 a) {
  if constexpr (By == 8) return {_mm512_shuffle_f32x4(a.v, a.v, 0x4e)};
  if constexpr (By == 4) return {_mm512_shuffle_f32x4(a.v, a.v, 0xb1)};
  if constexpr (By == 2) return {_mm512_permute_ps(a.v, 0x4e)};
  return {_mm512_permute_ps(a.v, 0xb1)};
}
// Bit i: a[i] >= b[i].
inline unsigned reaches(f32 a, f32 b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ); }
// Lane i of a where bit i is set, else `other`.
inline f32 chosen(unsigned bits, f32 a, float other) { return {_mm512_mask_blend_ps((__mmask16)bits, _mm512_set1_ps(other), a.v)}; }
// The greatest magnitude of 32 values; infinite or NaN if any is (as integers, magnitudes order like floats).
inline float magnitude(f32 a, f32 b) {
  return std::bit_cast<float>(
      _mm512_reduce_max_epi32(_mm512_max_epi32(_mm512_castps_si512(abs(a).v), _mm512_castps_si512(abs(b).v))));
}
inline u8 load_u8(const std::uint8_t* p) { return {_mm512_loadu_si512(p)}; }
inline u8 low(u8 a) { return {_mm512_and_si512(a.v, _mm512_set1_epi8(15))}; }
inline u8 high(u8 a) { return {_mm512_and_si512(_mm512_srli_epi16(a.v, 4), _mm512_set1_epi8(15))}; }
// acc[c] += sum over 4 k of w[c][k] * x[k]; exact.
inline i32 dot4(i32 acc, u8 w, const std::int8_t* x) {
  std::int32_t quad;
  std::memcpy(&quad, x, 4);
#if defined(__AVX512VNNI__)
  return {_mm512_dpbusd_epi32(acc.v, w.v, _mm512_set1_epi32(quad))};
#else
  const __m512i s = _mm512_set1_epi32(quad);
  const __m512i even = _mm512_madd_epi16(_mm512_and_si512(w.v, _mm512_set1_epi16(255)),
                                         _mm512_srai_epi16(_mm512_slli_epi16(s, 8), 8));
  const __m512i odd = _mm512_madd_epi16(_mm512_srli_epi16(w.v, 8), _mm512_srai_epi16(s, 8));
  return {_mm512_add_epi32(acc.v, _mm512_add_epi32(even, odd))};
#endif
}
// The same with the signs changed over: `w` holds signed bytes, `x` unsigned ones.
inline i32 dot4_signed(i32 acc, u8 w, const std::uint8_t* x) {
  std::int32_t quad;
  std::memcpy(&quad, x, 4);
  return {_mm512_dpbusd_epi32(acc.v, _mm512_set1_epi32(quad), w.v)};
}
// acc[c] += w[c][0] * x[0] + w[c][1] * x[1] over pairs of bf16.
inline f32 dot2_bf16(f32 acc, const std::uint16_t* w, const std::uint16_t* x) {
  std::uint32_t pair;
  std::memcpy(&pair, x, 4);
  const __m512i wv = _mm512_loadu_si512(w);
#if defined(__AVX512BF16__)
  return {_mm512_dpbf16_ps(acc.v, (__m512bh)wv, (__m512bh)_mm512_set1_epi32((int)pair))};
#else
  const __m512 w0 = _mm512_castsi512_ps(_mm512_slli_epi32(wv, 16));
  const __m512 w1 = _mm512_castsi512_ps(_mm512_and_si512(wv, _mm512_set1_epi32((int)0xffff0000u)));
  acc.v = _mm512_fmadd_ps(w0, _mm512_set1_ps(std::bit_cast<float>(pair << 16)), acc.v);
  return {_mm512_fmadd_ps(w1, _mm512_set1_ps(std::bit_cast<float>(pair & 0xffff0000u)), acc.v)};
#endif
}

#elif defined(__AVX2__)

struct f32 { __m256 a, b; };
struct i32 { __m256i a, b; };
struct u8 { __m256i a, b; };

inline f32 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, f32 x) { _mm256_storeu_ps(p, x.a), _mm256_storeu_ps(p + 8, x.b); }
inline f32 set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline f32 fma(f32 x, f32 y, f32 z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
inline f32 add(f32 x, f32 y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline f32 sub(f32 x, f32 y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline f32 mul(f32 x, f32 y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline f32 div(f32 x, f32 y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline f32 max(f32 x, f32 y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline f32 min(f32 x, f32 y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline f32 abs(f32 x) {
  const __m256 m = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  return {_mm256_and_ps(x.a, m), _mm256_and_ps(x.b, m)};
}
inline f32 round(f32 x) {
  return {_mm256_round_ps(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
          _mm256_round_ps(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
inline i32 to_int(f32 x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
inline f32 to_float(i32 x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
inline f32 pow2(i32 e) {
  const __m256i bias = _mm256_set1_epi32(127);
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(e.a, bias), 23)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(e.b, bias), 23))};
}
inline f32 load_f16(const std::uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)), _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(p + 8)))};
}
inline void store_f16(std::uint16_t* p, f32 x) {
  _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  _mm_storeu_si128((__m128i*)(p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline void store_i8(std::int8_t* p, i32 x) {
  const __m256i w = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
  _mm_storeu_si128((__m128i*)p, _mm_packs_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1)));
}
inline void store_u8(std::uint8_t* p, i32 x) {
  const __m256i w = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
  _mm_storeu_si128((__m128i*)p, _mm_packus_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1)));
}
inline i32 izero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
inline i32 iset(std::int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline i32 iadd(i32 x, i32 y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
inline int reduce_add(i32 x) {
  alignas(32) std::int32_t t[8];
  _mm256_store_si256((__m256i*)t, _mm256_add_epi32(x.a, x.b));
  return t[0] + t[1] + t[2] + t[3] + t[4] + t[5] + t[6] + t[7];
}
inline __m256 keep8(int from, int to) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_castsi256_ps(_mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(from), lane),
                                                 _mm256_cmpgt_epi32(_mm256_set1_epi32(to), lane)));
}
inline f32 within(int from, int to, f32 x, float other) {
  const __m256 o = _mm256_set1_ps(other);
  return {_mm256_blendv_ps(o, x.a, keep8(from, to)), _mm256_blendv_ps(o, x.b, keep8(from - 8, to - 8))};
}
inline unsigned reaches(f32 x, f32 y) {
  return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(x.a, y.a, _CMP_GE_OQ)) |
         (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(x.b, y.b, _CMP_GE_OQ)) << 8;
}
template <int By>
inline f32 crossed(f32 x) {
  if constexpr (By == 8) return {x.b, x.a};
  if constexpr (By == 4) return {_mm256_permute2f128_ps(x.a, x.a, 1), _mm256_permute2f128_ps(x.b, x.b, 1)};
  if constexpr (By == 2) return {_mm256_permute_ps(x.a, 0x4e), _mm256_permute_ps(x.b, 0x4e)};
  return {_mm256_permute_ps(x.a, 0xb1), _mm256_permute_ps(x.b, 0xb1)};
}
inline __m256 chosen8(unsigned bits, __m256 x, __m256 other) {
  const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i in = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)bits), lane), lane);
  return _mm256_blendv_ps(other, x, _mm256_castsi256_ps(in));
}
inline f32 chosen(unsigned bits, f32 x, float other) {
  const __m256 o = _mm256_set1_ps(other);
  return {chosen8(bits, x.a, o), chosen8(bits >> 8, x.b, o)};
}
inline float magnitude(f32 x, f32 y) {
  const f32 p = abs(x), q = abs(y);
  alignas(32) std::int32_t t[8];
  _mm256_store_si256((__m256i*)t,
                     _mm256_max_epi32(_mm256_max_epi32(_mm256_castps_si256(p.a), _mm256_castps_si256(p.b)),
                                      _mm256_max_epi32(_mm256_castps_si256(q.a), _mm256_castps_si256(q.b))));
  std::int32_t m = t[0];
  for (int i = 1; i < 8; i++) m = t[i] > m ? t[i] : m;
  return std::bit_cast<float>(m);
}
inline u8 load_u8(const std::uint8_t* p) {
  return {_mm256_loadu_si256((const __m256i*)p), _mm256_loadu_si256((const __m256i*)(p + 32))};
}
inline u8 low(u8 x) {
  const __m256i m = _mm256_set1_epi8(15);
  return {_mm256_and_si256(x.a, m), _mm256_and_si256(x.b, m)};
}
inline u8 high(u8 x) {
  const __m256i m = _mm256_set1_epi8(15);
  return {_mm256_and_si256(_mm256_srli_epi16(x.a, 4), m), _mm256_and_si256(_mm256_srli_epi16(x.b, 4), m)};
}
// maddubs would saturate with 8-bit weights (2 * 255 * 127 > 32767), so even and odd k are widened apart.
inline i32 dot4(i32 acc, u8 w, const std::int8_t* x) {
  std::int32_t quad;
  std::memcpy(&quad, x, 4);
  const __m256i s = _mm256_set1_epi32(quad), m = _mm256_set1_epi16(255);
  const __m256i s0 = _mm256_srai_epi16(_mm256_slli_epi16(s, 8), 8), s1 = _mm256_srai_epi16(s, 8);
  acc.a = _mm256_add_epi32(acc.a, _mm256_add_epi32(_mm256_madd_epi16(_mm256_and_si256(w.a, m), s0),
                                                   _mm256_madd_epi16(_mm256_srli_epi16(w.a, 8), s1)));
  acc.b = _mm256_add_epi32(acc.b, _mm256_add_epi32(_mm256_madd_epi16(_mm256_and_si256(w.b, m), s0),
                                                   _mm256_madd_epi16(_mm256_srli_epi16(w.b, 8), s1)));
  return acc;
}
inline i32 dot4_signed(i32 acc, u8 w, const std::uint8_t* x) {
  std::int32_t quad;
  std::memcpy(&quad, x, 4);
  const __m256i s = _mm256_set1_epi32(quad), s0 = _mm256_and_si256(s, _mm256_set1_epi16(255)), s1 = _mm256_srli_epi16(s, 8);
  const auto both = [&](__m256i v) {
    return _mm256_add_epi32(_mm256_madd_epi16(_mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8), s0),
                            _mm256_madd_epi16(_mm256_srai_epi16(v, 8), s1));
  };
  acc.a = _mm256_add_epi32(acc.a, both(w.a)), acc.b = _mm256_add_epi32(acc.b, both(w.b));
  return acc;
}
inline f32 dot2_bf16(f32 acc, const std::uint16_t* w, const std::uint16_t* x) {
  std::uint32_t pair;
  std::memcpy(&pair, x, 4);
  const __m256 x0 = _mm256_set1_ps(std::bit_cast<float>(pair << 16));
  const __m256 x1 = _mm256_set1_ps(std::bit_cast<float>(pair & 0xffff0000u));
  const __m256i mask = _mm256_set1_epi32((int)0xffff0000u);
  const __m256i wa = _mm256_loadu_si256((const __m256i*)w), wb = _mm256_loadu_si256((const __m256i*)(w + 16));
  acc.a = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_slli_epi32(wa, 16)), x0, acc.a);
  acc.b = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_slli_epi32(wb, 16)), x0, acc.b);
  acc.a = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_and_si256(wa, mask)), x1, acc.a);
  acc.b = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_and_si256(wb, mask)), x1, acc.b);
  return acc;
}

#else  // portable: plain loops over arrays, for the compiler to vectorise with whatever there is

struct f32 { float v[16]; };
struct i32 { std::int32_t v[16]; };
struct u8 { std::uint8_t v[64]; };

#define HEADWAY_EACH(expr) \
  f32 r;                   \
  for (int i = 0; i < 16; i++) r.v[i] = (expr); \
  return r;
inline f32 load(const float* p) { f32 r; std::memcpy(r.v, p, 64); return r; }
inline void store(float* p, f32 a) { std::memcpy(p, a.v, 64); }
inline f32 set(float x) { HEADWAY_EACH(x) }
inline f32 fma(f32 a, f32 b, f32 c) { HEADWAY_EACH(a.v[i] * b.v[i] + c.v[i]) }
inline f32 add(f32 a, f32 b) { HEADWAY_EACH(a.v[i] + b.v[i]) }
inline f32 sub(f32 a, f32 b) { HEADWAY_EACH(a.v[i] - b.v[i]) }
inline f32 mul(f32 a, f32 b) { HEADWAY_EACH(a.v[i] * b.v[i]) }
inline f32 div(f32 a, f32 b) { HEADWAY_EACH(a.v[i] / b.v[i]) }
inline f32 max(f32 a, f32 b) { HEADWAY_EACH(a.v[i] > b.v[i] ? a.v[i] : b.v[i]) }
inline f32 min(f32 a, f32 b) { HEADWAY_EACH(a.v[i] < b.v[i] ? a.v[i] : b.v[i]) }
inline f32 abs(f32 a) { HEADWAY_EACH(std::fabs(a.v[i])) }
inline f32 round(f32 a) { HEADWAY_EACH(std::nearbyintf(a.v[i])) }
inline i32 to_int(f32 a) { i32 r; for (int i = 0; i < 16; i++) r.v[i] = (std::int32_t)std::nearbyintf(a.v[i]); return r; }
inline f32 to_float(i32 a) { HEADWAY_EACH((float)a.v[i]) }
inline f32 pow2(i32 e) { HEADWAY_EACH(std::bit_cast<float>((std::uint32_t)(e.v[i] + 127) << 23)) }
inline f32 load_f16(const std::uint16_t* p) {
  // exact for normal, subnormal and special halves: scale by 2^112 after moving the bits in place
  f32 r;
  for (int i = 0; i < 16; i++) {
    const std::uint32_t h = p[i], sign = (h & 0x8000u) << 16, rest = h & 0x7fffu;
    const float f = rest >= 0x7c00u ? std::bit_cast<float>(0x7f800000u | (rest & 0x3ffu) << 13)
                                    : std::bit_cast<float>(rest << 13) * 0x1p112f;
    r.v[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(f) | sign);
  }
  return r;
}
inline std::uint16_t half_of(float x) {  // round to nearest even
  const std::uint32_t b = std::bit_cast<std::uint32_t>(x), sign = b >> 16 & 0x8000u;
  const std::uint32_t a = b & 0x7fffffffu;
  if (a > 0x7f800000u) return (std::uint16_t)(sign | 0x7e00u);
  if (a >= 0x477ff000u) return (std::uint16_t)(sign | 0x7c00u);
  if (a < 0x38800000u) {  // subnormal: adding 0.5 aligns the bits and rounds
    return (std::uint16_t)(sign | (std::bit_cast<std::uint32_t>(std::bit_cast<float>(a) + 0.5f) - 0x3f000000u));
  }
  return (std::uint16_t)(sign | ((a + 0xfffu + (a >> 13 & 1u) - 0x38000000u) >> 13));
}
inline void store_f16(std::uint16_t* p, f32 a) { for (int i = 0; i < 16; i++) p[i] = half_of(a.v[i]); }
inline void store_i8(std::int8_t* p, i32 a) { for (int i = 0; i < 16; i++) p[i] = (std::int8_t)a.v[i]; }
inline void store_u8(std::uint8_t* p, i32 a) { for (int i = 0; i < 16; i++) p[i] = (std::uint8_t)a.v[i]; }
inline i32 izero() { return {}; }
inline i32 iset(std::int32_t x) { i32 r; for (int i = 0; i < 16; i++) r.v[i] = x; return r; }
inline i32 iadd(i32 a, i32 b) { i32 r; for (int i = 0; i < 16; i++) r.v[i] = a.v[i] + b.v[i]; return r; }
inline int reduce_add(i32 a) { int s = 0; for (int i = 0; i < 16; i++) s += a.v[i]; return s; }
inline f32 within(int from, int to, f32 a, float other) { HEADWAY_EACH(from <= i && i < to ? a.v[i] : other) }
template <int By>
inline f32 crossed(f32 a) { HEADWAY_EACH(a.v[i ^ By]) }
inline unsigned reaches(f32 a, f32 b) {
  unsigned bits = 0;
  for (int i = 0; i < 16; i++) bits |= (unsigned)(a.v[i] >= b.v[i]) << i;
  return bits;
}
inline f32 chosen(unsigned bits, f32 a, float other) { HEADWAY_EACH(bits >> i & 1 ? a.v[i] : other) }
inline float magnitude(f32 a, f32 b) {
  std::int32_t m = 0;
  for (int i = 0; i < 16; i++) {
    const auto x = (std::int32_t)(std::bit_cast<std::uint32_t>(a.v[i]) & 0x7fffffffu);
    const auto y = (std::int32_t)(std::bit_cast<std::uint32_t>(b.v[i]) & 0x7fffffffu);
    m = x > m ? x : m, m = y > m ? y : m;
  }
  return std::bit_cast<float>(m);
}
inline u8 load_u8(const std::uint8_t* p) { u8 r; std::memcpy(r.v, p, 64); return r; }
inline u8 low(u8 a) { u8 r; for (int i = 0; i < 64; i++) r.v[i] = a.v[i] & 15; return r; }
inline u8 high(u8 a) { u8 r; for (int i = 0; i < 64; i++) r.v[i] = a.v[i] >> 4; return r; }
inline i32 dot4(i32 acc, const u8& w, const std::int8_t* x) {
  for (int c = 0; c < 16; c++)
    acc.v[c] += w.v[4 * c] * x[0] + w.v[4 * c + 1] * x[1] + w.v[4 * c + 2] * x[2] + w.v[4 * c + 3] * x[3];
  return acc;
}
inline i32 dot4_signed(i32 acc, const u8& w, const std::uint8_t* x) {
  const auto s = [&](int i) { return (std::int8_t)w.v[i]; };
  for (int c = 0; c < 16; c++)
    acc.v[c] += s(4 * c) * x[0] + s(4 * c + 1) * x[1] + s(4 * c + 2) * x[2] + s(4 * c + 3) * x[3];
  return acc;
}
inline f32 dot2_bf16(f32 acc, const std::uint16_t* w, const std::uint16_t* x) {
  const float x0 = std::bit_cast<float>((std::uint32_t)x[0] << 16), x1 = std::bit_cast<float>((std::uint32_t)x[1] << 16);
  for (int c = 0; c < 16; c++) {
    acc.v[c] = std::bit_cast<float>((std::uint32_t)w[2 * c] << 16) * x0 + acc.v[c];
    acc.v[c] = std::bit_cast<float>((std::uint32_t)w[2 * c + 1] << 16) * x1 + acc.v[c];
  }
  return acc;
}
#undef HEADWAY_EACH

#endif

// Lanes are summed as a fixed tree: 8, 4, 2, 1.
inline float reduce_add(f32 a) {
#if defined(__AVX512F__)
  __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  c = _mm_add_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
#else
  alignas(64) float t[16];
  store(t, a);
  for (int w = 8; w > 0; w /= 2)
    for (int i = 0; i < w; i++) t[i] += t[i + w];
  return t[0];
#endif
}
inline float reduce_max(f32 a) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps(a.v);
#else
  alignas(64) float t[16];
  store(t, a);
  float m = t[0];
  for (int i = 1; i < 16; i++) m = t[i] > m ? t[i] : m;
  return m;
#endif
}

// e^x, |relative error| < 2e-7 (Cephes' expf polynomial). Clamped to [-87, 88]: never 0, so what must weigh nothing is
// masked by the caller; NaN becomes e^-87.
inline f32 exp(f32 x) {
  x = min(max(x, set(-87.0f)), set(88.0f));
  const f32 n = round(mul(x, set(1.44269504088896341f)));
  f32 r = fma(n, set(-0.693359375f), x);
  r = fma(n, set(2.12194440e-4f), r);
  f32 p = set(1.9875691500e-4f);
  p = fma(p, r, set(1.3981999507e-3f));
  p = fma(p, r, set(8.3334519073e-3f));
  p = fma(p, r, set(4.1665795894e-2f));
  p = fma(p, r, set(1.6666665459e-1f));
  p = fma(p, r, set(5.0000001201e-1f));
  p = add(fma(p, mul(r, r), r), set(1.0f));
  return mul(p, pow2(to_int(n)));
}

}  // namespace headway::HEADWAY_NS
