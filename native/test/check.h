// What the native tests share: expectations, random weights, and quantised inputs.
#pragma once

#include <atomic>
#include <bit>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "headway/engine.h"
#include "kernels/kernels.h"
#include "weights.h"

namespace headway {

inline std::atomic<long> allocations{0};  // by operator new since start; the main file counts them
inline int failures = 0;

inline void expect(bool good, const std::string& what) {
  if (good) return;
  failures++;
  std::printf("FAILED %s\n", what.c_str());
}

inline const std::vector<const Kernels*>& all_kernels() {
  static std::vector<const Kernels*> found;
  if (found.empty())
    for (const char* name : {"portable", "avx2", "avx512vnni", "avx512bf16", "amx"})
      if (const Kernels* k = kernels_named(name)) found.push_back(k);
  return found;
}

inline std::mt19937 random_bits(7);

inline std::vector<float> normal(std::size_t n, float deviation = 1) {
  std::normal_distribution<float> d(0, deviation);
  std::vector<float> v(n);
  for (float& x : v) x = d(random_bits);
  return v;
}

inline std::uint16_t half(float x) {  // by way of the slowest exact path: the portable kernels' rounding is tested with it
  const std::uint32_t b = std::bit_cast<std::uint32_t>(x);
  if ((b & 0x7fffffffu) < 0x38800000u) return (std::uint16_t)(b >> 16 & 0x8000u);
  return (std::uint16_t)((b >> 16 & 0x8000u) | (((b & 0x7fffffffu) + 0xfffu + (b >> 13 & 1u) - 0x38000000u) >> 13));
}

// Random bytes of a tensor type with sane scales.
inline std::vector<std::uint8_t> random_tensor(Type type, int rows, int columns) {
  std::vector<std::uint8_t> out(row_bytes(type, columns) * (std::size_t)rows);
  const std::vector<float> values = normal((std::size_t)rows * columns, 0.1f);
  if (type == Type::F32) std::memcpy(out.data(), values.data(), out.size());
  if (type == Type::F16 || type == Type::BF16) {
    for (std::size_t i = 0; i < values.size(); i++) {
      const std::uint16_t h = type == Type::F16 ? half(values[i]) : (std::uint16_t)(std::bit_cast<std::uint32_t>(values[i]) >> 16);
      std::memcpy(out.data() + 2 * i, &h, 2);
    }
  }
  if (type == Type::F32 || type == Type::F16 || type == Type::BF16) return out;
  for (auto& b : out) b = (std::uint8_t)random_bits();
  if (type == Type::MXFP4)
    for (std::size_t at = 0; at < out.size(); at += 17) out[at] = (std::uint8_t)(118 + random_bits() % 8);
  struct Layout {
    Type type;
    int bytes, halves[2];
  };
  for (const Layout& l : {Layout{Type::Q8_0, 34, {0, -1}}, {Type::Q4_0, 18, {0, -1}}, {Type::Q4_1, 20, {0, 2}}, {Type::Q5_0, 22, {0, -1}},
                          {Type::Q5_1, 24, {0, 2}}, {Type::Q4_K, 144, {0, 2}}, {Type::Q5_K, 176, {0, 2}}, {Type::Q6_K, 210, {208, -1}}}) {
    if (l.type != type) continue;
    for (std::size_t at = 0; at < out.size(); at += (std::size_t)l.bytes)
      for (int h : l.halves)
        if (h >= 0) {
          const std::uint16_t d = half(normal(1, 0.01f)[0]);
          std::memcpy(out.data() + at + h, &d, 2);
        }
  }
  return out;
}

struct Input {
  std::vector<float> values, scale, sum;
  std::vector<std::int8_t> codes;
  std::vector<std::uint16_t> bf16;
  std::vector<std::int32_t> offset;
  Activations view;

  Input(const Kernels& k, const std::vector<float>& x, int rows, int columns) {
    const int groups = (int)padded((std::size_t)columns, kGroup) / kGroup, width = groups * kGroup;
    values.resize((std::size_t)rows * width);
    for (int r = 0; r < rows; r++) std::memcpy(values.data() + r * width, x.data() + r * columns, columns * sizeof(float));
    scale.resize((std::size_t)rows * groups), sum.resize(scale.size()), offset.resize(2 * scale.size());
    codes.resize(values.size()), bf16.resize(values.size());
    for (int r = 0; r < rows; r++) {
      k.quantize(values.data() + r * width, groups, codes.data() + r * width, scale.data() + r * groups, sum.data() + r * groups,
                 offset.data() + 2 * r * groups, nullptr);
      k.to_bf16(values.data() + r * width, width, bf16.data() + r * width);
    }
    view = {groups, values.data(), bf16.data(), codes.data(), scale.data(), sum.data(), offset.data()};
  }
};

void test_matmul();
void test_rows();
void test_attention();
void test_threads();
void test_uniform();
void test_sampling();
void test_engine(bool experts);
void test_sinks();
void test_no_allocation(bool experts);
void test_poison();
void test_refusals();
void test_packed_again();
void test_quantise();
void test_mxfp4();
void test_checksum();
void test_hostile_weights();

}  // namespace headway
