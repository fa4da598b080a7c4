// A checksum at the speed of memory: against damage, not against malice.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headway {

// Differs whenever one 8-byte word differs, or the length.
std::uint64_t checksum(const std::uint8_t* data, std::size_t bytes);

}  // namespace headway
