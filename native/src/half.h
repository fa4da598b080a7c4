// IEEE half precision to float32 and back, for load time: the kernels have their own.
#pragma once

#include <bit>
#include <cstdint>

namespace headway {

inline float half_to_float(std::uint16_t h) {
  const std::uint32_t sign = (h & 0x8000u) << 16, rest = h & 0x7fffu;
  const float f = rest >= 0x7c00u ? std::bit_cast<float>(0x7f800000u | (rest & 0x3ffu) << 13)
                                  : std::bit_cast<float>(rest << 13) * 0x1p112f;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(f) | sign);
}

inline std::uint16_t float_to_half(float x) {  // round to nearest even
  const std::uint32_t b = std::bit_cast<std::uint32_t>(x), sign = b >> 16 & 0x8000u, a = b & 0x7fffffffu;
  if (a > 0x7f800000u) return (std::uint16_t)(sign | 0x7e00u);
  if (a >= 0x477ff000u) return (std::uint16_t)(sign | 0x7c00u);
  if (a < 0x38800000u)
    return (std::uint16_t)(sign | (std::bit_cast<std::uint32_t>(std::bit_cast<float>(a) + 0.5f) - 0x3f000000u));
  return (std::uint16_t)(sign | ((a + 0xfffu + (a >> 13 & 1u) - 0x38000000u) >> 13));
}

}  // namespace headway
