// Weights, the paged KV pool and the forward pass over both, in model order.
#pragma once

#include <string>
#include <vector>

#include "headway/engine.h"
#include "kernels/kernels.h"
#include "memory.h"
#include "threads.h"
#include "weights.h"

namespace headway {

struct Expert {
  Matrix gate, up, down;

  Matrix* part(const std::string& name);  // null: it has no such part
};

struct Layer {
  Matrix q, k, v, o, gate, up, down;
  Matrix router, shared_router;  // whose experts a row goes through; how much it takes of gate, up and down beside them
  std::vector<Expert> experts;
  Buffer<float> attn_norm, ffn_norm, q_norm, k_norm, attn_post_norm, ffn_post_norm;
  Buffer<float> sinks;  // per query head: the score of a key without a value, which only takes its share of the attention
  int q_span = 0, k_span = 0;  // outputs that q_norm and k_norm normalise together: a head's or all
  unsigned attn_forms = 0, o_forms = 0, ffn_forms = 0, down_forms = 0;  // forms of input its matrices need
  unsigned expert_forms = 0, expert_down_forms = 0;                     // and its experts'
};

struct Weights {
  Matrix embed, head;
  Buffer<float> final_norm;
  std::vector<Layer> layers;

  void load(const Config& config, const std::string& role, int layer, const Tensor& tensor);
  void check(const Config& config);  // throws std::invalid_argument naming what is missing
  std::size_t bytes() const;
  std::size_t expert_bytes() const;
};

// Which experts the rows of a step go through. A slot is a row at one of its experts; slots are sorted by expert.
struct Routing {
  std::vector<int> chosen, slot;  // [row][rank]: expert and slot
  std::vector<float> weight;      // [row][rank]
  std::vector<int> first, next;   // [expert + 1]: its first slot; scratch
  std::size_t logit_stride = 0;
  Buffer<float> logits, shared;  // [row]
  Buffer<float> x, y;            // [slot][hidden]: inputs and results
  Buffer<float> gate, up;        // [slot][expert_ffn]

  void allocate(const Config& config, std::size_t rows, std::size_t hidden_stride);
};

// Keys and values: [block][layer of a group][kv head] as KvType says. All layers of a block together, so that memory
// touched for the first time comes a page at a time, not in all layers' pages at once. A block has room for the largest
// group's layers.
struct KvCache {
  struct Place {
    int group = 0, layer = 0;  // which of the group's
  };

  int head_pad = 0;
  std::vector<Place> places;                                        // [layer]
  std::size_t head_stride = 0, layer_stride = 0, block_stride = 0;  // bytes
  Buffer<std::uint8_t> memory;

  KvCache() = default;
  KvCache(const Config& config, KvType type, int blocks);
  std::uint8_t* at(int layer, int head) { return memory.data() + places[layer].layer * layer_stride + head * head_stride; }
};

class Model {
 public:
  Model(const Config& config, const Limits& limits, const Kernels& kernels);

  Weights weights;
  KvCache cache;
  Threads threads;

  void allocate();
  // Computes all rows of the step; hidden rows stay for `head`.
  void forward(const Work* work, int count);
  // Whether a hidden row of the step is finite.
  bool finite(int row) const;
  // Logits of `rows` <= kLogitRows hidden rows, [rows][logit_stride()].
  void head(const int* rows, int count);
  const float* logits() const { return logits_.data(); }
  std::size_t logit_stride() const { return logit_stride_; }

 private:
  struct Output {
    const Matrix* matrix;
    float* to;
    std::size_t stride;
  };
  struct QueryBlock {
    int work, from, count;  // tokens [from, from + count) of the work
  };

  void embed(const Work* work, int count);
  void prepare(const float* x, std::size_t stride, int columns, int rows, unsigned forms, const float* norm);
  void multiply(std::initializer_list<Output> outputs, int rows, bool add);
  void feed_forward(const Layer& layer, int rows);
  void gate(const Layer& layer, int rows);
  decltype(Kernels::swiglu) activation() const;
  void add(const Matrix& matrix, const Buffer<float>& norm, int rows);
  void add_branch(const Buffer<float>& norm, int rows);
  void route(const Layer& layer, int rows);
  template <class F>
  void each_expert(const Layer& layer, int groups, F&& work);
  void mix_experts(const Layer& layer, int rows);
  void cap_logits(int count);
  void place_keys(int index, const Layer& layer, const Work* work, int rows);
  void attend(int index, const Work* work);
  void attend_block(int index, const Work* work, const QueryBlock& block, int head, int thread, int split, float* alone);
  void finish_block(const Layer& layer, const QueryBlock& block, int head, const float* run);

  const Config& config_;
  const Limits& limits_;
  const Kernels& kernels_;
  const KvKernels& kv_kernels_;
  int group_ = 1;              // query heads per KV head
  int most_queries_ = 0;       // in one query block
  std::size_t hidden_stride_ = 0, logit_stride_ = 0;
  Routing routing_;
  Activations in_;             // the prepared input of the next `multiply`
  std::vector<int> row_work_;  // which work each row belongs to
  std::vector<int> row_first_; // first row of each work
  std::vector<QueryBlock> blocks_;
  Buffer<float> x_, q_, k_, v_, attended_, gate_, up_, branch_, norm_, scale_, sum_, cos_, sin_, logits_, gathered_;
  Buffer<std::int8_t> codes_;
  Buffer<std::uint16_t> bf16_;
  Buffer<std::int32_t> offset_;
  // the queries for 8-bit keys: [rows][heads] of [head_pad], [head_pad / 32], [2 * head_pad / 32]
  Buffer<std::int8_t> query_codes_;
  Buffer<float> query_scale_;
  Buffer<std::int32_t> query_offset_;
  // per thread: scores, and one query block's running and newest partial result
  std::size_t scratch_stride_ = 0;
  Buffer<float> scratch_;
  // partial results of query blocks whose splits run on several threads
  std::size_t partial_stride_ = 0;
  int most_partials_ = 0;
  Buffer<float> partial_;
};

}  // namespace headway
