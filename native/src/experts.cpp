// Mixtures of experts: each row goes through the few experts that its router prefers, and takes their results in that
// order. Rows are sorted by expert, so that an expert's weights are read once however many rows want them; as a row's bits
// in a matrix product depend on that row alone, it does not matter which others are with it.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "model.h"

namespace headway {
namespace {

constexpr int kExpertRows = 128;  // rows of one expert whose inputs stay in the second-level cache while its tiles pass

// The experts of one row, best first (of equals the lowest), and their weights.
void choose(const Config& c, float* logits, int* chosen, float* weight) {
  const float most = *std::max_element(logits, logits + c.experts);
  float sum = 0, part = 0;
  for (int e = 0; e < c.experts; e++) sum += logits[e] = std::exp(logits[e] - most);
  for (int rank = 0; rank < c.active_experts; rank++) {
    int best = -1;
    for (int e = 0; e < c.experts; e++)
      if (std::find(chosen, chosen + rank, e) == chosen + rank && (best < 0 || logits[e] > logits[best])) best = e;
    chosen[rank] = best, part += weight[rank] = logits[best] / sum;
  }
  for (int rank = 0; c.renormalise && rank < c.active_experts; rank++) weight[rank] /= part;
}
}  // namespace

void Routing::allocate(const Config& c, std::size_t rows, std::size_t hidden_stride) {
  const std::size_t slots = rows * c.active_experts;
  chosen.resize(slots), slot.resize(slots), weight.resize(slots);
  first.resize((std::size_t)c.experts + 1), next.resize((std::size_t)c.experts + 1);
  logit_stride = padded((std::size_t)c.experts, kLanes);
  logits = Buffer<float>(rows * logit_stride), shared = Buffer<float>(rows * kLanes);
  x = Buffer<float>(slots * hidden_stride), y = Buffer<float>(slots * hidden_stride);
  const std::size_t width = padded((std::size_t)c.expert_ffn, kGroup);
  gate = Buffer<float>(slots * width), up = Buffer<float>(slots * width);
}

// Chooses each row's experts, and brings the rows, as `prepare` has left them, into the order of their experts.
void Model::route(const Layer& l, int rows) {
  Routing& to = routing_;
  const int active = config_.active_experts;
  multiply({{&l.router, to.logits.data(), to.logit_stride}}, rows, false);
  if (l.shared_router) multiply({{&l.shared_router, to.shared.data(), kLanes}}, rows, false);
  threads.run(rows, 4, [&](int r, int) {
    choose(config_, to.logits.data() + r * to.logit_stride, to.chosen.data() + r * active, to.weight.data() + r * active);
  });
  std::fill(to.first.begin(), to.first.end(), 0);
  for (int i = 0; i < rows * active; i++) to.first[(std::size_t)to.chosen[i] + 1]++;
  for (int e = 0; e < config_.experts; e++) to.first[(std::size_t)e + 1] += to.first[(std::size_t)e];
  to.next = to.first;
  for (int i = 0; i < rows * active; i++) to.slot[i] = to.next[(std::size_t)to.chosen[i]]++;
  const float* in = in_.f32;
  threads.run(rows * active, 4, [&](int i, int) {
    std::memcpy(to.x.data() + to.slot[i] * hidden_stride_, in + i / active * hidden_stride_, hidden_stride_ * sizeof(float));
  });
}

// Calls `work(expert, group, row, rows)` for each of the `groups` of tiles of each expert that has rows, on all threads.
template <class F>
void Model::each_expert(const Layer& l, int groups, F&& work) {
  const auto& first = routing_.first;
  auto& item = routing_.next;  // the first item of each expert
  item[0] = 0;
  for (int e = 0; e < config_.experts; e++)
    item[(std::size_t)e + 1] = item[(std::size_t)e] + groups * ((first[(std::size_t)e + 1] - first[(std::size_t)e] + kExpertRows - 1) / kExpertRows);
  const int items = item.back();
  threads.run(items, std::max(1, items / (4 * threads.count())), [&](int i, int) {
    const std::size_t e = (std::size_t)(std::upper_bound(item.begin(), item.end(), i) - item.begin()) - 1;
    const int row = first[e] + (i - item[e]) / groups * kExpertRows;
    work(l.experts[e], (i - item[e]) % groups, row, std::min(kExpertRows, first[e + 1] - row));
  });
}

// What experts, and the feed-forward that all rows share, give for each row, into `branch_`.
void Model::mix_experts(const Layer& l, int rows) {
  Routing& to = routing_;
  route(l, rows);
  if (l.gate) {
    gate(l, rows);
    multiply({{&l.down, branch_.data(), hidden_stride_}}, rows, false);
  }
  const int active = config_.active_experts, slots = rows * active;
  const std::size_t width = padded((std::size_t)config_.expert_ffn, kGroup);
  const auto activate = activation();
  prepare(to.x.data(), hidden_stride_, config_.hidden, slots, l.expert_forms, nullptr);
  each_expert(l, groups_of(l.experts[0].gate.packed), [&](const Expert& expert, int group, int row, int n) {
    const Tiles tiles = group_of(expert.gate.packed, group);
    kernels_.matmul(expert.gate.packed, tiles, in_, row, n, to.gate.data(), width, false);
    kernels_.matmul(expert.up.packed, tiles, in_, row, n, to.up.data(), width, false);
    for (int r = row; r < row + n; r++) {
      const std::size_t at = r * width + (std::size_t)tiles.first * kLanes;
      activate(to.gate.data() + at, to.up.data() + at, tiles.count * kLanes, to.gate.data() + at);
    }
  });
  prepare(to.gate.data(), width, config_.expert_ffn, slots, l.expert_down_forms, nullptr);
  each_expert(l, groups_of(l.experts[0].down.packed), [&](const Expert& expert, int group, int row, int n) {
    kernels_.matmul(expert.down.packed, group_of(expert.down.packed, group), in_, row, n, to.y.data(), hidden_stride_, false);
  });
  threads.run(rows, 4, [&](int r, int) {
    float* out = branch_.data() + r * hidden_stride_;
    const float shared = l.shared_router ? 1 / (1 + std::exp(-to.shared[(std::size_t)r * kLanes])) : l.gate ? 1.0f : 0.0f;
    for (int i = 0; i < config_.hidden; i++) out[i] = shared ? shared * out[i] : 0.0f;
    for (int rank = 0; rank < active; rank++) {
      const std::size_t at = (std::size_t)r * active + rank;
      const float *y = to.y.data() + to.slot[at] * hidden_stride_, weight = to.weight[at];
      for (int i = 0; i < config_.hidden; i++) out[i] += weight * y[i];
    }
  });
}

}  // namespace headway
