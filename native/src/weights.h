// From the file's tensor types to the packed formats of the kernels. Only here are ggml's block layouts known.
#pragma once

#include <vector>

#include "headway/engine.h"
#include "kernels/kernels.h"
#include "memory.h"

namespace headway {

// To be counted up with every change of what `pack` writes: packed weights are kept on disk.
inline constexpr int kPacking = 1;

// A packed matrix that owns its memory, unless it was packed before.
struct Matrix {
  Packed packed;
  Buffer<std::uint8_t> memory;
  Buffer<float> bias;

  explicit operator bool() const { return packed.data != nullptr; }
  std::size_t bytes() const { return packed.tile_bytes * (std::size_t)packed.tiles; }
  void set_bias(const std::vector<float>& values);  // throws std::invalid_argument on a wrong length
};

Format format_of(Type type);
Matrix pack(const Tensor& tensor);                      // throws std::invalid_argument
std::size_t packed_bytes(Type type, std::int64_t rows, std::int64_t columns);  // of such a tensor once it is packed
std::vector<float> to_floats(const Tensor& tensor);     // a vector or small tensor, dequantised
void unpack_row(const Packed& m, int row, float* out);  // one output's weights (an embedding), [columns]

// One row dequantised from its file layout: what the packed formats are tested against.
void dequantise_row(Type type, const std::uint8_t* row, std::int64_t columns, float* out);

}  // namespace headway
