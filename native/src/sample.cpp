#include "sample.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace headway {
namespace {

constexpr std::uint32_t kPurposeToken = 0;
constexpr float kNever = -std::numeric_limits<float>::infinity();

bool penalises(const Sampling& s) {
  return s.repetition_penalty != 1 || s.presence_penalty != 0 || s.frequency_penalty != 0;
}

bool masks_ends(const Slot& s) { return s.generated < s.sampling.min_tokens && !s.sampling.end_ids.empty(); }

// Bias, penalties, the mask and that of the end tokens, in that order, on a copy; the raw logits where nothing applies.
const float* adjusted(const Kernels& k, const float* raw, int vocab, const Slot& slot, const std::uint32_t* mask, bool no_ends,
                      std::vector<float>& copy) {
  const Sampling& s = slot.sampling;
  if (s.logit_bias.empty() && !penalises(s) && !mask && !no_ends) return raw;
  std::memcpy(copy.data(), raw, (std::size_t)vocab * sizeof(float));
  for (const auto& [token, bias] : s.logit_bias) copy[token] += bias;
  if (penalises(s)) {
    for (const auto& seen : slot.seen) {
      float& x = copy[seen.token];
      x = x > 0 ? x / s.repetition_penalty : x * s.repetition_penalty;
      if (seen.in_output) x -= s.presence_penalty + s.frequency_penalty * (float)seen.in_output;
    }
  }
  if (mask) k.permit(mask, vocab, kNever, copy.data());
  if (no_ends)
    for (int id : s.end_ids) copy[id] = kNever;
  return copy.data();
}

std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }
float of_bits(std::uint32_t b) { return std::bit_cast<float>(b); }

// Keeps the fewest greatest weights that are `enough` (sum, count) together, or all, and sets the others to 0; of equal ones
// those with the lower ids. Positive floats order like their bits, so the least weight that stays is found by narrowing
// down bits, a few passes over all weights without sorting any.
template <class Enough>
void keep_greatest(const Kernels& k, std::vector<float>& weights, const Enough& enough) {
  const int n = (int)weights.size();
  std::uint32_t low = 1, high = bits_of(2.0f);  // enough at `low`, not yet at `high`
  int low_count = n, high_count = 0;
  float high_sum = 0;
  while (high - low > 1 && low_count - high_count > 1) {
    const std::uint32_t step = std::max(1u, (high - low) / (kTails + 1));
    float at[kTails], sums[kTails];
    int counts[kTails];
    for (int t = 0; t < kTails; t++) at[t] = of_bits(std::min(high, low + step * (std::uint32_t)(t + 1)));
    k.tails(weights.data(), n, at, sums, counts);
    for (int t = 0; t < kTails && bits_of(at[t]) < high; t++) {
      if (enough(sums[t], counts[t])) {
        low = bits_of(at[t]), low_count = counts[t];
      } else {
        high = bits_of(at[t]), high_count = counts[t], high_sum = sums[t];
      }
    }
  }
  const float least = of_bits(low);
  k.keep(weights.data(), n, least);
  if (high - low > 1) return;
  int equal = low_count - high_count, stay = 1;
  while (stay < equal && !enough(high_sum + least * (float)stay, high_count + stay)) stay++;
  for (int i = n - 1; i >= 0 && equal > stay; i--)
    if (weights[(std::size_t)i] == least) weights[(std::size_t)i] = 0, equal--;
}

// Draws in proportion to the weights, in order of ids: by the sums of pieces first, then within one.
int draw(const Kernels& k, const std::vector<float>& weights, double u) {
  constexpr int kPiece = 1024;
  const int n = (int)weights.size();
  double total = 0;
  for (int i = 0; i < n; i += kPiece) total += k.sum(weights.data() + i, std::min(kPiece, n - i));
  double at = u * total;
  int last = 0;
  for (int i = 0; i < n; i += kPiece) {
    const int end = std::min(n, i + kPiece);
    const double piece = k.sum(weights.data() + i, end - i);
    if (piece == 0) continue;
    const bool here = at < piece;
    if (!here) at -= piece;
    for (int j = here ? i : end; j < end; j++) {
      if (weights[(std::size_t)j] == 0) continue;
      last = j;
      if ((at -= weights[(std::size_t)j]) < 0) return j;
    }
    if (here) return last;  // rounding
    last = end - 1;
  }
  while (last > 0 && weights[(std::size_t)last] == 0) last--;
  return last;
}

void best(const float* x, int vocab, int count, float most, float log_sum, std::vector<std::pair<int, float>>& out) {
  out.clear();
  for (int i = 0; i < vocab; i++) {
    if ((int)out.size() == count && !(x[i] > out.back().second)) continue;
    if ((int)out.size() == count) out.pop_back();
    auto at = std::upper_bound(out.begin(), out.end(), x[i], [](float v, const auto& e) { return v > e.second; });
    out.insert(at, {i, x[i]});
  }
  for (auto& [id, value] : out) value = (value - most) - log_sum;
}

}  // namespace

void Slot::reset(const Sampling& s, const std::uint32_t* known, std::size_t count, std::size_t prompt, int vocab, int context) {
  open = true;
  sampling = s;
  generated = 0;
  if (!penalises(s)) {
    seen = {}, index = {};  // a slot's memory should not outlive the request that needed it
  } else if (index.empty()) {
    seen.reserve((std::size_t)std::min(vocab, context));
    index.assign((std::size_t)vocab, -1);
  } else {
    for (const Seen& old : seen) index[(std::size_t)old.token] = -1;
    seen.clear();
  }
  for (std::size_t i = 0; i < count; i++) append((int)known[i], i >= prompt);
}

void Slot::append(int token, bool output) {
  generated += output;
  if (!penalises(sampling)) return;
  int& at = index[(std::size_t)token];
  if (at < 0) at = (int)seen.size(), seen.push_back({token, 0});
  seen[(std::size_t)at].in_output += output;
}

double uniform(std::uint64_t seed, std::uint32_t choice, std::uint32_t position, std::uint32_t purpose) {
  std::uint32_t c[4] = {position, choice, purpose, 0}, k[2] = {(std::uint32_t)seed, (std::uint32_t)(seed >> 32)};
  for (int round = 0; round < 10; round++) {
    const std::uint64_t a = (std::uint64_t)0xD2511F53u * c[0], b = (std::uint64_t)0xCD9E8D57u * c[2];
    const std::uint32_t n[4] = {(std::uint32_t)(b >> 32) ^ c[1] ^ k[0], (std::uint32_t)b,
                                (std::uint32_t)(a >> 32) ^ c[3] ^ k[1], (std::uint32_t)a};
    std::memcpy(c, n, sizeof c);
    k[0] += 0x9E3779B9u, k[1] += 0xBB67AE85u;
  }
  return (double)(((std::uint64_t)c[0] << 32 | c[1]) >> 11) * 0x1p-53;
}

void sample(const Kernels& k, const float* raw, int vocab, Slot& slot, int position, SampleScratch& scratch, Sampled& out,
            const std::uint32_t* mask) {
  const Sampling& s = slot.sampling;
  float most;
  int greedy = k.argmax(raw, vocab, &most, &out.finite);
  out.token = -1;
  out.allowed = true;
  out.logprob = 0;
  out.top.clear();
  if (!out.finite) return;
  const float raw_most = most;
  float log_sum = 0;
  if (s.logprobs >= 0) {
    log_sum = std::log(k.exp_sum(raw, vocab, most, 1.0f, scratch.weights.data()));
    if (s.logprobs > 0) best(raw, vocab, std::min(s.logprobs, vocab), raw_most, log_sum, out.top);
  }
  bool no_ends = masks_ends(slot), finite;
  const float* x = adjusted(k, raw, vocab, slot, mask, no_ends, scratch.logits);
  if (x != raw) greedy = k.argmax(x, vocab, &most, &finite);
  if (most == kNever && no_ends) {  // only an end may come: then one must
    no_ends = false;
    x = adjusted(k, raw, vocab, slot, mask, no_ends, scratch.logits);
    greedy = k.argmax(x, vocab, &most, &finite);
  }
  out.allowed = most != kNever;
  if (!out.allowed) return;
  if (s.temperature == 0) {
    out.token = greedy;
  } else {
    std::vector<float>& weights = scratch.weights;
    float total = k.exp_sum(x, vocab, most, std::min(1.0f / s.temperature, 1e8f), weights.data());
    // exp(-inf) is a little more than 0 here
    if (mask) k.permit(mask, vocab, 0, weights.data());
    if (no_ends)
      for (int id : s.end_ids) weights[(std::size_t)id] = 0;
    if (s.top_k > 0 && s.top_k < vocab) {
      keep_greatest(k, weights, [&](float, int count) { return count >= s.top_k; });
      total = k.sum(weights.data(), (int)weights.size());
    }
    if (s.top_p < 1) keep_greatest(k, weights, [&](float sum, int) { return sum >= std::max(s.top_p * total, 1e-30f); });
    if (s.min_p > 0) k.keep(weights.data(), (int)weights.size(), s.min_p);  // the greatest is 1
    out.token = draw(k, weights, uniform(s.seed, (std::uint32_t)s.choice, (std::uint32_t)position, kPurposeToken));
  }
  // the difference first: near certainty it is tiny, and the greatest logit is not
  if (s.logprobs >= 0) out.logprob = (raw[out.token] - raw_most) - log_sum;
  slot.append(out.token, true);
}

}  // namespace headway
