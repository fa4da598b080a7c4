// What the sampler does to all logits of a row. Included only by kernels.cpp, which is compiled once per instruction set.
#pragma once

namespace headway::HEADWAY_NS {
namespace {

int argmax(const float* x, int n, float* value, bool* finite) {
  const int whole = n / kLanes * kLanes;
  f32 top = set(-std::numeric_limits<float>::infinity()), bad = set(0);
  for (int i = 0; i < whole; i += kLanes) {
    const f32 v = load(x + i);
    top = max(top, v);
    bad = fma(v, set(0), bad);  // 0 while all are finite, else NaN
  }
  float best = reduce_max(top), wrong = reduce_add(bad);
  for (int i = whole; i < n; i++) best = x[i] > best ? x[i] : best, wrong += x[i] * 0.0f;
  *value = best;
  *finite = wrong == 0;
  int i = 0;
  while (i < whole && !reaches(load(x + i), set(best))) i += kLanes;
  for (; i < n; i++)
    if (x[i] == best) return i;
  return 0;
}

float exp_sum(const float* x, int n, float most, float by, float* out) {
  const int whole = n / kLanes * kLanes;
  f32 sum = set(0);
  for (int i = 0; i < whole; i += kLanes) {
    const f32 e = exp(mul(sub(load(x + i), set(most)), set(by)));
    store(out + i, e);
    sum = add(sum, e);
  }
  if (whole < n) {
    alignas(64) float tail[kLanes] = {};
    std::memcpy(tail, x + whole, (n - whole) * sizeof(float));
    const f32 e = within(0, n - whole, exp(mul(sub(load(tail), set(most)), set(by))), 0.0f);
    store(tail, e);
    std::memcpy(out + whole, tail, (n - whole) * sizeof(float));
    sum = add(sum, e);
  }
  return reduce_add(sum);
}

float sum(const float* x, int n) {
  f32 a = set(0), b = a;
  int i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) a = add(a, load(x + i)), b = add(b, load(x + i + kLanes));
  if (i < n) a = add(a, load(x + i));
  return reduce_add(add(a, b));
}

void tails(const float* x, int n, const float* at, float* sums, int* counts) {
  f32 total[kTails];
  for (int t = 0; t < kTails; t++) total[t] = set(0), counts[t] = 0;
  for (int i = 0; i < n; i += kLanes) {
    const f32 v = load(x + i);
    for (int t = 0; t < kTails; t++) {
      const unsigned in = reaches(v, set(at[t]));
      counts[t] += __builtin_popcount(in);
      total[t] = add(total[t], chosen(in, v, 0.0f));
    }
  }
  for (int t = 0; t < kTails; t++) sums[t] = reduce_add(total[t]);
}

void keep(float* x, int n, float at) {
  for (int i = 0; i < n; i += kLanes) {
    const f32 v = load(x + i);
    store(x + i, chosen(reaches(v, set(at)), v, 0.0f));
  }
}

void permit(const std::uint32_t* bits, int n, float value, float* x) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) store(x + i, chosen(bits[i / 32] >> i % 32 & 0xffffu, load(x + i), value));
  for (; i < n; i++)
    if (!(bits[i / 32] >> i % 32 & 1)) x[i] = value;
}

}  // namespace
}  // namespace headway::HEADWAY_NS
