#include "model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace headway {
namespace {

constexpr int kMostQueries = 128;  // query heads per KV head a model may have
constexpr int kRowChunk = 128;     // rows whose inputs stay in the second-level cache while all tiles pass
constexpr int kClaims = 4;         // claims per thread and loop: fewer stream better, more even out better

enum Form : unsigned { kF32 = 1, kBf16 = 2, kInt8 = 4 };

unsigned form_of(const Matrix& m) {
  switch (m.packed.format) {
    case Format::F32:
    case Format::F16: return kF32;
    case Format::BF16: return kBf16;
    default: return kInt8;
  }
}

Buffer<float> vector_of(const Tensor& t, std::int64_t length, const std::string& role) {
  if (t.rows * t.columns != length)
    throw std::invalid_argument(role + " has " + std::to_string(t.rows * t.columns) + " values, not " + std::to_string(length));
  const std::vector<float> values = to_floats(t);
  Buffer<float> out(padded((std::size_t)length, kGroup));
  std::memcpy(out.data(), values.data(), values.size() * sizeof(float));
  return out;
}

Matrix matrix_of(const Tensor& t, std::int64_t rows, std::int64_t columns, const std::string& role) {
  if (t.rows != rows || t.columns != columns)
    throw std::invalid_argument(role + " is " + std::to_string(t.rows) + " x " + std::to_string(t.columns) + ", not " +
                                std::to_string(rows) + " x " + std::to_string(columns));
  return pack(t);
}

void add_bias(Matrix& m, const Tensor& t, const std::string& role) {
  if (!m) throw std::invalid_argument(role + " must come after its matrix");
  m.set_bias(to_floats(t));
}

}  // namespace

Matrix* Expert::part(const std::string& name) { return name == "gate" ? &gate : name == "up" ? &up : name == "down" ? &down : nullptr; }

void Weights::load(const Config& c, const std::string& role, int layer, const Tensor& t) {
  if (role == "embed") {
    embed = matrix_of(t, c.vocab, c.hidden, role);
    return;
  }
  if (role == "head") {
    head = matrix_of(t, c.vocab, c.hidden, role);
    return;
  }
  if (role == "final_norm") {
    final_norm = vector_of(t, c.hidden, role);
    return;
  }
  if (layer < 0 || layer >= c.layers) throw std::invalid_argument("no layer " + std::to_string(layer) + " for " + role);
  layers.resize((std::size_t)c.layers);
  Layer& l = layers[(std::size_t)layer];
  const int q_width = c.heads * c.head_dim, kv_width = c.kv_heads * c.head_dim;
  if (const std::size_t dot = role.find('.'); dot != std::string::npos) {
    const int number = std::stoi(role.substr(dot + 1));
    if (number < 0 || number >= c.experts) throw std::invalid_argument("no such expert: " + role);
    l.experts.resize((std::size_t)c.experts);
    Matrix* m = l.experts[(std::size_t)number].part(role.substr(0, dot));
    if (!m) throw std::invalid_argument("unknown weight " + role);
    const bool down = role.starts_with("down");
    if (role.ends_with("_bias")) add_bias(*m, t, role);
    else *m = matrix_of(t, down ? c.hidden : c.expert_ffn, down ? c.expert_ffn : c.hidden, role);
    return;
  }
  struct Linear {
    const char* role;
    Matrix* matrix;
    int rows, columns;
  };
  for (const Linear& m : {Linear{"q", &l.q, q_width, c.hidden}, {"k", &l.k, kv_width, c.hidden}, {"v", &l.v, kv_width, c.hidden},
                          {"o", &l.o, c.hidden, q_width}, {"gate", &l.gate, c.ffn, c.hidden}, {"up", &l.up, c.ffn, c.hidden},
                          {"down", &l.down, c.hidden, c.ffn}, {"router", &l.router, c.experts, c.hidden},
                          {"shared_router", &l.shared_router, 1, c.hidden}}) {
    if (role == m.role) {
      *m.matrix = matrix_of(t, m.rows, m.columns, role);
      return;
    }
    if (role == std::string(m.role) + "_bias") {
      add_bias(*m.matrix, t, role);
      return;
    }
  }
  if (role == "attn_norm") l.attn_norm = vector_of(t, c.hidden, role);
  else if (role == "ffn_norm") l.ffn_norm = vector_of(t, c.hidden, role);
  else if (role == "attn_post_norm") l.attn_post_norm = vector_of(t, c.hidden, role);
  else if (role == "ffn_post_norm") l.ffn_post_norm = vector_of(t, c.hidden, role);
  else if (role == "sinks") l.sinks = vector_of(t, c.heads, role);
  else if (role == "q_norm") l.q_norm = vector_of(t, l.q_span = t.columns == c.head_dim ? c.head_dim : q_width, role);
  else if (role == "k_norm") l.k_norm = vector_of(t, l.k_span = t.columns == c.head_dim ? c.head_dim : kv_width, role);
  else throw std::invalid_argument("unknown weight " + role);
}

void Weights::check(const Config& c) {
  const auto need = [](bool there, const std::string& what) {
    if (!there) throw std::invalid_argument("missing weight: " + what);
  };
  need((bool)embed, "embed"), need((bool)final_norm, "final_norm"), need(c.tied || (bool)head, "head");
  need((int)layers.size() == c.layers, "layers");
  for (int i = 0; i < c.layers; i++) {
    Layer& l = layers[(std::size_t)i];
    const std::string at = " of layer " + std::to_string(i);
    need((bool)l.q, "q" + at), need((bool)l.k, "k" + at), need((bool)l.v, "v" + at), need((bool)l.o, "o" + at);
    if (c.ffn) need((bool)l.gate, "gate" + at), need((bool)l.up, "up" + at), need((bool)l.down, "down" + at);
    if (c.experts) need((bool)l.router, "router" + at), need(!l.experts.empty(), "experts" + at);
    for (const Expert& e : l.experts) {
      need(e.gate && e.up && e.down, "an expert" + at);
      l.expert_forms |= form_of(e.gate) | form_of(e.up), l.expert_down_forms |= form_of(e.down);
    }
    need(l.attn_norm || l.attn_post_norm, "attn_norm" + at), need(l.ffn_norm || l.ffn_post_norm, "ffn_norm" + at);
    need((bool)l.q_norm == (bool)l.k_norm, "q_norm or k_norm" + at);
    l.attn_forms = form_of(l.q) | form_of(l.k) | form_of(l.v);
    l.o_forms = form_of(l.o);
    for (const Matrix* m : {&l.gate, &l.up, &l.router, &l.shared_router}) l.ffn_forms |= *m ? form_of(*m) : 0;
    l.down_forms = l.down ? form_of(l.down) : 0;
  }
}

std::size_t Weights::bytes() const {
  std::size_t n = embed.bytes() + head.bytes() + final_norm.bytes() + expert_bytes();
  for (const Layer& l : layers) {
    for (const Matrix* m : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down, &l.router, &l.shared_router}) n += m->bytes() + m->bias.bytes();
    for (const Buffer<float>* v : {&l.attn_norm, &l.ffn_norm, &l.q_norm, &l.k_norm, &l.attn_post_norm, &l.ffn_post_norm, &l.sinks}) n += v->bytes();
  }
  return n;
}

std::size_t Weights::expert_bytes() const {
  std::size_t n = 0;
  for (const Layer& l : layers)
    for (const Expert& e : l.experts)
      for (const Matrix* m : {&e.gate, &e.up, &e.down}) n += m->bytes() + m->bias.bytes();
  return n;
}

std::size_t kv_head_bytes(KvType type, int head_dim) { return kv_part_bytes(type, kv_pad(type, head_dim)); }

KvCache::KvCache(const Config& c, KvType type, int blocks)
    : head_pad(kv_pad(type, c.head_dim)),
      head_stride(kv_part_bytes(type, head_pad)),
      layer_stride(head_stride * c.kv_heads) {
  places.resize((std::size_t)c.layers);
  std::size_t most = 0;
  for (std::size_t g = 0; g < c.groups.size(); g++) {
    for (std::size_t i = 0; i < c.groups[g].size(); i++) places[(std::size_t)c.groups[g][i]] = {(int)g, (int)i};
    most = std::max(most, c.groups[g].size());
  }
  block_stride = layer_stride * most;
  memory = Buffer<std::uint8_t>(block_stride * blocks);
}

Model::Model(const Config& config, const Limits& limits, const Kernels& kernels)
    : threads(limits.threads), config_(config), limits_(limits), kernels_(kernels), kv_kernels_(kernels.kv[(int)limits.kv]) {
  group_ = config.heads / config.kv_heads;
  if (group_ > kMostQueries) throw std::invalid_argument("more than 128 query heads per KV head");
  most_queries_ = std::max(kQueries, group_);
}

void Model::allocate() {
  weights.check(config_);
  cache = KvCache(config_, limits_.kv, limits_.blocks);
  const std::size_t rows = (std::size_t)std::max(limits_.max_tokens, 2 * kLogitRows);
  const auto pad = [](int n) { return padded((std::size_t)n, kGroup); };
  hidden_stride_ = pad(config_.hidden);
  const std::size_t q = pad(config_.heads * config_.head_dim), kv = pad(config_.kv_heads * config_.head_dim);
  const std::size_t ffn = pad(config_.ffn), widest = std::max({hidden_stride_, q, ffn}), half = config_.inv_freq[0].size();
  const std::size_t slots = rows * config_.active_experts, expert = pad(config_.expert_ffn);
  const std::size_t prepared = std::max(rows * widest, slots * std::max(hidden_stride_, expert));
  if (config_.experts) routing_.allocate(config_, rows, hidden_stride_);
  x_ = Buffer<float>(rows * hidden_stride_), branch_ = Buffer<float>(rows * hidden_stride_), gathered_ = Buffer<float>((std::size_t)kLogitRows * hidden_stride_);
  q_ = Buffer<float>(rows * q), k_ = Buffer<float>(rows * kv), v_ = Buffer<float>(rows * kv);
  attended_ = Buffer<float>(rows * q), gate_ = Buffer<float>(rows * ffn), up_ = Buffer<float>(rows * ffn);
  norm_ = Buffer<float>(rows * widest), codes_ = Buffer<std::int8_t>(prepared), bf16_ = Buffer<std::uint16_t>(prepared);
  scale_ = Buffer<float>(prepared / kGroup), sum_ = Buffer<float>(prepared / kGroup);
  offset_ = Buffer<std::int32_t>(prepared / kGroup * 2);
  if (kv_kernels_.query) {
    const std::size_t width = (std::size_t)config_.heads * cache.head_pad;
    query_codes_ = Buffer<std::int8_t>(rows * width), query_scale_ = Buffer<float>(rows * width / kGroup);
    query_offset_ = Buffer<std::int32_t>(rows * width / kGroup * 2);
  }
  cos_ = Buffer<float>(rows * config_.inv_freq.size() * half), sin_ = Buffer<float>(rows * config_.inv_freq.size() * half);
  logit_stride_ = padded((std::size_t)config_.vocab, kLanes);
  logits_ = Buffer<float>((std::size_t)kLogitRows * logit_stride_);
  row_work_.resize(rows), row_first_.resize(rows), blocks_.reserve(rows);
  const std::size_t partial = (std::size_t)most_queries_ * (2 + cache.head_pad);
  scratch_stride_ = padded((std::size_t)most_queries_ * kSplit + 2 * partial, kLanes);
  scratch_ = Buffer<float>(scratch_stride_ * threads.count());
  partial_stride_ = padded(partial, kLanes);
  most_partials_ = 4 * threads.count() * ((config_.context + kSplit - 1) / kSplit);
  if (threads.count() > 1) partial_ = Buffer<float>(partial_stride_ * most_partials_);
}

void Model::forward(const Work* work, int count) {
  embed(work, count);
  const int rows = count ? row_first_[count - 1] + work[count - 1].count : 0;
  const std::size_t q_stride = padded((std::size_t)config_.heads * config_.head_dim, kGroup);
  const std::size_t kv_stride = padded((std::size_t)config_.kv_heads * config_.head_dim, kGroup);
  for (int i = 0; i < config_.layers; i++) {
    const Layer& l = weights.layers[(std::size_t)i];
    prepare(x_.data(), hidden_stride_, config_.hidden, rows, l.attn_forms, l.attn_norm.data());
    multiply({{&l.q, q_.data(), q_stride}, {&l.k, k_.data(), kv_stride}, {&l.v, v_.data(), kv_stride}}, rows, false);
    place_keys(i, l, work, rows);
    attend(i, work);
    prepare(attended_.data(), q_stride, config_.heads * config_.head_dim, rows, l.o_forms, nullptr);
    add(l.o, l.attn_post_norm, rows);
    prepare(x_.data(), hidden_stride_, config_.hidden, rows, l.ffn_forms, l.ffn_norm.data());
    feed_forward(l, rows);
  }
}

void Model::embed(const Work* work, int count) {
  int rows = 0;
  blocks_.clear();
  const int tokens_per_block = std::max(1, kQueries / group_);
  for (int w = 0; w < count; w++) {
    row_first_[w] = rows;
    for (int i = 0; i < work[w].count; i++) row_work_[rows++] = w;
    for (int i = 0; i < work[w].count; i += tokens_per_block)
      blocks_.push_back({w, i, std::min(tokens_per_block, work[w].count - i)});
  }
  const int half = (int)config_.inv_freq[0].size(), ropes = (int)config_.inv_freq.size();
  threads.run(rows, 4, [&](int r, int) {
    const Work& w = work[row_work_[r]];
    const int i = r - row_first_[row_work_[r]];
    float* x = x_.data() + r * hidden_stride_;
    unpack_row(weights.embed.packed, (int)w.tokens[i], x);
    std::fill(x + config_.hidden, x + hidden_stride_, 0.0f);  // the last tile adds to it, and rms_norm reads it
    if (config_.embed_scale != 1) kernels_.scale(x, config_.embed_scale, config_.hidden, x);
    for (int d = 0; d < ropes * half; d++) {
      const float angle = (float)(w.start + i) * config_.inv_freq[d / half][d % half];
      cos_[(std::size_t)r * ropes * half + d] = std::cos(angle) * config_.rope_scale;
      sin_[(std::size_t)r * ropes * half + d] = std::sin(angle) * config_.rope_scale;
    }
  });
}

// Normalises rows (where `norm` is given) and brings them into the forms that the next matrices take.
void Model::prepare(const float* x, std::size_t stride, int columns, int rows, unsigned forms, const float* norm) {
  const std::size_t width = padded((std::size_t)columns, kGroup), groups = width / kGroup;
  threads.run(rows, 2, [&](int r, int) {
    const float* row = x + r * stride;
    if (norm) {
      float* out = norm_.data() + r * width;
      kernels_.rms_norm(row, norm, columns, config_.norm_eps, out);
      row = out;
    }
    if (forms & kInt8)
      kernels_.quantize(row, (int)groups, codes_.data() + r * width, scale_.data() + r * groups, sum_.data() + r * groups,
                        offset_.data() + 2 * r * groups, nullptr);
    if (forms & kBf16) kernels_.to_bf16(row, (int)width, bf16_.data() + r * width);
  });
  in_ = {(int)groups, norm ? norm_.data() : x, bf16_.data(), codes_.data(), scale_.data(), sum_.data(), offset_.data()};
}

void Model::multiply(std::initializer_list<Output> outputs, int rows, bool add) {
  int groups = 0;
  for (const Output& o : outputs) groups += groups_of(o.matrix->packed);
  const int chunks = (rows + kRowChunk - 1) / kRowChunk, items = groups * chunks;
  threads.run(items, std::max(1, items / (kClaims * threads.count())), [&](int item, int) {
    const int row = item / groups * kRowChunk, n = std::min(kRowChunk, rows - row);
    int group = item % groups;
    for (const Output& o : outputs) {
      const Packed& m = o.matrix->packed;
      if (group < groups_of(m)) {
        kernels_.matmul(m, group_of(m, group), in_, row, n, o.to, o.stride, add);
        return;
      }
      group -= groups_of(m);
    }
  });
}

void Model::feed_forward(const Layer& l, int rows) {
  if (l.router) {
    mix_experts(l, rows);
    add_branch(l.ffn_post_norm, rows);
    return;
  }
  gate(l, rows);
  add(l.down, l.ffn_post_norm, rows);
}

// The input of `down`: activated gates times ups.
void Model::gate(const Layer& l, int rows) {
  const std::size_t width = padded((std::size_t)config_.ffn, kGroup);
  const auto activate = activation();
  const int groups = groups_of(l.gate.packed), chunks = (rows + kRowChunk - 1) / kRowChunk, items = groups * chunks;
  threads.run(items, std::max(1, items / (kClaims * threads.count())), [&](int item, int) {
    const Tiles tiles = group_of(l.gate.packed, item % groups);
    const int row = item / groups * kRowChunk, n = std::min(kRowChunk, rows - row);
    kernels_.matmul(l.gate.packed, tiles, in_, row, n, gate_.data(), width, false);
    kernels_.matmul(l.up.packed, tiles, in_, row, n, up_.data(), width, false);
    for (int r = row; r < row + n; r++) {
      const std::size_t at = r * width + (std::size_t)tiles.first * kLanes;
      activate(gate_.data() + at, up_.data() + at, tiles.count * kLanes, gate_.data() + at);
    }
  });
  prepare(gate_.data(), width, config_.ffn, rows, l.down_forms, nullptr);
}

decltype(Kernels::swiglu) Model::activation() const {
  switch (config_.activation) {
    case Activation::Gelu: return kernels_.geglu;
    case Activation::ClampedSilu: return kernels_.clamped_swiglu;
    default: return kernels_.swiglu;
  }
}

// Adds the matrix's outputs to the residual stream, normalised or scaled first where the model asks for it.
void Model::add(const Matrix& matrix, const Buffer<float>& norm, int rows) {
  if (!norm && config_.residual_scale == 1) return multiply({{&matrix, x_.data(), hidden_stride_}}, rows, true);
  multiply({{&matrix, branch_.data(), hidden_stride_}}, rows, false);
  add_branch(norm, rows);
}

void Model::add_branch(const Buffer<float>& norm, int rows) {
  threads.run(rows, 4, [&](int r, int) {
    float *x = x_.data() + r * hidden_stride_, *branch = branch_.data() + r * hidden_stride_;
    if (norm) kernels_.rms_norm(branch, norm.data(), config_.hidden, config_.norm_eps, branch);
    for (int i = 0; i < config_.hidden; i++) x[i] += config_.residual_scale * branch[i];
  });
}

// Normalises queries and keys where the model asks for it, rotates, and writes keys and values to their blocks: attention reads them only there.
void Model::place_keys(int index, const Layer& l, const Work* work, int rows) {
  const int hd = config_.head_dim, half = (int)config_.inv_freq[0].size(), ropes = (int)config_.inv_freq.size(), rope = config_.ropes[index];
  const std::size_t q_stride = padded((std::size_t)config_.heads * hd, kGroup), kv_stride = padded((std::size_t)config_.kv_heads * hd, kGroup);
  threads.run(rows, 2, [&](int r, int) {
    const auto turn = [&](float* row, int heads, const Buffer<float>& norm, int span) {
      if (norm && span == heads * hd) kernels_.rms_norm(row, norm.data(), span, config_.norm_eps, row);
      for (float* head = row; head < row + heads * hd; head += hd) {
        if (norm && span < heads * hd) {
          alignas(64) float padded_head[1024] = {};
          std::memcpy(padded_head, head, hd * sizeof(float));
          kernels_.rms_norm(padded_head, norm.data(), hd, config_.norm_eps, padded_head);
          std::memcpy(head, padded_head, hd * sizeof(float));
        }
        const std::size_t at = ((std::size_t)r * ropes + rope) * half;
        if (rope >= 0) kernels_.rope(head, cos_.data() + at, sin_.data() + at, half);
      }
    };
    turn(q_.data() + r * q_stride, config_.heads, l.q_norm, l.q_span);
    turn(k_.data() + r * kv_stride, config_.kv_heads, l.k_norm, l.k_span);
    for (int h = 0; h < config_.heads; h++) {
      const float* q = q_.data() + r * q_stride + (std::size_t)h * hd;
      if (kv_kernels_.query) {
        const std::size_t at = (std::size_t)r * config_.heads + h, groups = (std::size_t)cache.head_pad / kGroup;
        kv_kernels_.query(q, hd, cache.head_pad, query_codes_.data() + at * cache.head_pad, query_scale_.data() + at * groups,
                          query_offset_.data() + 2 * at * groups);
      }
    }
    const Work& w = work[row_work_[r]];
    const int position = w.start + r - row_first_[row_work_[r]];
    const std::uint32_t* table = w.table(cache.places[index].group);
    for (int h = 0; h < config_.kv_heads; h++) {
      const float* k = k_.data() + r * kv_stride + (std::size_t)h * hd;
      std::uint8_t* block = cache.at(index, h) + table[position / kBlock] * cache.block_stride;
      kv_kernels_.write(k, v_.data() + r * kv_stride + (std::size_t)h * hd, hd, cache.head_pad, position % kBlock, block);
    }
  });
}

void Model::attend(int index, const Work* work) {
  const int heads = config_.kv_heads, items = (int)blocks_.size() * heads;
  int splits = 1;
  for (const QueryBlock& b : blocks_) splits = std::max(splits, (work[b.work].start + b.from + b.count - 1) / kSplit + 1);
  // Few query blocks over a long context: let the threads share the splits. The same partial results are merged in the
  // same order either way.
  if (threads.count() == 1 || splits < 2 || items >= 4 * threads.count()) {
    threads.run(items, 1, [&](int item, int thread) {
      attend_block(index, work, blocks_[item / heads], item % heads, thread, 0, nullptr);
    });
    return;
  }
  threads.run(items * splits, 1, [&](int i, int thread) {
    attend_block(index, work, blocks_[i / splits / heads], i / splits % heads, thread, i % splits, partial_.data() + partial_stride_ * i);
  });
  threads.run(items, 1, [&](int item, int) {
    const std::size_t n = most_queries_, pad = cache.head_pad;
    float* run = partial_.data() + partial_stride_ * (std::size_t)item * splits;
    const QueryBlock& b = blocks_[item / heads];
    for (int s = 1; s < splits; s++) {
      const float* later = run + partial_stride_ * s;
      for (int i = 0; i < b.count * group_; i++)
        kernels_.merge(run + i, run + n + i, run + 2 * n + i * pad, later[i], later[n + i], later + 2 * n + i * pad, (int)pad);
    }
    finish_block(weights.layers[(std::size_t)index], b, item % heads, run);
  });
}

// All splits of one query block in order, or one split alone into the partial result `alone`.
void Model::attend_block(int index, const Work* work, const QueryBlock& b, int head, int thread, int split, float* alone) {
  const Work& w = work[b.work];
  const int hd = config_.head_dim, pad = cache.head_pad, n = b.count * group_, window = config_.windows[index];
  const std::size_t most = most_queries_, q_stride = padded((std::size_t)config_.heads * hd, kGroup);
  const float* queries[kMostQueries];
  int last[kMostQueries], first[kMostQueries];
  const std::int8_t* codes[kMostQueries];
  const float* scales[kMostQueries];
  const std::int32_t* offsets[kMostQueries];
  for (int i = 0; i < n; i++) {
    const int token = b.from + i / group_, position = w.start + token;
    queries[i] = q_.data() + (row_first_[b.work] + token) * q_stride + (std::size_t)(head * group_ + i % group_) * hd;
    last[i] = position;
    first[i] = window > 0 ? std::max(0, position - window + 1) : 0;
    const std::size_t at = (std::size_t)(row_first_[b.work] + token) * config_.heads + head * group_ + i % group_;
    codes[i] = query_codes_.data() + at * pad, scales[i] = query_scale_.data() + at * (pad / kGroup);
    offsets[i] = query_offset_.data() + 2 * at * (pad / kGroup);
  }
  const Attention a = {cache.at(index, head), cache.block_stride, w.table(cache.places[index].group), hd, pad, config_.attention_scale, n, queries, last, first,
                       codes, scales, offsets, config_.attention_cap};
  float* scores = scratch_.data() + scratch_stride_ * thread;
  if (alone) {
    kv_kernels_.attend(a, split, scores, alone, alone + most, alone + 2 * most);
    return;
  }
  float* run = scores + most * kSplit;
  float* later = run + most * (2 + pad);
  for (int i = 0; i < n; i++) run[most + i] = 0;
  for (int s = first[0] / kSplit; s <= last[n - 1] / kSplit; s++) {
    kv_kernels_.attend(a, s, scores, later, later + most, later + 2 * most);
    for (int i = 0; i < n; i++)
      kernels_.merge(run + i, run + most + i, run + 2 * most + i * pad, later[i], later[most + i], later + 2 * most + i * pad, pad);
  }
  finish_block(weights.layers[(std::size_t)index], b, head, run);
}

// What the queries attend to, from their greatest scores, sums of weights and weighted sums, `run`.
void Model::finish_block(const Layer& l, const QueryBlock& b, int head, const float* run) {
  const int hd = config_.head_dim;
  const std::size_t stride = padded((std::size_t)config_.heads * hd, kGroup), n = most_queries_;
  for (int i = 0; i < b.count * group_; i++) {
    const int query = head * group_ + i % group_;
    float by = 1.0f / run[n + i];
    if (l.sinks) {
      const float sink = l.sinks.data()[query], top = std::max(run[i], sink), weight = std::exp(run[i] - top);
      by = weight / (run[n + i] * weight + std::exp(sink - top));
    }
    float* to = attended_.data() + (row_first_[b.work] + b.from + i / group_) * stride + (std::size_t)query * hd;
    kernels_.scale(run + 2 * n + (std::size_t)i * cache.head_pad, by, hd, to);
  }
}

bool Model::finite(int row) const {
  float most;
  bool all;
  kernels_.argmax(x_.data() + row * hidden_stride_, config_.hidden, &most, &all);
  return all;
}

// The head's inputs are quantised in two terms of 8 bits, the second for what the first leaves out: the rounding of
// its inputs is not averaged away by later layers, and costs a quarter of all changed choices if left at one term.
// Both terms pass a tile while it lies in the first-level cache, so the head is still read once.
void Model::head(const int* rows, int count) {
  const std::size_t width = hidden_stride_, groups = width / kGroup;
  for (int i = 0; i < count; i++)
    std::memcpy(gathered_.data() + i * width, x_.data() + rows[i] * width, width * sizeof(float));
  const Packed& m = (config_.tied ? weights.embed : weights.head).packed;
  const unsigned form = form_of(config_.tied ? weights.embed : weights.head);
  if (form != kInt8) {
    prepare(gathered_.data(), width, config_.hidden, count, form, weights.final_norm.data());
    multiply({{config_.tied ? &weights.embed : &weights.head, logits_.data(), logit_stride_}}, count, false);
    return cap_logits(count);
  }
  const auto term = [&](int first) {  // the rows from `first` on of the shared buffers
    return Activations{(int)groups,
                       nullptr,
                       nullptr,
                       codes_.data() + first * width,
                       scale_.data() + first * groups,
                       sum_.data() + first * groups,
                       offset_.data() + 2 * first * groups};
  };
  threads.run(count, 2, [&](int r, int) {
    float* x = norm_.data() + r * width;
    kernels_.rms_norm(gathered_.data() + r * width, weights.final_norm.data(), config_.hidden, config_.norm_eps, x);
    for (std::size_t at : {(std::size_t)r, (std::size_t)(kLogitRows + r)})
      kernels_.quantize(x, (int)groups, codes_.data() + at * width, scale_.data() + at * groups, sum_.data() + at * groups,
                        offset_.data() + 2 * at * groups, x);
  });
  const Activations coarse = term(0), fine = term(kLogitRows);
  const int items = groups_of(m);
  threads.run(items, std::max(1, items / (kClaims * threads.count())), [&](int i, int) {
    kernels_.matmul(m, group_of(m, i), coarse, 0, count, logits_.data(), logit_stride_, false);
    kernels_.matmul(m, group_of(m, i), fine, 0, count, logits_.data(), logit_stride_, true);
  });
  cap_logits(count);
}

void Model::cap_logits(int count) {
  if (config_.logit_cap == 0) return;
  threads.run(count, 1, [&](int r, int) { kernels_.softcap(logits_.data() + r * logit_stride_, (int)logit_stride_, config_.logit_cap); });
}

}  // namespace headway
