// Floats to the file types Q8_0 and Q4_1, bit for bit as ggml's reference quantiser does it.
#pragma once

#include "headway/engine.h"

namespace headway {

// `from` is of F32, F16 or BF16; writes from.rows * row_bytes(to, from.columns) bytes. Throws std::invalid_argument.
void quantise(const Tensor& from, Type to, std::uint8_t* out);

}  // namespace headway
