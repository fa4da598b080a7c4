// Every kernel of every instruction set this processor runs against the scalar reference, and the engine against its
// own promise: the same bits whatever the batch, the chunking, the thread count or the blocks.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <stdexcept>

#include "headway/engine.h"
#include "kernels/kernels.h"
#include "kernels/reference.h"
#include "sample.h"
#include "threads.h"
#include "weights.h"

static std::atomic<long> allocations{0};
// Not inlined: GCC would take malloc and free inside for a mismatch with new and delete outside.
__attribute__((noinline)) void* operator new(std::size_t n) {
  allocations++;
  if (void* p = std::malloc(n ? n : 1)) return p;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* p) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace headway {
namespace {

int failures = 0;

void expect(bool good, const std::string& what) {
  if (good) return;
  failures++;
  std::printf("FAILED %s\n", what.c_str());
}

const std::vector<const Kernels*>& all_kernels() {
  static std::vector<const Kernels*> found;
  if (found.empty())
    for (const char* name : {"portable", "avx2", "avx512vnni", "avx512bf16"})
      if (const Kernels* k = kernels_named(name)) found.push_back(k);
  return found;
}

std::mt19937 random_bits(7);

std::vector<float> normal(std::size_t n, float deviation = 1) {
  std::normal_distribution<float> d(0, deviation);
  std::vector<float> v(n);
  for (float& x : v) x = d(random_bits);
  return v;
}

std::uint16_t half(float x) {  // by way of the slowest exact path: the portable kernels' rounding is tested with it
  const std::uint32_t b = std::bit_cast<std::uint32_t>(x);
  if ((b & 0x7fffffffu) < 0x38800000u) return (std::uint16_t)(b >> 16 & 0x8000u);
  return (std::uint16_t)((b >> 16 & 0x8000u) | (((b & 0x7fffffffu) + 0xfffu + (b >> 13 & 1u) - 0x38000000u) >> 13));
}

// Random bytes of a tensor type with sane scales.
std::vector<std::uint8_t> random_tensor(Type type, int rows, int columns) {
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

constexpr Type kTypes[] = {Type::F32,  Type::F16,  Type::BF16, Type::Q8_0, Type::Q4_0, Type::Q4_1,
                           Type::Q5_0, Type::Q5_1, Type::Q4_K, Type::Q5_K, Type::Q6_K};

void test_matmul() {
  constexpr int kRows = 19, kOut = 50;
  for (Type type : kTypes) {
    const int columns = type == Type::F32 ? 72 : type == Type::F16 ? 48 : 256;
    const auto bytes = random_tensor(type, kOut, columns);
    Matrix m = pack({type, kOut, columns, bytes.data()});
    m.set_bias(normal(kOut));
    std::vector<float> plain((std::size_t)columns), unpacked((std::size_t)columns);
    double worst = 0;
    for (int r = 0; r < kOut; r++) {
      dequantise_row(type, bytes.data() + row_bytes(type, columns) * r, columns, plain.data());
      unpack_row(m.packed, r, unpacked.data());
      // scales are kept in half precision, which rounds only the products inside K blocks
      const float top = *std::max_element(plain.begin(), plain.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); });
      for (int i = 0; i < columns; i++) worst = std::max(worst, (double)std::fabs(plain[i] - unpacked[i]) / std::fabs(top));
    }
    expect(worst < 1e-3, "packing type " + std::to_string((int)type) + " keeps the weights, off by " + std::to_string(worst));
    const auto x = normal((std::size_t)kRows * columns);
    for (const Kernels* k : all_kernels()) {
      const Input in(*k, x, kRows, columns);
      const std::size_t stride = (std::size_t)m.packed.tiles * kLanes;
      std::vector<float> all(kRows * stride), some(kRows * stride, 1.0f);
      for (int t = 0; t < m.packed.tiles; t++) k->matmul(m.packed, t, in.view, 0, kRows, all.data(), stride, false);
      const std::string name = std::string(k->name) + " matmul of type " + std::to_string((int)type);
      double off = 0;
      for (int r = 0; r < kRows; r++)
        for (int c = 0; c < kOut; c++) {
          const double truth = reference::dot(m.packed, c, in.view, r);
          off = std::max(off, std::fabs(truth - all[r * stride + c]) / (1 + std::fabs(truth)));
        }
      expect(off < 1e-4, name + " is off by " + std::to_string(off));
      // rows in odd portions, added to ones: the same bits as 1 + the whole
      int row = 0;
      for (int n : {1, 2, 3, 5, 8}) {
        for (int t = 0; t < m.packed.tiles; t++) k->matmul(m.packed, t, in.view, row, n, some.data(), stride, true);
        row += n;
      }
      bool same = true;
      for (std::size_t i = 0; i < all.size(); i++) same &= some[i] == 1.0f + all[i];
      expect(same, name + " depends on its neighbours");
    }
  }
}

void test_rows() {
  const int n = 160;
  const auto x = normal(n, 3), w = normal(n);
  for (const Kernels* k : all_kernels()) {
    std::vector<float> out(n);
    std::vector<double> truth(n);
    k->rms_norm(x.data(), w.data(), n, 1e-5f, out.data());
    reference::rms_norm(x.data(), w.data(), n, 1e-5f, truth.data());
    for (int i = 0; i < n; i++) expect(std::fabs(out[i] - truth[i]) < 1e-5, std::string(k->name) + " rms_norm");
    k->swiglu(x.data(), w.data(), n, out.data());
    for (int i = 0; i < n; i++) expect(std::fabs(out[i] - reference::swiglu(x[i], w[i])) < 1e-5, std::string(k->name) + " swiglu");
    float total = k->exp_sum(x.data(), n - 3, 2.0f, 0.7f, out.data());
    double expected = 0;
    for (int i = 0; i < n - 3; i++) {
      expected += std::exp((x[i] - 2.0) * 0.7);
      expect(std::fabs(out[i] / std::exp((x[i] - 2.0) * 0.7) - 1) < 1e-5, std::string(k->name) + " exp_sum element");
    }
    expect(std::fabs(total / expected - 1) < 1e-5, std::string(k->name) + " exp_sum");
    auto y = x;
    y[37] = y[90] = 50;
    float best;
    bool finite;
    expect(k->argmax(y.data(), n - 5, &best, &finite) == 37 && best == 50 && finite, std::string(k->name) + " argmax");
    for (float bad : {NAN, INFINITY, -INFINITY})
      for (int at : {3, n - 6}) {
        y[at] = bad;
        k->argmax(y.data(), n - 5, &best, &finite);
        expect(!finite, std::string(k->name) + " argmax finds what is not finite");
        y[at] = 0;
      }
  }
}

void test_attention() {
  constexpr int kHeadDim = 40, kPad = 48, kContext = 700, kQ = 21;
  std::vector<std::uint16_t> pool((std::size_t)(kContext / kBlock + 2) * 2 * kBlock * kPad);
  std::vector<std::uint32_t> table(kContext / kBlock + 1);
  for (std::size_t i = 0; i < table.size(); i++) table[i] = (std::uint32_t)(table.size() - 1 - i);
  const std::size_t stride = 2 * kBlock * kPad;
  const auto queries = normal(kQ * kHeadDim);
  std::vector<const float*> pointers;
  std::vector<int> last, first;
  for (int i = 0; i < kQ; i++) {
    pointers.push_back(queries.data() + i * kHeadDim);
    last.push_back(i < 15 ? 600 + i : 17 * i);
    first.push_back(i % 4 == 3 ? last.back() - std::min(last.back(), 290) : 0);
  }
  for (const Kernels* k : all_kernels()) {
    random_bits.seed(11);
    for (int p = 0; p < kContext; p++) {
      const auto key = normal(kHeadDim), value = normal(kHeadDim);
      k->write_kv(key.data(), value.data(), kHeadDim, kPad, p % kBlock, pool.data() + table[p / kBlock] * stride);
    }
    const auto run = [&](int from, int count) {
      const Attention a = {pool.data(), stride, table.data(), kHeadDim, kPad, 0.3f, count, pointers.data() + from, last.data() + from, first.data() + from};
      std::vector<float> scores((std::size_t)count * kSplit), m(count), s(count), o((std::size_t)count * kPad), rm(count), rs(count), ro(o.size());
      for (int split = 0; split <= kContext / kSplit; split++) {
        k->attend(a, split, scores.data(), m.data(), s.data(), o.data());
        for (int i = 0; i < count; i++) k->merge(&rm[i], &rs[i], &ro[(std::size_t)i * kPad], m[i], s[i], &o[(std::size_t)i * kPad], kPad);
      }
      for (int i = 0; i < count; i++)
        for (int d = 0; d < kPad; d++) ro[(std::size_t)i * kPad + d] /= rs[i];
      return ro;
    };
    const auto all = run(0, kQ);
    double off = 0;
    bool same = true;
    for (int i = 0; i < kQ; i++) {
      const Attention a = {pool.data(), stride, table.data(), kHeadDim, kPad, 0.3f, kQ, pointers.data(), last.data(), first.data()};
      double truth[kHeadDim];
      reference::attend(a, i, truth);
      const auto alone = run(i, 1);
      for (int d = 0; d < kHeadDim; d++) {
        off = std::max(off, std::fabs(truth[d] - all[(std::size_t)i * kPad + d]));
        same &= alone[d] == all[(std::size_t)i * kPad + d];
      }
    }
    expect(off < 1e-5, std::string(k->name) + " attention is off by " + std::to_string(off));
    expect(same, std::string(k->name) + " attention depends on its neighbours");
  }
}

void test_threads() {
  for (int n : {1, 2, 4}) {
    Threads threads(n);
    for (int round = 0; round < 3; round++) {
      threads.begin();
      for (int loop = 0; loop < 2000; loop++) {
        const int items = 1 + (int)(random_bits() % 40), chunk = 1 + (int)(random_bits() % 5);
        std::vector<std::atomic<int>> hits((std::size_t)items);
        threads.run(items, chunk, [&](int i, int) { hits[(std::size_t)i]++; });
        for (auto& h : hits)
          if (h != 1) expect(false, "each item of a loop runs once");
      }
      threads.end();
    }
  }
}

void test_uniform() {
  double sum = 0;
  for (int i = 0; i < 10000; i++) sum += uniform(42, 0, (std::uint32_t)i, 0);
  expect(std::fabs(sum / 10000 - 0.5) < 0.02, "uniform numbers average a half");
  expect(uniform(1, 0, 5, 0) == uniform(1, 0, 5, 0) && uniform(1, 0, 5, 0) != uniform(2, 0, 5, 0) &&
             uniform(1, 1, 5, 0) != uniform(1, 0, 5, 0) && uniform(1, 0, 6, 0) != uniform(1, 0, 5, 0),
         "the number depends on each part of its key");
}

void test_sampling() {
  const Kernels& k = best_kernels();
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
  s.top_p = 1, s.top_k = 5, s.min_tokens = 1, s.end_ids = order;
  slot.reset(s, nullptr, 0, 0, kVocab, 64);
  sample(k, logits.data(), kVocab, slot, 0, scratch, out);
  expect(out.token >= 0 && out.token < kVocab, "every token an end, and none allowed");
  std::vector<float> certain(kVocab, -40.0f);
  certain[4] = 30;
  certain[9] = 15;
  s = Sampling();
  s.logprobs = 0;
  slot.reset(s, nullptr, 0, 0, kVocab, 64);
  sample(k, certain.data(), kVocab, slot, 0, scratch, out);
  expect(out.token == 4 && out.logprob < 0 && out.logprob > -1e-6, "a nearly certain token has a logprob below 0");
}

struct Tiny {
  static constexpr int kVocab = 96, kContext = 640, kPrompts = 5;
  Config config;
  std::vector<std::vector<std::uint8_t>> memory;

  Tiny() {
    config.layers = 2, config.hidden = 64, config.heads = 6, config.kv_heads = 2, config.head_dim = 16, config.ffn = 96;
    config.vocab = kVocab, config.context = kContext, config.windows = {0, 100}, config.tied = true;
    for (int i = 0; i < 8; i++) config.inv_freq.push_back(std::pow(10000.0f, -i / 8.0f));
  }

  std::unique_ptr<Engine> build(int threads, int max_tokens) {
    random_bits.seed(5);
    Limits limits;
    limits.threads = threads, limits.blocks = 256, limits.slots = 8, limits.max_tokens = max_tokens;
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
    matrix("embed", -1, Type::Q8_0, kVocab, 64), ones("final_norm", -1, 64);
    for (int i = 0; i < 2; i++) {
      ones("attn_norm", i, 64), ones("ffn_norm", i, 64), ones("q_norm", i, 16), ones("k_norm", i, 16);
      matrix("q", i, Type::Q4_1, 96, 64), matrix("k", i, Type::BF16, 32, 64), matrix("v", i, Type::F16, 32, 64);
      matrix("o", i, Type::Q5_1, 64, 96), matrix("gate", i, Type::Q4_0, 96, 64), matrix("up", i, Type::F32, 96, 64);
      matrix("down", i, Type::Q5_0, 64, 96);
    }
    e->finish();
    return e;
  }
};

// Runs five prompts to 40 more tokens each, `chunk` prompt tokens a step, together or one after the other.
std::vector<std::vector<std::uint32_t>> generate(Engine& e, int chunk, bool together, bool scattered) {
  std::vector<std::vector<std::uint32_t>> known(Tiny::kPrompts), tables(Tiny::kPrompts);
  std::vector<int> computed(Tiny::kPrompts);
  const int lengths[] = {3, 17, 64, 310, 530};
  for (int i = 0; i < Tiny::kPrompts; i++) {
    for (int t = 0; t < lengths[i]; t++) known[i].push_back((std::uint32_t)((t * 7 + i * 13 + t * t) % Tiny::kVocab));
    for (int b = 0; b < Tiny::kContext / kBlock; b++) tables[i].push_back((std::uint32_t)(scattered ? (b * 5 + i) % 200 : i * 40 + b));
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

void test_engine() {
  Tiny tiny;
  for (const Kernels* k : all_kernels()) {
    setenv("HEADWAY_ISA", k->name, 1);
    const auto base = generate(*tiny.build(1, 2000), 1000, false, false);
    for (int threads : {1, 2, 4})
      for (int chunk : {1, 16, 64, 512}) {
        auto e = tiny.build(threads, 2560);
        expect(generate(*e, chunk, true, false) == base,
               std::string(k->name) + " engine gives other tokens with " + std::to_string(threads) + " threads and chunks of " + std::to_string(chunk));
      }
    auto e = tiny.build(2, 2000);
    expect(generate(*e, 300, false, true) == base, std::string(k->name) + " engine depends on where its blocks lie");
  }
  unsetenv("HEADWAY_ISA");
}

void test_no_allocation() {
  Tiny tiny;
  auto e = tiny.build(2, 64);
  constexpr int kSequences = 3;
  std::vector<std::uint32_t> tables[kSequences], tokens(kSequences, 3);
  for (int s = 0; s < kSequences; s++) {
    for (std::uint32_t i = 0; i < 40; i++) tables[s].push_back((std::uint32_t)s * 40 + i);
    Sampling sampling;
    sampling.temperature = 0.8f, sampling.top_p = 0.9f, sampling.frequency_penalty = 0.5f, sampling.logprobs = 5 * s;
    e->open(s, sampling, &tokens[0], 1, 1);
  }
  std::vector<Sampled> out;
  Work work[kSequences];
  long before = 0;
  for (int i = 0; i < 600; i++) {
    const int n = i < 2 ? kSequences : 1 + i % kSequences;  // batches of changing size
    if (i == 2) before = allocations;
    for (int s = 0; s < n; s++) work[s] = {s, i, 1, &tokens[s], tables[s].data(), true};
    e->step(work, n, out);
    for (int s = 0; s < n; s++) tokens[s] = (std::uint32_t)out[s].token;
  }
  const bool none = allocations == before;
  expect(none, "a steady step allocates nothing");
}

// A token whose embedding is not finite spoils its own sequence only, wherever in the prompt it stands, and leaves nothing
// behind for the next one; with a hidden size that fills no whole tile.
void test_poison() {
  Config c;
  c.layers = 1, c.hidden = 72, c.heads = 2, c.kv_heads = 1, c.head_dim = 16, c.ffn = 40, c.vocab = 20, c.context = 64;
  c.windows = {0}, c.tied = false, c.inv_freq.assign(8, 0.5f);
  for (const float poison : {INFINITY, NAN}) {
    Limits limits;
    limits.threads = 2, limits.blocks = 16, limits.slots = 4, limits.max_tokens = 64;
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
  refuses({0, 0, 17, tokens.data(), table.data(), true}, "too many tokens");
  refuses({1, 0, 1, tokens.data(), table.data(), true}, "a slot that is not open");
  refuses({9, 0, 1, tokens.data(), table.data(), true}, "a slot out of range");
  refuses({0, Tiny::kContext, 1, tokens.data(), table.data(), true}, "a position outside the context");
  tokens[0] = Tiny::kVocab;
  refuses({0, 0, 1, tokens.data(), table.data(), true}, "a token out of vocabulary");
  tokens[0] = 1, table[0] = 256;
  refuses({0, 0, 1, tokens.data(), table.data(), true}, "a block outside the pool");
}

}  // namespace

int run() {
  test_matmul(), test_rows(), test_attention(), test_threads(), test_uniform(), test_sampling(), test_engine(), test_no_allocation(), test_poison(), test_refusals();
  std::printf("%s: %d failures, instruction sets:", failures ? "FAILED" : "ok", failures);
  for (const Kernels* k : all_kernels()) std::printf(" %s", k->name);
  std::printf("\n");
  return failures != 0;
}

}  // namespace headway

int main() { return headway::run(); }
