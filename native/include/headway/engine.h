// The whole boundary of the native core: load weights, open slots, run steps. Nothing here knows Python.
//
// Rule (decision 2): each output row is computed in a fixed order that does not depend on which other rows share the
// step, how a prompt was cut into chunks, what came from the prefix cache, or how many threads run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "headway/kv_type.h"

namespace headway {

// Tokens in one KV block. Equal to the width of the attention kernel: a block's 16 keys are scored in 16 lanes.
inline constexpr int kBlock = 16;

// Tensor types as they lie in files, named as in ggml.
enum class Type { F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K, MXFP4 };

Type type_of(const std::string& name);                   // throws std::invalid_argument
std::size_t row_bytes(Type type, std::int64_t columns);  // throws if the type's block does not divide the row

// What a feed-forward multiplies its up by: its gate g times sigmoid(g), or GELU of it (as tanh gives it). Clamped: with
// g at most 7 and the up u within 7, it is (u + 1) g sigmoid(1.702 g).
enum class Activation { Silu, Gelu, ClampedSilu };

struct Config {
  int layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0, context = 0;
  float norm_eps = 1e-5f;
  float rope_scale = 1.0f;                   // multiplies cos and sin
  std::vector<std::vector<float>> inv_freq;  // per way to rotate: [rotated / 2] of a head's first `rotated` dimensions
  std::vector<int> ropes;                    // per layer: which of them; -1: none
  std::vector<int> windows;                  // per layer: keys a query sees, itself included; 0: all
  // Layers whose K and V share blocks are a group, whose tables name them; [group]: its layers. All in one if empty.
  std::vector<std::vector<int>> groups;
  float attention_scale = 1.0f;              // multiplies scores
  float attention_cap = 0, logit_cap = 0;    // a score or logit x becomes cap * tanh(x / cap); 0: stays
  float embed_scale = 1.0f;                  // multiplies embeddings
  float residual_scale = 1.0f;               // multiplies what attention and feed-forward add
  Activation activation = Activation::Silu;
  bool tied = false;                         // the head is the embedding
  // `ffn` is the width of the feed-forward that all rows go through, 0 where there are only experts.
  int experts = 0, active_experts = 0, expert_ffn = 0;
  bool renormalise = false;                  // the weights of a row's active experts add up to 1
};

std::size_t kv_head_bytes(KvType type, int head_dim);  // of one KV head's keys and values in one block

struct Limits {
  int threads = 1;
  KvType kv = KvType::F16;
  int blocks = 0;      // KV blocks in the pool
  int slots = 0;       // sequences with runner state
  int max_tokens = 0;  // tokens computed in one step
};

// A tensor to load: `rows` rows of `row_bytes(type, columns)` bytes each, contiguous. Copied or repacked, never kept.
struct Tensor {
  Type type;
  std::int64_t rows, columns;
  const std::uint8_t* data;
  const std::uint8_t* packed = nullptr;  // a matrix packed before, aligned to 64: used as it is, for as long as the engine lives
};

struct Sampling {
  float temperature = 1, top_p = 1, min_p = 0, repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  int top_k = 0, min_tokens = 0, logprobs = -1, choice = 0;  // logprobs: -1 none, k: the chosen and the k best
  std::uint64_t seed = 0;
  std::vector<std::pair<int, float>> logit_bias;
  std::vector<int> end_ids;  // masked until min_tokens, as long as anything else may come
  bool masked = false;       // only what the step's mask of the slot allows
};

// One sequence's part of a step; see core/runner.py `Work`.
struct Work {
  int slot, start, count;
  const std::uint32_t* tokens;  // [count]
  const std::uint32_t* tables;  // [group][blocks()]
  bool sample;

  int blocks() const { return (start + count + kBlock - 1) / kBlock; }
  const std::uint32_t* table(int group) const { return tables + (std::size_t)group * blocks(); }
};

struct Sampled {
  int token = -1;
  bool finite = true;  // false: a NaN or infinity came up in this work, sampled or not; token is meaningless
  bool allowed = true;  // false: the mask allows no token at all; token is meaningless
  float logprob = 0;
  std::vector<std::pair<int, float>> top;
};

// Which tokens the slots may draw: [slots][ceil(vocab / 32)] words, a token's bit set where it is allowed. They may be
// written while the step computes: `ready` is called before the first draw, and returns when they are.
struct Masks {
  const std::uint32_t* bits = nullptr;
  std::function<void()> ready;
};

// One loaded model with its KV pool. All methods from one thread at a time; `step` uses `limits.threads` threads.
class Engine {
 public:
  Engine(Config config, Limits limits);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Places a tensor; `role` and `layer` as in model/spec.py. Throws std::invalid_argument on a wrong role or shape.
  void load(const std::string& role, int layer, const Tensor& tensor);
  // Checks that nothing is missing and allocates all that a step needs: steady-state steps allocate nothing.
  void finish();

  // Gives `slot` to a sequence whose tokens so far are `known`, the first `prompt` of them its prompt.
  void open(int slot, const Sampling& sampling, const std::uint32_t* known, std::size_t count, std::size_t prompt);
  // Tokens that follow the slot's newest one without having been drawn.
  void extend(int slot, const std::uint32_t* tokens, std::size_t count);
  // Makes KV block `to` what `from` is, in all layers.
  void copy_block(int from, int to);
  // Computes one step; `out[i]` is of `work[i]` (there may be more of them), without `sample` only its `finite`. Throws
  // std::invalid_argument on impossible work.
  void step(const Work* work, int count, std::vector<Sampled>& out, const Masks& masks = {});
  // The logits of the last step's sampled rows, [samples][vocab], as the model gave them: for tests and quality runs.
  // Valid for at most `kLogitRows` samples.
  const float* logits(int sample) const;

  const Config& config() const;
  const char* isa() const;
  std::size_t weight_bytes() const;     // as packed in memory
  std::size_t embedding_bytes() const;  // of these, the embedding's
  std::size_t expert_bytes() const;     // and the experts', active or not
  std::size_t kv_bytes() const;      // the pool's size

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Most sequences whose logits are held at once; more samples in a step are done in turns.
inline constexpr int kLogitRows = 64;

// This machine's limits, measured with `threads` threads by code that shares nothing with the kernels above.
struct Probe {
  double read_bytes_per_s;  // a 512 MiB buffer, vector loads, best of five
  double int8_macs_per_s;   // independent accumulators, best of five
};
Probe probe(int threads);

const char* best_isa();  // what HEADWAY_ISA asks for, or the best this processor has; throws on an impossible wish

}  // namespace headway
