#include "sample.h"

#include <algorithm>
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

// Sets the values of all tokens that `mask` does not allow.
void forbid(const std::uint32_t* mask, int vocab, float value, float* x) {
  for (int at = 0; at < vocab; at += 32) {
    const std::uint32_t bits = mask[at / 32];
    const int n = std::min(32, vocab - at);
    if (bits == 0) std::fill_n(x + at, n, value);
    else if (bits != ~0u)
      for (int i = 0; i < n; i++) x[at + i] = bits >> i & 1 ? x[at + i] : value;
  }
}

// Bias, penalties, the mask and that of the end tokens, in that order, on a copy; the raw logits where nothing applies.
const float* adjusted(const float* raw, int vocab, const Slot& slot, const std::uint32_t* mask, bool no_ends, std::vector<float>& copy) {
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
  if (mask) forbid(mask, vocab, kNever, copy.data());
  if (no_ends)
    for (int id : s.end_ids) copy[id] = kNever;
  return copy.data();
}

bool heavier(const std::pair<float, int>& a, const std::pair<float, int>& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

// Tokens that may be in the top k or the nucleus. Those at or below (1 - top_p) * total / vocab weigh too little
// together to reach the nucleus; for top_k the bar is lowered until enough pass.
void gather(const SampleScratch& scratch, int vocab, double total, const Sampling& s, int greedy, std::vector<std::pair<float, int>>& out) {
  const std::size_t k = s.top_k > 0 ? (std::size_t)std::min(s.top_k, vocab) : 0;
  float bars[] = {1e-3f, 1e-5f, 0.0f};
  int n = 3;
  if (!k) bars[0] = (float)std::max(0.0, (1.0 - (double)s.top_p) * total / vocab), n = 1;
  for (int b = 0; b < n; b++) {
    out.clear();
    for (int i = 0; i < vocab; i++)
      if (scratch.weights[i] > bars[b]) out.emplace_back(scratch.weights[i], i);
    if (out.size() >= std::max<std::size_t>(k, 1)) break;
  }
  if (k && out.size() > k) {
    std::nth_element(out.begin(), out.begin() + (std::ptrdiff_t)k, out.end(), heavier);
    out.resize(k);
  }
  if (out.empty()) out.emplace_back(1.0f, greedy);  // so flat that none passes the bar
}

// Draws among the candidates in order of weight. Sorts them only as far as the nucleus reaches, in growing pieces: it
// is mostly a few tokens, and the candidates thousands. `total` is the weight that top_p is a share of: all tokens', or
// with top_k the candidates'.
int draw_sorted(std::vector<std::pair<float, int>>& c, const Sampling& s, double total, double u) {
  double kept = 0;
  if (s.top_k > 0) {
    total = 0;
    for (const auto& [w, id] : c) total += w;
  }
  std::size_t n = 0, sorted = 0;
  for (std::size_t piece = 64; n < c.size(); n++) {
    if (n == sorted) {
      const auto from = c.begin() + (std::ptrdiff_t)sorted;
      sorted = std::min(c.size(), sorted + piece), piece *= 4;
      const auto to = c.begin() + (std::ptrdiff_t)sorted;
      if (to != c.end()) std::nth_element(from, to, c.end(), heavier);
      std::sort(from, to, heavier);
    }
    if (n > 0 && (kept >= (double)s.top_p * total || c[n].first < s.min_p * c[0].first)) break;
    kept += c[n].first;
  }
  double at = u * kept;
  for (std::size_t i = 0; i < n; i++)
    if ((at -= c[i].first) < 0) return c[i].second;
  return c[n - 1].second;
}

int draw_all(const SampleScratch& scratch, int vocab, float min_p, double u) {
  double total = 0;
  for (int i = 0; i < vocab; i++)
    if (scratch.weights[i] >= min_p) total += scratch.weights[i];
  double at = u * total;
  int last = 0;
  for (int i = 0; i < vocab; i++) {
    if (scratch.weights[i] < min_p || scratch.weights[i] == 0) continue;
    last = i;
    if ((at -= scratch.weights[i]) < 0) return i;
  }
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
  const float* x = adjusted(raw, vocab, slot, mask, no_ends, scratch.logits);
  if (x != raw) greedy = k.argmax(x, vocab, &most, &finite);
  if (most == kNever && no_ends) {  // only an end may come: then one must
    no_ends = false;
    x = adjusted(raw, vocab, slot, mask, no_ends, scratch.logits);
    greedy = k.argmax(x, vocab, &most, &finite);
  }
  out.allowed = most != kNever;
  if (!out.allowed) return;
  if (s.temperature == 0) {
    out.token = greedy;
  } else {
    const float by = std::min(1.0f / s.temperature, 1e8f);
    const double total = k.exp_sum(x, vocab, most, by, scratch.weights.data());
    // exp(-inf) is a little more than 0 here
    if (mask) forbid(mask, vocab, 0, scratch.weights.data());
    if (no_ends)
      for (int id : s.end_ids) scratch.weights[(std::size_t)id] = 0;
    const double u = uniform(s.seed, (std::uint32_t)s.choice, (std::uint32_t)position, kPurposeToken);
    if (s.top_k > 0 || s.top_p < 1) {
      gather(scratch, vocab, total, s, greedy, scratch.candidates);
      out.token = draw_sorted(scratch.candidates, s, total, u);
    } else {
      out.token = draw_all(scratch, vocab, s.min_p, u);
    }
  }
  // the difference first: near certainty it is tiny, and the greatest logit is not
  if (s.logprobs >= 0) out.logprob = (raw[out.token] - raw_most) - log_sum;
  slot.append(out.token, true);
}

}  // namespace headway
