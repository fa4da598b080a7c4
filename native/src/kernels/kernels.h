// The inner loops, as one table per instruction set. All are pure functions over caller's memory; none allocates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "headway/kv_type.h"

namespace headway {

inline constexpr int kLanes = 16;    // columns in a tile, keys in a KV block
inline constexpr int kGroup = 32;    // inputs that share an activation scale
inline constexpr int kSplit = 256;   // keys attended before partial results are merged, at absolute positions
inline constexpr int kTails = 3;     // thresholds looked at in one pass
inline constexpr int kQueries = 24;  // query rows that share one walk over the keys

constexpr std::size_t padded(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

// How packed weights are stored. w = d * (code - zero) + m; Q8 formats without m have zero = 128.
enum class Format {
  F32,   // [k][16] float
  F16,   // [k][16] half
  BF16,  // [k/2][16][2] bfloat16, inputs rounded to bfloat16
  Q4,    // per group: 256 bytes of nibbles, then per group half d[16], m[16]
  Q8,    // per group: 512 bytes, then per group half d[16]
  Q8M,   // per group: 512 bytes, then per group half d[16], m[16]
  Q8S,   // per group: 512 bytes, then per group half d[2][16]: a scale for every 16 inputs
};

struct FormatInfo {
  int code_bytes;   // per tile and group
  int scale_bytes;  // per tile and group
};

constexpr FormatInfo info(Format f) {
  switch (f) {
    case Format::F32: return {kGroup * kLanes * 4, 0};
    case Format::F16:
    case Format::BF16: return {kGroup * kLanes * 2, 0};
    case Format::Q4: return {kGroup * kLanes / 2, 64};
    case Format::Q8: return {kGroup * kLanes, 32};
    case Format::Q8M:
    case Format::Q8S: return {kGroup * kLanes, 64};
  }
  return {0, 0};
}

// A matrix of `rows` outputs by `columns` inputs, in tiles of 16 outputs, each [groups] codes then [groups] scales.
// Quantised codes: byte 4c+i of vector j of a group is the code of input 4j+i for output c; nibbles hold vector j in
// the low and vector j+4 in the high half.
struct Packed {
  Format format = Format::F32;
  int rows = 0, columns = 0, tiles = 0, groups = 0;
  std::size_t tile_bytes = 0;
  const std::uint8_t* data = nullptr;
  const float* bias = nullptr;  // [tiles * 16] or null
};

// Inputs of a matrix, each row padded with zeros to whole groups, in the forms its formats need.
struct Activations {
  int groups = 0;
  const float* f32 = nullptr;            // [rows][groups * 32]
  const std::uint16_t* bf16 = nullptr;   // [rows][groups * 32]
  const std::int8_t* codes = nullptr;    // [rows][groups * 32]; x = scale * code
  const float* scale = nullptr;          // [rows][groups]
  const float* sum = nullptr;            // [rows][groups]: scale * sum of the group's codes
  const std::int32_t* offset = nullptr;  // [rows][2 * groups]: -128 * sum of 16 codes
};

// How the 16 keys and values of one KV head in one block are stored; `pad` is head_dim padded to kv_pad().
//   F16   K half [pad][16 keys], V half [16][pad]
//   Int8  K code + 128 [pad/4][16 keys][4], V codes [4][pad][4 keys], half K scales [pad/32][16], half V scales [16]

constexpr int kv_pad(KvType t, int head_dim) { return (int)padded((std::size_t)head_dim, t == KvType::F16 ? kLanes : kGroup); }
constexpr std::size_t kv_part_bytes(KvType t, int pad) {
  return t == KvType::F16 ? (std::size_t)64 * pad : padded((std::size_t)33 * pad + 32, 64);
}

// Queries that share one walk over a KV head's keys.
struct Attention {
  const std::uint8_t* pool = nullptr;    // this layer's first block, at this head
  std::size_t block_stride = 0;          // bytes from block to block
  const std::uint32_t* table = nullptr;  // block of each 16 positions
  int head_dim = 0, head_pad = 0;
  float scale = 0;
  int count = 0;                              // queries, <= max(kQueries, heads per KV head)
  const float* const* queries = nullptr;      // [count] -> [head_dim]
  const int* last = nullptr;                  // [count]: last position each query sees
  const int* first = nullptr;                 // [count]: first position each query sees
  const std::int8_t* const* codes = nullptr;  // the queries for 8-bit keys, as Activations: [count] -> [head_pad]
  const float* const* scales = nullptr;       // [count] -> [head_pad / 32]
  const std::int32_t* const* offsets = nullptr;  // [count] -> [2 * head_pad / 32]
  float softcap = 0;                          // scores become softcap * tanh(score / softcap); 0: stay
};

struct KvKernels {
  // Writes one token's key and value at `offset` in its block; values beyond the type's range are clamped to it.
  void (*write)(const float* k, const float* v, int head_dim, int head_pad, int offset, std::uint8_t* block);
  // A query in the form that the keys take (null: as it is): see Attention::codes.
  void (*query)(const float* q, int head_dim, int head_pad, std::int8_t* codes, float* scale, std::int32_t* offset);
  // Attends keys [split*256, split*256+256): max, sum of weights, weighted sum [count][head_pad] per query (sum 0: none
  // seen). `scratch`: count * 256 floats.
  void (*attend)(const Attention& a, int split, float* scratch, float* max, float* sum, float* out);
};

// Neighbouring tiles of a matrix.
struct Tiles {
  int first, count;
};

inline constexpr int kTileGroup = 2;  // tiles that are best asked for together

// Tile groups of a matrix, and the tiles of one.
static inline int groups_of(const Packed& m) { return (m.tiles + kTileGroup - 1) / kTileGroup; }
static inline Tiles group_of(const Packed& m, int i) {
  return {i * kTileGroup, m.tiles - i * kTileGroup < kTileGroup ? m.tiles - i * kTileGroup : kTileGroup};
}

struct Kernels {
  const char* name;
  // out[r][tile*16 .. +16] = (add: +=) x[r] . w + bias, for `rows` rows from `row`; out has `stride` floats per row.
  void (*matmul)(const Packed& w, Tiles tiles, const Activations& x, int row, int rows, float* out, std::size_t stride,
                 bool add);
  void (*swiglu)(const float* gate, const float* up, int n, float* out);  // n a multiple of 16
  void (*geglu)(const float* gate, const float* up, int n, float* out);   // the same with GELU, as tanh gives it
  void (*clamped_swiglu)(const float* gate, const float* up, int n, float* out);  // (up + 1) gate sigmoid(1.702 gate), both clamped to 7
  void (*rms_norm)(const float* x, const float* weight, int n, float eps, float* out);
  // `rest` (or null) gets what the codes leave out, x - scale * code; it may be x itself.
  void (*quantize)(const float* x, int groups, std::int8_t* codes, float* scale, float* sum, std::int32_t* offset,
                   float* rest);
  void (*to_bf16)(const float* x, int n, std::uint16_t* out);
  void (*rope)(float* x, const float* cos, const float* sin, int half);  // x[i], x[i + half]
  KvKernels kv[2];  // by KvType
  // Folds a later split into a running result.
  void (*merge)(float* max, float* sum, float* out, float later_max, float later_sum, const float* later, int head_pad);
  void (*scale)(const float* x, float by, int n, float* out);
  void (*softcap)(float* x, int n, float cap);  // x becomes cap * tanh(x / cap); n a multiple of 16
  // Index of the greatest of x[n] (the lowest if equal), its value, and whether all are finite.
  int (*argmax)(const float* x, int n, float* value, bool* finite);
  // out[i] = e^((x[i] - max) * by); returns the sum.
  float (*exp_sum)(const float* x, int n, float max, float by, float* out);
  // The three below: n a multiple of 16.
  float (*sum)(const float* x, int n);
  // Of the x[i] >= at[t]: their sum and how many they are, for kTails thresholds.
  void (*tails)(const float* x, int n, const float* at, float* sums, int* counts);
  void (*keep)(float* x, int n, float at);  // x[i] = 0 where x[i] < at
  // x[i] = value where bit i of `bits` is not set.
  void (*permit)(const std::uint32_t* bits, int n, float value, float* x);
  // For the machine probe only: nothing of the model runs through these.
  double (*probe_int8)(long rounds);                                // runs, returns multiply-adds done
  float (*probe_read)(const std::uint8_t* data, std::size_t bytes);  // reads it all
};

namespace portable { extern const Kernels kernels; }
#if defined(HEADWAY_X86)
namespace avx2 { extern const Kernels kernels; }
namespace avx512vnni { extern const Kernels kernels; }
namespace avx512bf16 { extern const Kernels kernels; }
namespace amx { extern const Kernels kernels; }
#endif

// The table HEADWAY_ISA names, or the best this processor runs. Throws std::invalid_argument on an impossible wish.
const Kernels& best_kernels();
const Kernels* kernels_named(const char* name);  // null: unknown, or this processor cannot run it

}  // namespace headway
