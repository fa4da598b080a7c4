#include "checksum.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace headway {
namespace {

constexpr int kStreams = 8;  // independent, so that multiplications overlap

// A bijection of either argument, so that a difference in one word is never lost.
std::uint64_t mixed(std::uint64_t h, std::uint64_t word) { return std::rotl(h ^ word, 29) * 0x9e3779b97f4a7c15u; }

}  // namespace

std::uint64_t checksum(const std::uint8_t* data, std::size_t bytes) {
  std::uint64_t h[kStreams];
  for (int i = 0; i < kStreams; i++) h[i] = (std::uint64_t)i;
  for (std::size_t at = 0; at < bytes; at += sizeof h) {
    std::uint64_t words[kStreams] = {};
    std::memcpy(words, data + at, std::min(sizeof h, bytes - at));
    for (int i = 0; i < kStreams; i++) h[i] = mixed(h[i], words[i]);
  }
  std::uint64_t all = bytes;
  for (const std::uint64_t one : h) all = mixed(all, one);
  return all;
}

}  // namespace headway
