// On its own, since the kernels' objects must not share inline functions of the standard library with the others.
#pragma once

namespace headway {

// How keys and values are kept: half precision, or 8 bits with a scale for every 32 dimensions of a key and every value.
enum class KvType { F16, Int8 };

}  // namespace headway
