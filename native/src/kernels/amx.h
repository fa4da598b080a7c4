// Multiplications by many rows in AMX: 16 rows by 16 columns by a group's 32 inputs in one instruction. Sums of products are
// exact, and what follows happens in the order that few rows have, so the bits are those of AVX512.
#pragma once

#if defined(__AMX_INT8__)

namespace headway::HEADWAY_NS {
namespace {

constexpr int kAmxRows = 16;      // in one block; what is left over is quicker without
constexpr int kAmxGroups = 1024;  // groups that a tile of weights may have: half a MiB of stack when unpacked

template <Format F>
constexpr bool kAmx = F == Format::Q4 || F == Format::Q8 || F == Format::Q8M;

// Tiles 0 to 3: products [16 rows][16]; 4 and 5: inputs [16 rows][32]; 6 and 7: weights [8][16][4].
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start = 0, unused[14] = {};
  std::uint16_t bytes[16] = {64, 64, 64, 64, kGroup, kGroup, 64, 64};  // in a row
  std::uint8_t rows[16] = {kAmxRows, kAmxRows, kAmxRows, kAmxRows, kAmxRows, kAmxRows, kGroup / 4, kGroup / 4};
};

constexpr TileShapes kTileShapes;

// Gives up the tiles at its end, so that what the kernel saves of a thread stays small.
struct TileSession {
  TileSession() { _tile_loadconfig(&kTileShapes); }
  ~TileSession() { _tile_release(); }
  TileSession(const TileSession&) = delete;
};

// Products of a group: inputs [16][ld] by weights [8][16][4].
template <int P>
inline void amx_group(const std::int8_t* in, std::size_t ld, const std::uint8_t* weights, std::int32_t* products) {
#define HEADWAY_AMX_GROUP(c, a, b) \
  _tile_loadd(b, weights, 64);     \
  _tile_loadd(a, in, (long)ld);    \
  _tile_zero(c);                   \
  _tile_dpbsud(c, a, b);           \
  _tile_stored(c, products, 64);
  if constexpr (P == 0) {
    HEADWAY_AMX_GROUP(0, 4, 6)
  } else if constexpr (P == 1) {
    HEADWAY_AMX_GROUP(1, 5, 7)
  } else if constexpr (P == 2) {
    HEADWAY_AMX_GROUP(2, 4, 6)
  } else {
    HEADWAY_AMX_GROUP(3, 5, 7)
  }
#undef HEADWAY_AMX_GROUP
}

// Codes of `count` groups, a byte each: tiles wait long for what has only just been written, so all are unpacked first.
inline void amx_unpack(const std::uint8_t* codes, int count, std::uint8_t* to) {
  for (int g = 0; g < count; g++, codes += kGroup * kLanes / 2, to += kGroup * kLanes) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
      const u8 v = load_u8(codes + 64 * j);
      _mm512_store_si512(to + 64 * j, low(v).v);
      _mm512_store_si512(to + 64 * (j + 4), high(v).v);
    }
  }
}

// Adds a group's products, scaled, to the sums. Inlined, or the sums would leave their registers.
template <Format F>
[[gnu::always_inline]] inline void amx_add(const std::uint8_t* scales, const float* scale, const float* sum, const std::int32_t* offset,
                                           int groups, const std::int32_t* products, f32 (&acc)[kAmxRows]) {
  const auto* s = (const std::uint16_t*)scales;
  const f32 d = load_f16(s), second = F == Format::Q8 ? set(0) : load_f16(s + kLanes);
#pragma GCC unroll 16
  for (int r = 0; r < kAmxRows; r++, scale += groups, sum += groups, offset += 2 * groups) {
    i32 p = {_mm512_load_si512(products + r * kLanes)};
    if constexpr (F == Format::Q8) p = iadd(p, iset(offset[0] + offset[1]));
    acc[r] = fma(mul(d, set(*scale)), to_float(p), acc[r]);
    if constexpr (F != Format::Q8) acc[r] = fma(second, set(*sum), acc[r]);
  }
}

// 16 rows of one tile, whose codes are `weights`. Products are made three groups ahead.
template <Format F>
void amx_block(const Packed& w, int tile, const std::uint8_t* weights, const Activations& x, int row, float* out, std::size_t stride, bool add_to) {
  constexpr FormatInfo fi = info(F);
  const int groups = w.groups;
  const std::size_t ld = (std::size_t)groups * kGroup;
  const std::uint8_t* next = w.data + (std::size_t)(tile + 1) * w.tile_bytes;
  const std::uint8_t* scales = w.data + (std::size_t)tile * w.tile_bytes + (std::size_t)groups * fi.code_bytes;
  const std::int8_t* in = x.codes + row * ld;
  const float* scale = x.scale + (std::size_t)row * groups;
  const float* sum = x.sum + (std::size_t)row * groups;
  const std::int32_t* offset = x.offset + (std::size_t)row * groups * 2;
  alignas(64) std::int32_t products[4][kAmxRows * kLanes];
  f32 acc[kAmxRows];
#pragma GCC unroll 16
  for (int r = 0; r < kAmxRows; r++) acc[r] = set(0);
#define HEADWAY_AMX_START(p, g) \
  if ((g) < groups) amx_group<p>(in + (g) * kGroup, ld, weights + (std::size_t)(g) * kGroup * kLanes, products[p]);
#define HEADWAY_AMX_ADD(p, g)                                              \
  ahead<fi.code_bytes>(next + (std::size_t)(g) * fi.code_bytes);           \
  ahead<fi.scale_bytes>(scales + w.tile_bytes + (g) * fi.scale_bytes);     \
  amx_add<F>(scales + (g) * fi.scale_bytes, scale + (g), sum + (g), offset + 2 * (g), groups, products[p], acc);
  // The compiler does not see that tiles are loaded from memory: what was written must be there.
  asm volatile("" ::: "memory");
  HEADWAY_AMX_START(0, 0)
  HEADWAY_AMX_START(1, 1)
  HEADWAY_AMX_START(2, 2)
  for (int g = 0;; g += 4) {
    HEADWAY_AMX_START(3, g + 3)
    HEADWAY_AMX_ADD(0, g)
    if (g + 1 >= groups) break;
    HEADWAY_AMX_START(0, g + 4)
    HEADWAY_AMX_ADD(1, g + 1)
    if (g + 2 >= groups) break;
    HEADWAY_AMX_START(1, g + 5)
    HEADWAY_AMX_ADD(2, g + 2)
    if (g + 3 >= groups) break;
    HEADWAY_AMX_START(2, g + 6)
    HEADWAY_AMX_ADD(3, g + 3)
    if (g + 4 >= groups) break;
  }
#undef HEADWAY_AMX_START
#undef HEADWAY_AMX_ADD
#pragma GCC unroll 16
  for (int r = 0; r < kAmxRows; r++) {
    float* o = out + (std::size_t)(row + r) * stride + (std::size_t)tile * kLanes;
    if (w.bias) acc[r] = add(acc[r], load(w.bias + (std::size_t)tile * kLanes));
    store(o, add_to ? add(load(o), acc[r]) : acc[r]);
  }
}

// As many rows as make whole blocks, from `row` on; says how many.
template <Format F>
int amx_rows(const Packed& w, Tiles tiles, const Activations& x, int row, int rows, float* out, std::size_t stride, bool add_to) {
  rows -= rows % kAmxRows;
  if (!rows || w.groups > kAmxGroups) return 0;
  alignas(64) std::uint8_t unpacked[F == Format::Q4 ? kAmxGroups * kGroup * kLanes : 1];
  const TileSession session;
  for (int t = tiles.first; t < tiles.first + tiles.count; t++) {
    const std::uint8_t* weights = w.data + (std::size_t)t * w.tile_bytes;
    if constexpr (F == Format::Q4) amx_unpack(weights, w.groups, unpacked), weights = unpacked;
    for (int r = 0; r < rows; r += kAmxRows) amx_block<F>(w, t, weights, x, row + r, out, stride, add_to);
  }
  return rows;
}

}  // namespace
}  // namespace headway::HEADWAY_NS

#endif
