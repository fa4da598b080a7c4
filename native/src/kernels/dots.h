// Dot products of a group's 32 inputs with the columns of tiles, for R rows: exact integers, so their order is free.
#pragma once

namespace headway::HEADWAY_NS {
namespace {

// Codes 4j to 4j + 3 of a group.
template <Format F>
inline u8 unpack(const std::uint8_t* code, int j) {
  if constexpr (F == Format::Q4) return j < 4 ? low(load_u8(code + 64 * j)) : high(load_u8(code + 64 * (j - 4)));
  return load_u8(code + 64 * j);
}

#if defined(__AVX2__) && !defined(__AVX512F__)

// Weights of 4 bits: pairs of products are added in 16 bits, which all eight of a group do not fill: 8 * 2 * 15 * 127 < 2^15.
template <int R>
inline void dots_q4(const std::uint8_t* tile, const std::int8_t* codes, std::size_t ld, i32 (&sum)[R]) {
  const __m256i one = _mm256_set1_epi16(1);
  i32 part[R];
#pragma GCC unroll 4
  for (int r = 0; r < R; r++) part[r] = izero();
#pragma GCC unroll 8
  for (int j = 0; j < 8; j++) {
    const u8 v = unpack<Format::Q4>(tile, j);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {
      std::int32_t quad;
      std::memcpy(&quad, codes + r * ld + 4 * j, 4);
      const __m256i x = _mm256_set1_epi32(quad);
      part[r].a = _mm256_add_epi16(part[r].a, _mm256_maddubs_epi16(v.a, x));
      part[r].b = _mm256_add_epi16(part[r].b, _mm256_maddubs_epi16(v.b, x));
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; r++)
    sum[r] = iadd(sum[r], {_mm256_madd_epi16(part[r].a, one), _mm256_madd_epi16(part[r].b, one)});
}

#endif

// Loops over rows and tiles are unrolled as a whole: all sums stay in registers and run side by side.
template <Format F, int R, int T>
inline void dots(const std::uint8_t* tile, std::size_t tile_bytes, const std::int8_t* codes, std::size_t ld, i32 (&a)[T][R],
                 i32 (&b)[T][R]) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  if constexpr (F == Format::Q4) {
    static_assert(T == 1);
    return dots_q4<R>(tile, codes, ld, a[0]);
  }
#endif
#pragma GCC unroll 8
  for (int j = 0; j < 8; j++) {
#pragma GCC unroll 8
    for (int t = 0; t < T; t++) {
      const u8 v = unpack<F>(tile + t * tile_bytes, j);
#pragma GCC unroll 8
      for (int r = 0; r < R; r++) {
        const std::int8_t* c = codes + r * ld + 4 * j;
        i32& to = F == Format::Q8S && j >= 4 ? b[t][r] : a[t][r];
        to = dot4(to, v, c);
      }
    }
  }
}

#if defined(__AVX2__) && !defined(__AVX512F__)

// Twelve independent chains, as in `dots`. What is multiplied must be unknown each time, or it would be multiplied once for all.
double probe_int8(long rounds) {
  const __m256i w = _mm256_set1_epi8(7);
  __m256i x = _mm256_setr_epi32(1, -2, 3, -4, 5, -6, 7, -8);
  __m256i sum = _mm256_setzero_si256();
  const __m256i one = _mm256_set1_epi16(1);
  for (long i = 0; i < rounds; i++) {
    __m256i c[12];
#pragma GCC unroll 12
    for (int k = 0; k < 12; k++) c[k] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) {
#pragma GCC unroll 12
      for (int k = 0; k < 12; k++) {
        asm("" : "+x"(x));
        c[k] = _mm256_add_epi16(c[k], _mm256_maddubs_epi16(w, x));
      }
    }
#pragma GCC unroll 12
    for (int k = 0; k < 12; k++) sum = _mm256_add_epi32(sum, _mm256_madd_epi16(c[k], one));
  }
  static volatile int sink;
  sink = reduce_add(i32{sum, sum});
  (void)sink;
  return (double)rounds * 12 * 8 * 32;
}

#else

// Twelve independent chains, each a variable of its own (an array would be kept in memory) that starts from another value
// (equal chains would be computed once).
double probe_int8(long rounds) {
  alignas(64) std::uint8_t codes[64];
  const std::int8_t x[4] = {1, -2, 3, -4};
  for (int i = 0; i < 64; i++) codes[i] = (std::uint8_t)(i & 15);
  const u8 w = load_u8(codes);
  i32 a = iset(0), b = iset(1), c = iset(2), d = iset(3), e = iset(4), f = iset(5);
  i32 g = iset(6), h = iset(7), k = iset(8), l = iset(9), m = iset(10), n = iset(11);
  for (long i = 0; i < rounds; i++) {
    a = dot4(a, w, x), b = dot4(b, w, x), c = dot4(c, w, x), d = dot4(d, w, x);
    e = dot4(e, w, x), f = dot4(f, w, x), g = dot4(g, w, x), h = dot4(h, w, x);
    k = dot4(k, w, x), l = dot4(l, w, x), m = dot4(m, w, x), n = dot4(n, w, x);
  }
  const i32 sum = iadd(iadd(iadd(iadd(a, b), iadd(c, d)), iadd(iadd(e, f), iadd(g, h))), iadd(iadd(k, l), iadd(m, n)));
  static volatile int sink;
  sink = reduce_add(sum);
  (void)sink;
  return (double)rounds * 12 * 64;
}

#endif

}  // namespace
}  // namespace headway::HEADWAY_NS
