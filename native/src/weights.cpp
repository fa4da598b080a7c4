#include "weights.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "half.h"

namespace headway {
namespace {

float read_half(const std::uint8_t* p) {
  std::uint16_t h;
  std::memcpy(&h, p, 2);
  return half_to_float(h);
}

// 32 weights in a common form: w = d[i / 16] * code + m, or d * (code - 128) for formats without m.
struct Group {
  std::uint8_t code[kGroup];
  float d[2], m;
};

// Block sizes in weights and bytes, as in ggml-common.h.
struct Block {
  int weights, bytes;
};

Block block_of(Type type) {
  switch (type) {
    case Type::F32: return {1, 4};
    case Type::F16:
    case Type::BF16: return {1, 2};
    case Type::Q8_0: return {32, 34};
    case Type::Q4_0: return {32, 18};
    case Type::Q4_1: return {32, 20};
    case Type::Q5_0: return {32, 22};
    case Type::Q5_1: return {32, 24};
    case Type::Q4_K: return {256, 144};
    case Type::Q5_K: return {256, 176};
    case Type::Q6_K: return {256, 210};
    case Type::MXFP4: return {32, 17};
  }
  throw std::invalid_argument("unknown tensor type");
}

// The 6-bit scale and minimum of sub-block j of a Q4_K or Q5_K block.
void scale_min(const std::uint8_t* q, int j, int* scale, int* min) {
  if (j < 4) {
    *scale = q[j] & 63, *min = q[j + 4] & 63;
  } else {
    *scale = (q[j + 4] & 15) | (q[j - 4] >> 6) << 4;
    *min = (q[j + 4] >> 4) | (q[j] >> 6) << 4;
  }
}

// 4-bit floats, twice their value so that they are whole numbers, under a power of two.
Group read_mxfp4(const std::uint8_t* b) {
  static constexpr std::int8_t values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  Group g{};
  g.d[0] = g.d[1] = std::ldexp(1.0f, b[0] - 128);
  for (int i = 0; i < 16; i++)
    g.code[i] = (std::uint8_t)(values[b[1 + i] & 15] + 128), g.code[i + 16] = (std::uint8_t)(values[b[1 + i] >> 4] + 128);
  return g;
}

Group read_simple(Type type, const std::uint8_t* b) {
  Group g{};
  g.d[0] = g.d[1] = read_half(b);
  std::uint32_t high = 0;
  switch (type) {
    case Type::Q8_0:
      for (int i = 0; i < 32; i++) g.code[i] = (std::uint8_t)((std::int8_t)b[2 + i] + 128);
      break;
    case Type::Q4_0:
      for (int i = 0; i < 16; i++) g.code[i] = b[2 + i] & 15, g.code[i + 16] = b[2 + i] >> 4;
      g.m = -8 * g.d[0];
      break;
    case Type::Q4_1:
      for (int i = 0; i < 16; i++) g.code[i] = b[4 + i] & 15, g.code[i + 16] = b[4 + i] >> 4;
      g.m = read_half(b + 2);
      break;
    case Type::Q5_0:  // code - 16 becomes code + 112 - 128
      std::memcpy(&high, b + 2, 4);
      for (int i = 0; i < 16; i++) {
        g.code[i] = (std::uint8_t)(((b[6 + i] & 15) | (high >> i & 1) << 4) + 112);
        g.code[i + 16] = (std::uint8_t)(((b[6 + i] >> 4) | (high >> (i + 16) & 1) << 4) + 112);
      }
      break;
    case Type::Q5_1:
      std::memcpy(&high, b + 4, 4);
      for (int i = 0; i < 16; i++) {
        g.code[i] = (std::uint8_t)((b[8 + i] & 15) | (high >> i & 1) << 4);
        g.code[i + 16] = (std::uint8_t)((b[8 + i] >> 4) | (high >> (i + 16) & 1) << 4);
      }
      g.m = read_half(b + 2);
      break;
    default: throw std::invalid_argument("not a 32-weight block");
  }
  return g;
}

// Group `j` of the 8 in a 256-weight block.
Group read_k(Type type, const std::uint8_t* b, int j) {
  Group g{};
  if (type == Type::Q6_K) {
    const std::uint8_t *ql = b + 64 * (j / 4), *qh = b + 128 + 32 * (j / 4);
    const auto* scales = (const std::int8_t*)(b + 192) + 2 * j;
    const float d = read_half(b + 208);
    for (int i = 0; i < 32; i++) {
      const int low = j % 4 < 2 ? ql[32 * (j % 2) + i] & 15 : ql[32 * (j % 2) + i] >> 4;
      g.code[i] = (std::uint8_t)((low | (qh[i] >> 2 * (j % 4) & 3) << 4) + 96);  // code - 32 becomes code + 96 - 128
    }
    g.d[0] = d * (float)scales[0], g.d[1] = d * (float)scales[1];
    return g;
  }
  int scale, min;
  scale_min(b + 4, j, &scale, &min);
  g.d[0] = g.d[1] = read_half(b) * (float)scale;
  g.m = -read_half(b + 2) * (float)min;
  const std::uint8_t* q = b + (type == Type::Q4_K ? 16 : 48) + 32 * (j / 2);
  for (int i = 0; i < 32; i++) {
    g.code[i] = (std::uint8_t)(j % 2 ? q[i] >> 4 : q[i] & 15);
    if (type == Type::Q5_K) g.code[i] = (std::uint8_t)(g.code[i] | (b[16 + i] >> j & 1) << 4);
  }
  return g;
}

Group read_group(Type type, const std::uint8_t* row, std::int64_t group) {
  const Block b = block_of(type);
  if (b.weights == 256) return read_k(type, row + group / 8 * b.bytes, (int)(group % 8));
  return type == Type::MXFP4 ? read_mxfp4(row + group * b.bytes) : read_simple(type, row + group * b.bytes);
}

bool has_min(Format f) { return f == Format::Q4 || f == Format::Q8M; }

float group_weight(Format f, const Group& g, int i) {
  const float d = g.d[i / 16];
  return has_min(f) ? d * (float)g.code[i] + g.m : d * (float)(g.code[i] - 128);
}

float read_float(Type type, const std::uint8_t* row, std::int64_t i) {
  if (type == Type::F32) {
    float f;
    std::memcpy(&f, row + 4 * i, 4);
    return f;
  }
  std::uint16_t h;
  std::memcpy(&h, row + 2 * i, 2);
  return type == Type::F16 ? half_to_float(h) : std::bit_cast<float>((std::uint32_t)h << 16);
}

// Scales are packed in half precision, which must hold these: they have no neighbours that a weight could be rounded to.
Group checked(Group g) {
  if (half_to_float(float_to_half(g.d[0])) == g.d[0]) return g;
  for (std::uint8_t code : g.code)
    if (code != 128) throw std::invalid_argument("an MXFP4 block has the scale 2^" + std::to_string(std::ilogb(g.d[0]) + 1) + "; 2^-23 to 2^16 are supported");
  g.d[0] = g.d[1] = 0;
  return g;
}

void place_group(const Packed& m, std::uint8_t* tile, int group, int column, const Group& g) {
  const FormatInfo fi = info(m.format);
  std::uint8_t* codes = tile + (std::size_t)group * fi.code_bytes;
  for (int i = 0; i < kGroup; i++) {
    const int vector = i / 4, at = 4 * column + i % 4;
    if (m.format == Format::Q4) codes[64 * (vector % 4) + at] |= (std::uint8_t)(g.code[i] << (vector < 4 ? 0 : 4));
    else codes[64 * vector + at] = g.code[i];
  }
  std::uint8_t* scales = tile + (std::size_t)m.groups * fi.code_bytes + (std::size_t)group * fi.scale_bytes;
  const std::uint16_t d = float_to_half(g.d[0]);
  std::memcpy(scales + 2 * column, &d, 2);
  if (fi.scale_bytes == 64) {
    const std::uint16_t second = float_to_half(m.format == Format::Q8S ? g.d[1] : g.m);
    std::memcpy(scales + 32 + 2 * column, &second, 2);
  }
}

Packed layout(Type type, std::int64_t rows, std::int64_t columns) {
  Packed p;
  p.format = format_of(type);
  p.rows = (int)rows, p.columns = (int)columns;
  p.tiles = (int)padded(rows, kLanes) / kLanes, p.groups = (int)padded(columns, kGroup) / kGroup;
  const FormatInfo fi = info(p.format);
  p.tile_bytes = padded((std::size_t)p.groups * (fi.code_bytes + fi.scale_bytes), 64);
  return p;
}

// Where element (k, column) of a float tile lies, in elements.
std::size_t float_index(Format f, int k, int column) {
  return f == Format::BF16 ? (std::size_t)(k / 2) * 32 + 2 * column + k % 2 : (std::size_t)k * kLanes + column;
}

}  // namespace

Type type_of(const std::string& name) {
  static const std::pair<const char*, Type> all[] = {
      {"F32", Type::F32},   {"F16", Type::F16},   {"BF16", Type::BF16}, {"Q8_0", Type::Q8_0},
      {"Q4_0", Type::Q4_0}, {"Q4_1", Type::Q4_1}, {"Q5_0", Type::Q5_0}, {"Q5_1", Type::Q5_1},
      {"Q4_K", Type::Q4_K}, {"Q5_K", Type::Q5_K}, {"Q6_K", Type::Q6_K}, {"MXFP4", Type::MXFP4}};
  for (const auto& [n, t] : all)
    if (name == n) return t;
  throw std::invalid_argument("unknown tensor type " + name);
}

std::size_t row_bytes(Type type, std::int64_t columns) {
  const Block b = block_of(type);
  if (columns % b.weights) throw std::invalid_argument("a row of " + std::to_string(columns) + " weights is no whole number of blocks");
  return (std::size_t)(columns / b.weights) * b.bytes;
}

Format format_of(Type type) {
  switch (type) {
    case Type::F32: return Format::F32;
    case Type::F16: return Format::F16;
    case Type::BF16: return Format::BF16;
    case Type::Q4_0:
    case Type::Q4_1:
    case Type::Q4_K: return Format::Q4;
    case Type::Q8_0:
    case Type::Q5_0:
    case Type::MXFP4: return Format::Q8;
    case Type::Q5_1:
    case Type::Q5_K: return Format::Q8M;
    case Type::Q6_K: return Format::Q8S;
  }
  throw std::invalid_argument("unknown tensor type");
}

void dequantise_row(Type type, const std::uint8_t* row, std::int64_t columns, float* out) {
  const Format f = format_of(type);
  if (f == Format::F32 || f == Format::F16 || f == Format::BF16) {
    for (std::int64_t i = 0; i < columns; i++) out[i] = read_float(type, row, i);
    return;
  }
  for (std::int64_t g = 0; g < columns / kGroup; g++) {
    const Group group = read_group(type, row, g);
    for (int i = 0; i < kGroup; i++) out[g * kGroup + i] = group_weight(f, group, i);
  }
}

std::vector<float> to_floats(const Tensor& t) {
  std::vector<float> out((std::size_t)(t.rows * t.columns));
  const std::size_t stride = row_bytes(t.type, t.columns);
  for (std::int64_t r = 0; r < t.rows; r++) dequantise_row(t.type, t.data + r * stride, t.columns, out.data() + r * t.columns);
  return out;
}

std::size_t packed_bytes(Type type, std::int64_t rows, std::int64_t columns) {
  const Packed p = layout(type, rows, columns);
  return p.tile_bytes * (std::size_t)p.tiles;
}

Matrix pack(const Tensor& t) {
  Matrix m;
  Packed& p = m.packed;
  p = layout(t.type, t.rows, t.columns);
  if (t.packed) {
    p.data = t.packed;
    return m;
  }
  const FormatInfo fi = info(p.format);
  m.memory = Buffer<std::uint8_t>(m.bytes());
  p.data = m.memory.data();
  const std::size_t stride = row_bytes(t.type, t.columns);
  for (std::int64_t r = 0; r < t.rows; r++) {
    std::uint8_t* tile = m.memory.data() + (std::size_t)(r / kLanes) * p.tile_bytes;
    const std::uint8_t* row = t.data + (std::size_t)r * stride;
    const int column = (int)(r % kLanes);
    if (fi.scale_bytes) {
      for (int g = 0; g < t.columns / kGroup; g++) {
        const Group group = read_group(t.type, row, g);
        place_group(p, tile, g, column, t.type == Type::MXFP4 ? checked(group) : group);
      }
      continue;
    }
    const std::size_t width = p.format == Format::F32 ? 4 : 2;
    for (int k = 0; k < t.columns; k++)
      std::memcpy(tile + width * float_index(p.format, k, column), row + width * k, width);
  }
  return m;
}

void Matrix::set_bias(const std::vector<float>& values) {
  if ((int)values.size() != packed.rows) throw std::invalid_argument("a bias needs one value per output");
  bias = Buffer<float>((std::size_t)packed.tiles * kLanes);
  std::memcpy(bias.data(), values.data(), values.size() * sizeof(float));
  packed.bias = bias.data();
}

void unpack_row(const Packed& p, int row, float* out) {
  const FormatInfo fi = info(p.format);
  const std::uint8_t* tile = p.data + (std::size_t)(row / kLanes) * p.tile_bytes;
  const int column = row % kLanes;
  if (!fi.scale_bytes) {
    const Type type = p.format == Format::F32 ? Type::F32 : p.format == Format::F16 ? Type::F16 : Type::BF16;
    for (int k = 0; k < p.columns; k++) out[k] = read_float(type, tile, (std::int64_t)float_index(p.format, k, column));
    return;
  }
  for (int g = 0; g < p.groups; g++) {
    const std::uint8_t* codes = tile + (std::size_t)g * fi.code_bytes;
    const std::uint8_t* scales = tile + (std::size_t)p.groups * fi.code_bytes + (std::size_t)g * fi.scale_bytes;
    Group group;
    for (int i = 0; i < kGroup; i++) {
      const int vector = i / 4, at = 4 * column + i % 4;
      group.code[i] = p.format == Format::Q4 ? (std::uint8_t)(codes[64 * (vector % 4) + at] >> (vector < 4 ? 0 : 4) & 15)
                                             : codes[64 * vector + at];
    }
    group.d[0] = group.d[1] = read_half(scales + 2 * column);
    if (p.format == Format::Q8S) group.d[1] = read_half(scales + 32 + 2 * column);
    group.m = has_min(p.format) ? read_half(scales + 32 + 2 * column) : 0;
    for (int i = 0; i < kGroup && g * kGroup + i < p.columns; i++) out[g * kGroup + i] = group_weight(p.format, group, i);
  }
}

}  // namespace headway
