// The sampler: uniform draws, and what every parameter does to them.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "check.h"
#include "sample.h"

namespace headway {

void test_uniform() {
  double sum = 0;
  for (int i = 0; i < 10000; i++) sum += uniform(42, 0, (std::uint32_t)i, 0);
  expect(std::fabs(sum / 10000 - 0.5) < 0.02, "uniform numbers average a half");
  expect(uniform(1, 0, 5, 0) == uniform(1, 0, 5, 0) && uniform(1, 0, 5, 0) != uniform(2, 0, 5, 0) &&
             uniform(1, 1, 5, 0) != uniform(1, 0, 5, 0) && uniform(1, 0, 6, 0) != uniform(1, 0, 5, 0),
         "the number depends on each part of its key");
}

namespace {

void sampling_of(const Kernels& k) {
  constexpr int kVocab = 37;
  const auto logits = normal(kVocab, 1.5f);
  std::vector<int> order(kVocab);
  for (int i = 0; i < kVocab; i++) order[i] = i;
  std::sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  SampleScratch scratch(kVocab);
  const auto counts = [&](const Sampling& s) {
    std::vector<int> n(kVocab);
    for (int i = 0; i < 20000; i++) {
      Slot slot;
      slot.reset(s, nullptr, 0, 0, kVocab, 64);
      Sampled out;
      sample(k, logits.data(), kVocab, slot, i, scratch, out);
      n[out.token]++;
    }
    return n;
  };
  double total = 0;
  for (float x : logits) total += std::exp(x / 0.8);
  Sampling s;
  s.temperature = 0.8f;
  auto n = counts(s);
  for (int i = 0; i < kVocab; i++) expect(std::fabs(n[i] / 20000.0 - std::exp(logits[i] / 0.8) / total) < 0.015, "free sampling follows the softmax");
  s.top_k = 5;
  n = counts(s);
  for (int i = 0; i < kVocab; i++) expect((n[order[i]] > 0) == (i < 5), "top_k keeps k");
  s.top_k = 0, s.top_p = 0.6f;
  n = counts(s);
  double mass = 0;
  for (int i = 0; i < kVocab; i++) {
    expect((n[order[i]] > 0) == (mass < 0.6), "top_p keeps the nucleus");
    mass += std::exp(logits[order[i]] / 0.8) / total;
  }
  s.top_p = 1, s.min_p = 0.3f;
  n = counts(s);
  for (int i = 0; i < kVocab; i++)
    expect((n[i] > 0) == (std::exp((logits[i] - logits[order[0]]) / 0.8) >= 0.3), "min_p keeps what is likely enough");
  s = Sampling();
  s.temperature = 0, s.presence_penalty = 100;
  Slot slot;
  const std::uint32_t known[] = {(std::uint32_t)order[0], (std::uint32_t)order[1]};
  slot.reset(s, known, 2, 1, kVocab, 64);  // order[0] is prompt: only the output is penalised
  Sampled out;
  sample(k, logits.data(), kVocab, slot, 2, scratch, out);
  expect(out.token == order[0], "presence penalty spares the prompt");
  sample(k, logits.data(), kVocab, slot, 3, scratch, out);
  expect(out.token == order[2], "presence penalty hits the output");
  s = Sampling();
  s.temperature = 0, s.min_tokens = 1, s.end_ids = {order[0]}, s.logprobs = 3;
  slot.reset(s, nullptr, 0, 0, kVocab, 64);
  sample(k, logits.data(), kVocab, slot, 0, scratch, out);
  expect(out.token == order[1], "min_tokens masks the end");
  double raw = 0;
  for (float x : logits) raw += std::exp(x);
  expect(std::fabs(out.logprob - (logits[order[1]] - std::log(raw))) < 1e-4, "logprob is of the raw logits");
  expect(out.top.size() == 3 && out.top[0].first == order[0] && out.top[2].first == order[2], "top logprobs are the best, in order");
  sample(k, logits.data(), kVocab, slot, 1, scratch, out);
  expect(out.token == order[0], "after min_tokens the end may come");
  s = Sampling();
  sample(k, logits.data(), kVocab, slot, 1, scratch, out);
  s.top_p = 1e-9f;
  const std::vector<float> flat(kVocab, 1.0f);
  slot.reset(s, nullptr, 0, 0, kVocab, 64);
  sample(k, flat.data(), kVocab, slot, 0, scratch, out);
  expect(out.token >= 0 && out.token < kVocab && out.logprob == 0 && out.top.empty(), "a flat distribution with a tiny top_p");
  const auto drawn_of_flat = [&](int top_k, float top_p) {  // of equal ones the first stay
    Sampling given;
    given.top_k = top_k, given.top_p = top_p;
    slot.reset(given, nullptr, 0, 0, kVocab, 64);
    std::vector<int> times(kVocab);
    for (int i = 0; i < 2000; i++) sample(k, flat.data(), kVocab, slot, i, scratch, out), times[(std::size_t)out.token]++;
    int kept = 0;
    while (kept < kVocab && times[(std::size_t)kept] > 0) kept++;
    for (int i = kept; i < kVocab; i++) expect(times[(std::size_t)i] == 0, "of equal tokens the first ones stay");
    return kept;
  };
  expect(drawn_of_flat(7, 1) == 7 && drawn_of_flat(0, 0.5f) == 19 && drawn_of_flat(10, 0.25f) == 3 && drawn_of_flat(0, 1e-9f) == 1,
         "top_k and top_p count equal tokens");
  s.top_p = 1, s.top_k = 5, s.min_tokens = 1, s.end_ids = order;
  slot.reset(s, nullptr, 0, 0, kVocab, 64);
  sample(k, logits.data(), kVocab, slot, 0, scratch, out);
  expect(out.token >= 0 && out.token < kVocab, "every token an end, and none allowed");
  // a mask: what it forbids never comes, whatever else is asked, and what it allows keeps its share
  const auto mask_of = [](std::initializer_list<int> allowed) {
    std::vector<std::uint32_t> bits(2);
    for (int id : allowed) bits[(std::size_t)id / 32] |= 1u << id % 32;
    return bits;
  };
  const auto masked = [&](const Sampling& given, const std::vector<std::uint32_t>& bits, int position) {
    slot.reset(given, nullptr, 0, 0, kVocab, 64);
    sample(k, logits.data(), kVocab, slot, position, scratch, out, bits.data());
    return out.token;
  };
  const auto few = mask_of({order[3], order[20], 36});
  s = Sampling();
  s.temperature = 0;
  expect(masked(s, few, 0) == order[3] && out.allowed, "greedy takes the best of what is allowed");
  expect(masked(s, mask_of({}), 0) < 0 && out.finite && !out.allowed, "nothing is allowed");
  expect(masked(s, few, 0) == order[3] && out.allowed, "and then something is again");
  s.logit_bias = {{order[0], 100.0f}};
  expect(masked(s, few, 0) == order[3], "no bias brings in what is forbidden");
  for (const auto& [top_k, top_p, min_p] : {std::tuple{0, 1.0f, 0.0f}, {2, 1.0f, 0.0f}, {0, 0.99f, 0.0f}, {0, 1.0f, 0.01f}}) {
    s = Sampling();
    s.top_k = top_k, s.top_p = top_p, s.min_p = min_p, s.temperature = 5;
    for (int i = 0; i < 500; i++) {
      const int token = masked(s, few, i);
      expect(token == order[3] || token == order[20] || token == 36, "sampling stays within the mask");
    }
  }
  s = Sampling();
  s.temperature = 1, s.min_tokens = 5, s.end_ids = {order[3]}, s.logprobs = 1;
  expect(masked(s, mask_of({order[3], order[20]}), 0) == order[20], "min_tokens holds while something else is allowed");
  expect(out.top[0].first == order[0], "logprobs are of the raw logits, masked or not");
  expect(masked(s, mask_of({order[3]}), 0) == order[3], "where only an end is allowed, it comes");
  std::vector<float> certain(kVocab, -40.0f);
  certain[4] = 30;
  certain[9] = 15;
  s = Sampling();
  s.logprobs = 0;
  slot.reset(s, nullptr, 0, 0, kVocab, 64);
  sample(k, certain.data(), kVocab, slot, 0, scratch, out);
  expect(out.token == 4 && out.logprob < 0 && out.logprob > -1e-6, "a nearly certain token has a logprob below 0");
}

}  // namespace

void test_sampling() {
  for (const Kernels* k : all_kernels()) sampling_of(*k);
}

}  // namespace headway
