#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "headway/engine.h"
#include "kernels/kernels.h"
#include "memory.h"

namespace headway {
namespace {

// Seconds until all threads have run `body(thread)`, best of five.
template <class Body>
double best_time(int threads, const Body& body) {
  double best = 1e30;
  for (int round = 0; round < 5; round++) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> others;
    for (int t = 1; t < threads; t++) others.emplace_back([&body, t] { body(t); });
    body(0);
    for (auto& t : others) t.join();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

}  // namespace

Probe probe(int threads) {
  const Kernels& k = best_kernels();
  constexpr std::size_t kBytes = 512u << 20;
  Buffer<std::uint8_t> memory(kBytes);
  std::memset(memory.data(), 1, kBytes);
  const std::size_t part = kBytes / (std::size_t)threads / 256 * 256;
  std::vector<float> sums((std::size_t)threads * 16);
  const double read = best_time(threads, [&](int t) { sums[(std::size_t)t * 16] = k.probe_read(memory.data() + part * (std::size_t)t, part); });
  const long rounds = std::strcmp(k.name, "portable") ? 10'000'000 : 500'000;  // tens of milliseconds
  std::vector<double> macs((std::size_t)threads * 8);
  const double compute = best_time(threads, [&](int t) { macs[(std::size_t)t * 8] = k.probe_int8(rounds); });
  return {(double)part * threads / read, macs[0] * threads / compute};
}

}  // namespace headway
