// The engine against its own promise: the same bits whatever the batch, the chunking, the thread count or the blocks.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>

#include "check.h"

namespace headway {
namespace {

struct Tiny {
  static constexpr int kVocab = 96, kContext = 640, kPrompts = 5;
  Config config;
  KvType kv = KvType::F16;

  float sink = NAN;  // of all heads; NAN: there are none

  explicit Tiny(bool experts = false) {
    if (experts) config.experts = 5, config.active_experts = 2, config.expert_ffn = 48, config.renormalise = true, config.activation = Activation::ClampedSilu;
    config.layers = 2, config.hidden = 64, config.heads = 6, config.kv_heads = 2, config.head_dim = 16, config.ffn = 96;
    config.vocab = kVocab, config.context = kContext, config.windows = {0, 100}, config.tied = true;
    config.attention_scale = 0.25f, config.attention_cap = 5, config.inv_freq.resize(1), config.ropes = {0, -1};
    for (int i = 0; i < 8; i++) config.inv_freq[0].push_back(std::pow(10000.0f, -i / 8.0f));
  }

  std::unique_ptr<Engine> build(int threads, int max_tokens) {
    random_bits.seed(5);
    Limits limits;
    limits.kv = kv, limits.threads = threads, limits.blocks = 256, limits.slots = 8, limits.max_tokens = max_tokens;
    auto e = std::make_unique<Engine>(config, limits);
    const auto matrix = [&](const char* role, int layer, Type type, int rows, int columns) {
      const auto bytes = random_tensor(type, rows, columns);
      e->load(role, layer, {type, rows, columns, bytes.data()});
    };
    const auto ones = [&](const char* role, int layer, int n) {
      auto v = normal((std::size_t)n, 0.1f);
      for (float& x : v) x += 1;
      e->load(role, layer, {Type::F32, 1, n, (const std::uint8_t*)v.data()});
    };
    const auto bias = [&](const std::string& role, int layer, int n) {
      const auto v = normal((std::size_t)n, 0.5f);
      e->load(role + "_bias", layer, {Type::F32, 1, n, (const std::uint8_t*)v.data()});
    };
    matrix("embed", -1, Type::Q8_0, kVocab, 64), ones("final_norm", -1, 64);
    for (int i = 0; i < 2; i++) {
      ones("attn_norm", i, 64), ones("ffn_norm", i, 64), ones("q_norm", i, 16), ones("k_norm", i, 16);
      matrix("q", i, Type::Q4_1, 96, 64), matrix("k", i, Type::BF16, 32, 64), matrix("v", i, Type::F16, 32, 64);
      matrix("o", i, Type::Q5_1, 64, 96), matrix("gate", i, Type::Q4_0, 96, 64), matrix("up", i, Type::F32, 96, 64);
      matrix("down", i, Type::Q5_0, 64, 96);
      if (!std::isnan(sink)) {
        const std::vector<float> same(6, sink);
        e->load("sinks", i, {Type::F32, 1, 6, (const std::uint8_t*)same.data()});
      }
      if (config.experts) ones("sinks", i, 6), matrix("router", i, Type::F32, 5, 64), bias("router", i, 5), bias("o", i, 64), matrix("shared_router", i, Type::F32, 1, 64);
      for (int x = 0; x < config.experts; x++) {
        const auto of = [x](const char* part) { return std::string(part).append(std::to_string(x)); };
        matrix(of("gate.").c_str(), i, Type::Q4_0, 48, 64), matrix(of("up.").c_str(), i, Type::Q4_0, 48, 64);
        matrix(of("down.").c_str(), i, Type::F16, 64, 48);
        bias(of("gate."), i, 48), bias(of("up."), i, 48), bias(of("down."), i, 64);
      }
    }
    e->finish();
    return e;
  }
};

// The block of a sequence's b-th 16 tokens in a layer group.
using Blocks = std::uint32_t (*)(int sequence, int group, int b);
std::uint32_t in_a_row(int sequence, int, int b) { return (std::uint32_t)(sequence * 40 + b); }
std::uint32_t scattered(int sequence, int, int b) { return (std::uint32_t)((b * 5 + sequence) % 200); }
// Of the second group, the last ten: all that a window of 100 sees from 16 tokens on.
std::uint32_t ring(int sequence, int group, int b) { return (std::uint32_t)(group ? 200 + sequence * 10 + b % 10 : sequence * 40 + b); }

// Runs five prompts to 40 more tokens each, `chunk` prompt tokens a step, together or one after the other.
std::vector<std::vector<std::uint32_t>> generate(Engine& e, int chunk, bool together, Blocks block) {
  std::vector<std::vector<std::uint32_t>> known(Tiny::kPrompts), tables(Tiny::kPrompts);
  const int groups = (int)e.config().groups.size();
  std::vector<int> computed(Tiny::kPrompts);
  const int lengths[] = {3, 17, 64, 310, 530};
  for (int i = 0; i < Tiny::kPrompts; i++) {
    for (int t = 0; t < lengths[i]; t++) known[i].push_back((std::uint32_t)((t * 7 + i * 13 + t * t) % Tiny::kVocab));
    Sampling s;
    s.temperature = i % 2 ? 0.9f : 0, s.seed = 100u + (unsigned)i, s.top_p = i == 3 ? 0.9f : 1, s.repetition_penalty = i == 1 ? 1.2f : 1;
    e.open(i, s, known[i].data(), known[i].size(), known[i].size());
  }
  const auto done = [&](int i) { return (int)known[i].size() >= lengths[i] + 40; };
  std::vector<Sampled> out;
  for (;;) {
    std::vector<Work> work;
    std::vector<int> who;
    for (int i = 0; i < Tiny::kPrompts; i++) {
      if (done(i) || (!together && !work.empty())) continue;
      const int n = std::min(chunk, (int)known[i].size() - computed[i]);
      tables[i].clear();
      for (int g = 0; g < groups; g++)
        for (int b = 0; b * kBlock < computed[i] + n; b++) tables[i].push_back(block(i, g, b));
      work.push_back({i, computed[i], n, known[i].data() + computed[i], tables[i].data(), computed[i] + n == (int)known[i].size()});
      who.push_back(i);
    }
    if (work.empty()) return known;
    e.step(work.data(), (int)work.size(), out);
    for (std::size_t w = 0; w < work.size(); w++) {
      computed[who[w]] += work[w].count;
      if (work[w].sample) {
        expect(out[w].finite, "tiny model's logits are finite");
        known[who[w]].push_back((std::uint32_t)out[w].token);
      }
    }
  }
}

}  // namespace

void test_engine(bool experts) {
  Tiny tiny(experts);
  for (const Kernels* k : all_kernels())
    for (const KvType kv : {KvType::F16, KvType::Int8}) {
      setenv("HEADWAY_ISA", k->name, 1);
      tiny.kv = kv;
      const std::string name = std::string(k->name) + (kv == KvType::F16 ? " engine" : " engine with 8-bit keys and values");
      const auto base = generate(*tiny.build(1, 2000), 1000, false, in_a_row);
      for (int threads : {1, 2, 4})
        for (int chunk : {1, 16, 64, 512}) {
          auto e = tiny.build(threads, 2560);
          expect(generate(*e, chunk, true, in_a_row) == base,
                 name + " gives other tokens with " + std::to_string(threads) + " threads and chunks of " + std::to_string(chunk));
        }
      auto e = tiny.build(2, 2000);
      expect(generate(*e, 300, false, scattered) == base, name + " depends on where its blocks lie");
      Tiny grouped = tiny;
      grouped.config.groups = {{0}, {1}};
      e = grouped.build(2, 2000);
      expect(generate(*e, 16, true, ring) == base, name + " sees more of a windowed layer than its window");
    }
  unsetenv("HEADWAY_ISA");
}

// A sink that weighs nothing is as none, to the last bit; one that takes all leaves no attention, and nothing that is not
// finite.
void test_sinks() {
  const auto logits = [](float sink) {
    Tiny tiny;
    tiny.sink = sink;
    auto e = tiny.build(2, 400);
    std::vector<std::uint32_t> tokens(400), table(25);
    for (std::uint32_t i = 0; i < 400; i++) tokens[i] = i * i % Tiny::kVocab;
    for (std::uint32_t b = 0; b < 25; b++) table[b] = b;
    e->open(0, Sampling(), tokens.data(), 400, 400);
    std::vector<Sampled> out;
    const Work work{0, 0, 400, tokens.data(), table.data(), true};
    e->step(&work, 1, out);
    expect(out[0].finite, "a sink leaves all finite");
    return std::vector<float>(e->logits(0), e->logits(0) + Tiny::kVocab);
  };
  const auto without = logits(NAN);
  expect(logits(-1e30f) == without && logits(-INFINITY) == without, "a sink that weighs nothing changes nothing");
  expect(logits(1e30f) == logits(500) && logits(500) != without, "a sink that takes all leaves nothing");
  expect(logits(1) != without && logits(1) != logits(500), "a sink takes its share");
}

void test_no_allocation(bool experts) {
  Tiny tiny(experts);
  auto e = tiny.build(2, 64);
  constexpr int kSequences = 3;
  std::vector<std::uint32_t> tables[kSequences], tokens(kSequences, 3);
  for (int s = 0; s < kSequences; s++) {
    for (std::uint32_t i = 0; i < 40; i++) tables[s].push_back((std::uint32_t)s * 40 + i);
    Sampling sampling;
    sampling.temperature = 0.8f, sampling.top_p = 0.9f, sampling.frequency_penalty = 0.5f, sampling.logprobs = 5 * s;
    sampling.masked = s == 1;
    e->open(s, sampling, &tokens[0], 1, 1);
  }
  std::vector<Sampled> out;
  Work work[kSequences];
  std::vector<std::uint32_t> bits(8 * 3, 0x55555555u);
  int waits = 0;
  bool even = true;
  long before = 0;
  for (int i = 0; i < 600; i++) {
    const int n = i < 2 ? kSequences : 1 + i % kSequences;  // batches of changing size
    if (i == 2) before = allocations;
    for (int s = 0; s < n; s++) work[s] = {s, i, 1, &tokens[s], tables[s].data(), true};
    e->step(work, n, out, {bits.data(), [&waits] { waits++; }});
    for (int s = 0; s < n; s++) tokens[s] = (std::uint32_t)out[s].token;
    even &= n < 2 || tokens[1] % 2 == 0;
    if (i > 500) e->extend(0, &tokens[0], 1);
  }
  const bool none = allocations == before;
  expect(none, "a steady step allocates nothing");
  expect(even, "a masked slot draws what its mask allows");
  expect(waits == 600, "each step waits once for its masks");
}

// A token whose embedding is not finite spoils its own sequence only, wherever in the prompt it stands, and leaves nothing
// behind for the next one; with a hidden size that fills no whole tile.
void test_poison() {
  Config c;
  c.layers = 1, c.hidden = 72, c.heads = 2, c.kv_heads = 1, c.head_dim = 16, c.ffn = 40, c.vocab = 20, c.context = 64;
  c.windows = {0}, c.ropes = {0}, c.tied = false, c.inv_freq = {std::vector<float>(8, 0.5f)};
  for (const float poison : {INFINITY, NAN})
  for (const KvType kv : {KvType::F16, KvType::Int8}) {
    Limits limits;
    limits.kv = kv, limits.threads = 2, limits.blocks = 16, limits.slots = 4, limits.max_tokens = 64;
    Engine e(c, limits);
    const auto load = [&](const char* role, int layer, int rows, int columns) {
      auto v = normal((std::size_t)rows * columns, 0.2f);
      if (!std::strcmp(role, "embed")) v[5 * 72 + 7] = poison;
      e.load(role, layer, {Type::F32, rows, columns, (const std::uint8_t*)v.data()});
    };
    load("embed", -1, 20, 72), load("head", -1, 20, 72), load("final_norm", -1, 1, 72), load("attn_norm", 0, 1, 72), load("ffn_norm", 0, 1, 72);
    load("q", 0, 32, 72), load("k", 0, 16, 72), load("v", 0, 16, 72), load("o", 0, 72, 32);
    load("gate", 0, 40, 72), load("up", 0, 40, 72), load("down", 0, 72, 40);
    e.finish();
    const std::uint32_t bad[] = {3, 5, 4}, good[] = {3, 6, 4}, t0[] = {0}, t1[] = {1};
    for (int slot = 0; slot < 2; slot++) e.open(slot, Sampling(), good, 3, 3);
    std::vector<Sampled> out;
    const Work both[] = {{0, 0, 3, bad, t0, true}, {1, 0, 3, good, t1, true}};
    e.step(both, 2, out);
    expect(!out[0].finite && out[1].finite, "what is not finite ends its own sequence only");
    const int together = out[1].token;
    const Work unsampled = {0, 0, 2, bad, t0, false};
    e.step(&unsampled, 1, out);
    expect(!out[0].finite, "what is not finite is found in a piece of a prompt too");
    e.open(1, Sampling(), good, 3, 3);
    const Work after = {1, 0, 3, good, t0, true};
    e.step(&after, 1, out);
    expect(out[0].finite && out[0].token == together, "what is not finite leaves nothing behind");
  }
}

void test_refusals() {
  Tiny tiny;
  auto e = tiny.build(1, 16);
  std::vector<std::uint32_t> table(40, 0), tokens(20, 1);
  e->open(0, Sampling(), tokens.data(), 1, 1);
  std::vector<Sampled> out;
  const auto refuses = [&](Work w, const char* what) {
    try {
      e->step(&w, 1, out);
      expect(false, what);
    } catch (const std::invalid_argument&) {
    }
  };
  Sampling masked;
  masked.masked = true;
  e->open(2, masked, tokens.data(), 1, 1);
  refuses({2, 0, 1, tokens.data(), table.data(), true}, "a masked slot without masks");
  refuses({0, 0, 17, tokens.data(), table.data(), true}, "too many tokens");
  refuses({1, 0, 1, tokens.data(), table.data(), true}, "a slot that is not open");
  refuses({9, 0, 1, tokens.data(), table.data(), true}, "a slot out of range");
  refuses({0, Tiny::kContext, 1, tokens.data(), table.data(), true}, "a position outside the context");
  tokens[0] = Tiny::kVocab;
  refuses({0, 0, 1, tokens.data(), table.data(), true}, "a token out of vocabulary");
  tokens[0] = 1, table[0] = 256;
  refuses({0, 0, 1, tokens.data(), table.data(), true}, "a block outside the pool");
  for (const std::vector<std::vector<int>>& groups : {std::vector<std::vector<int>>{{0}}, {{0, 1}, {1}}, {{0}, {2}}}) {
    tiny.config.groups = groups;
    try {
      tiny.build(1, 16);
      expect(false, "a layer that is not in one group");
    } catch (const std::invalid_argument&) {
    }
  }
}

}  // namespace headway
