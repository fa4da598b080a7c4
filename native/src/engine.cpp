#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "headway/engine.h"
#include "model.h"
#include "sample.h"

namespace headway {
namespace {

// A build for tests can be told to crash whenever it computes a token: HEADWAY_TEST_POISON is its id.
void die_of_poison([[maybe_unused]] const Work& w) {
#if defined(HEADWAY_TEST_HOOKS)
  static const char* const poison = std::getenv("HEADWAY_TEST_POISON");
  if (poison && std::count(w.tokens, w.tokens + w.count, (std::uint32_t)std::atoi(poison))) std::raise(SIGSEGV);
#endif
}

}  // namespace

struct Engine::Impl {
  Config config;
  Limits limits;
  const Kernels& kernels;
  Model model;
  std::vector<Slot> slots;
  std::vector<SampleScratch> scratch;
  std::vector<int> sampled;  // indices into the step's work
  std::vector<int> rows;     // and the hidden row of each
  bool finished = false;

  Impl(Config c, Limits l) : config(std::move(c)), limits(l), kernels(best_kernels()), model(config, limits, kernels) {}

  void check(const Work& w) const {
    const auto fail = [](const char* what) { throw std::invalid_argument(what); };
    if (w.slot < 0 || w.slot >= limits.slots || !slots[(std::size_t)w.slot].open) fail("work names a slot that is not open");
    if (w.count < 1 || w.start < 0 || w.start > config.context - w.count) fail("work lies outside the context");
    for (int i = 0; i < w.count; i++)
      if (w.tokens[i] >= (std::uint32_t)config.vocab) fail("token id out of vocabulary");
    for (int i = 0; i < (int)config.groups.size() * w.blocks(); i++)
      if (w.tables[i] >= (std::uint32_t)limits.blocks) fail("block index outside the pool");
  }
};

Engine::Engine(Config config, Limits limits) {
  if (config.layers < 1 || config.hidden < 1 || config.ffn < (config.experts ? 0 : 1) || config.vocab < 1 || config.context < 1 || config.head_dim < 2 ||
      config.head_dim > 1024 || config.head_dim % 2 || config.kv_heads < 1 || config.heads % config.kv_heads)
    throw std::invalid_argument("impossible model dimensions");
  if (config.inv_freq.empty() || (int)config.ropes.size() != config.layers || (int)config.windows.size() != config.layers)
    throw std::invalid_argument("inv_freq must not be empty; ropes and windows need one value per layer");
  for (const auto& f : config.inv_freq)
    if (f.size() != config.inv_freq[0].size() || (int)f.size() > config.head_dim / 2)
      throw std::invalid_argument("inv_freq needs equally many values for each way to rotate, at most head_dim / 2");
  for (int rope : config.ropes)
    if (rope < -1 || rope >= (int)config.inv_freq.size()) throw std::invalid_argument("a layer rotates by what is not there");
  if (config.groups.empty()) {
    config.groups.emplace_back((std::size_t)config.layers);
    std::iota(config.groups[0].begin(), config.groups[0].end(), 0);
  }
  std::vector<int> grouped;
  for (const auto& group : config.groups) grouped.insert(grouped.end(), group.begin(), group.end());
  std::sort(grouped.begin(), grouped.end());
  for (int i = 0; i < config.layers; i++)
    if ((int)grouped.size() != config.layers || grouped[(std::size_t)i] != i) throw std::invalid_argument("each layer must be in one group");
  if (config.experts < 0 || (config.experts && (config.expert_ffn < 1 || config.active_experts < 1 || config.active_experts > config.experts)))
    throw std::invalid_argument("impossible experts");
  if (limits.threads < 1 || limits.blocks < 1 || limits.slots < 1 || limits.max_tokens < 1)
    throw std::invalid_argument("limits must be positive");
  impl_ = std::make_unique<Impl>(std::move(config), limits);
}

Engine::~Engine() = default;

void Engine::load(const std::string& role, int layer, const Tensor& tensor) {
  impl_->model.weights.load(impl_->config, role, layer, tensor);
}

void Engine::finish() {
  Impl& m = *impl_;
  m.model.allocate();
  m.slots.resize((std::size_t)m.limits.slots);
  for (int i = 0; i < m.model.threads.count(); i++) m.scratch.emplace_back(m.config.vocab);
  m.sampled.reserve((std::size_t)m.limits.max_tokens);
  m.rows.reserve((std::size_t)m.limits.max_tokens);
  m.finished = true;
}

void Engine::open(int slot, const Sampling& sampling, const std::uint32_t* known, std::size_t count, std::size_t prompt) {
  Impl& m = *impl_;
  if (slot < 0 || slot >= m.limits.slots || !m.finished) throw std::invalid_argument("no such slot");
  for (std::size_t i = 0; i < count; i++)
    if (known[i] >= (std::uint32_t)m.config.vocab) throw std::invalid_argument("token id out of vocabulary");
  for (const auto& [id, bias] : sampling.logit_bias)
    if (id < 0 || id >= m.config.vocab) throw std::invalid_argument("logit_bias names a token out of vocabulary");
  for (int id : sampling.end_ids)
    if (id < 0 || id >= m.config.vocab) throw std::invalid_argument("end id out of vocabulary");
  m.slots[(std::size_t)slot].reset(sampling, known, count, prompt, m.config.vocab, m.config.context);
}

void Engine::extend(int slot, const std::uint32_t* tokens, std::size_t count) {
  Impl& m = *impl_;
  if (slot < 0 || slot >= m.limits.slots || !m.slots[(std::size_t)slot].open) throw std::invalid_argument("no such slot is open");
  for (std::size_t i = 0; i < count; i++)
    if (tokens[i] >= (std::uint32_t)m.config.vocab) throw std::invalid_argument("token id out of vocabulary");
  for (std::size_t i = 0; i < count; i++) m.slots[(std::size_t)slot].append((int)tokens[i], true);
}

void Engine::copy_block(int from, int to) {
  Impl& m = *impl_;
  if (std::min(from, to) < 0 || std::max(from, to) >= m.limits.blocks || !m.finished) throw std::invalid_argument("no such block");
  const std::size_t size = m.model.cache.block_stride;
  std::memmove(m.model.cache.memory.data() + (std::size_t)to * size, m.model.cache.memory.data() + (std::size_t)from * size, size);
}

void Engine::step(const Work* work, int count, std::vector<Sampled>& out, const Masks& masks) {
  Impl& m = *impl_;
  if (!m.finished) throw std::invalid_argument("finish() comes before step()");
  int tokens = 0;
  m.sampled.clear(), m.rows.clear();
  for (int i = 0; i < count; i++) {
    m.check(work[i]);
    die_of_poison(work[i]);
    tokens += work[i].count;
    if (tokens > m.limits.max_tokens) throw std::invalid_argument("more tokens than a step may compute");
    if (!work[i].sample) continue;
    if (m.slots[(std::size_t)work[i].slot].sampling.masked && !masks.bits) throw std::invalid_argument("a masked slot needs its mask");
    m.sampled.push_back(i), m.rows.push_back(tokens - 1);
  }
  if (out.size() < (std::size_t)count) out.resize((std::size_t)count);  // never shrunk: its memory is used again
  for (int i : m.sampled) out[(std::size_t)i].top.reserve((std::size_t)std::max(0, m.slots[(std::size_t)work[i].slot].sampling.logprobs));
  const Threads::Session session(m.model.threads);
  m.model.forward(work, count);
  for (int i = 0, row = 0; i < count; i++) {
    out[(std::size_t)i].finite = out[(std::size_t)i].allowed = true;
    for (int t = 0; t < work[i].count; t++) out[(std::size_t)i].finite &= m.model.finite(row++);
  }
  const std::size_t words = ((std::size_t)m.config.vocab + 31) / 32;
  for (std::size_t at = 0; at < m.sampled.size(); at += kLogitRows) {
    const int n = (int)std::min<std::size_t>(kLogitRows, m.sampled.size() - at);
    m.model.head(m.rows.data() + at, n);
    if (at == 0 && masks.ready) masks.ready();
    m.model.threads.run(n, 1, [&](int i, int thread) {
      const int index = m.sampled[at + (std::size_t)i];
      const Work& w = work[index];
      if (!out[(std::size_t)index].finite) return;
      Slot& slot = m.slots[(std::size_t)w.slot];
      sample(m.kernels, m.model.logits() + (std::size_t)i * m.model.logit_stride(), m.config.vocab, slot, w.start + w.count,
             m.scratch[(std::size_t)thread], out[(std::size_t)index], slot.sampling.masked ? masks.bits + (std::size_t)w.slot * words : nullptr);
    });
  }
}

const float* Engine::logits(int sample) const {
  return impl_->model.logits() + (std::size_t)sample * impl_->model.logit_stride();
}
const Config& Engine::config() const { return impl_->config; }
const char* Engine::isa() const { return impl_->kernels.name; }
std::size_t Engine::weight_bytes() const { return impl_->model.weights.bytes(); }
std::size_t Engine::embedding_bytes() const { return impl_->model.weights.embed.bytes(); }
std::size_t Engine::expert_bytes() const { return impl_->model.weights.expert_bytes(); }
std::size_t Engine::kv_bytes() const { return impl_->model.cache.memory.bytes(); }

}  // namespace headway
