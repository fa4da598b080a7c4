// Every kernel of every instruction set this processor runs against the scalar reference; threads.
#include <algorithm>
#include <cmath>

#include "check.h"
#include "kernels/reference.h"
#include "threads.h"

namespace headway {

constexpr Type kTypes[] = {Type::F32,  Type::F16,  Type::BF16, Type::Q8_0, Type::Q4_0, Type::Q4_1,
                           Type::Q5_0, Type::Q5_1, Type::Q4_K, Type::Q5_K, Type::Q6_K, Type::MXFP4};

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
      k->matmul(m.packed, {0, m.packed.tiles}, in.view, 0, kRows, all.data(), stride, false);
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
        for (int t = 0; t < m.packed.tiles; t++) k->matmul(m.packed, {t, 1}, in.view, row, n, some.data(), stride, true);
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
  const auto x = normal(n, 5), w = normal(n), wide = normal(n, 5);
  for (const Kernels* k : all_kernels()) {
    std::vector<float> out(n);
    std::vector<double> truth(n);
    k->rms_norm(x.data(), w.data(), n, 1e-5f, out.data());
    reference::rms_norm(x.data(), w.data(), n, 1e-5f, truth.data());
    for (int i = 0; i < n; i++) expect(std::fabs(out[i] - truth[i]) < 1e-5, std::string(k->name) + " rms_norm");
    k->swiglu(x.data(), w.data(), n, out.data());
    for (int i = 0; i < n; i++) expect(std::fabs(out[i] - reference::swiglu(x[i], w[i])) < 1e-5, std::string(k->name) + " swiglu");
    k->geglu(x.data(), w.data(), n, out.data());
    for (int i = 0; i < n; i++) expect(std::fabs(out[i] - reference::geglu(x[i], w[i])) < 1e-5, std::string(k->name) + " geglu");
    k->clamped_swiglu(x.data(), wide.data(), n, out.data());
    for (int i = 0; i < n; i++)
      expect(std::fabs(out[i] - reference::clamped_swiglu(x[i], wide[i])) < 2e-5, std::string(k->name) + " clamped_swiglu");
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

// Off by at most `tolerance`: with 8 bits the queries and the weights are rounded too, which the truth leaves out.
void attention_of(KvType type, float softcap, double tolerance) {
  constexpr int kHeadDim = 40, kContext = 700, kQ = 21;
  const int kPad = kv_pad(type, kHeadDim);
  const std::size_t stride = kv_part_bytes(type, kPad);
  std::vector<std::uint8_t> pool((std::size_t)(kContext / kBlock + 2) * stride);
  std::vector<std::uint32_t> table(kContext / kBlock + 1);
  for (std::size_t i = 0; i < table.size(); i++) table[i] = (std::uint32_t)(table.size() - 1 - i);
  const auto queries = normal(kQ * kHeadDim);
  std::vector<const float*> pointers;
  std::vector<int> last, first;
  for (int i = 0; i < kQ; i++) {
    pointers.push_back(queries.data() + i * kHeadDim);
    last.push_back(i < 15 ? 600 + i : 17 * i);
    first.push_back(i % 4 == 3 ? last.back() - std::min(last.back(), 290) : 0);
  }
  for (const Kernels* k : all_kernels()) {
    const KvKernels& kv = k->kv[(int)type];
    random_bits.seed(11);
    const int groups = (int)padded(kHeadDim, kGroup) / kGroup, width = groups * kGroup;
    std::vector<std::int8_t> code_memory((std::size_t)kQ * width);
    std::vector<float> scale_memory((std::size_t)kQ * groups);
    std::vector<std::int32_t> offset_memory((std::size_t)kQ * groups * 2);
    std::vector<const std::int8_t*> codes;
    std::vector<const float*> scales;
    std::vector<const std::int32_t*> offsets;
    for (int i = 0; i < kQ; i++) {
      if (kv.query)
        kv.query(pointers[(std::size_t)i], kHeadDim, width, &code_memory[(std::size_t)i * width], &scale_memory[(std::size_t)i * groups],
                 &offset_memory[(std::size_t)i * groups * 2]);
      codes.push_back(&code_memory[(std::size_t)i * width]), scales.push_back(&scale_memory[(std::size_t)i * groups]);
      offsets.push_back(&offset_memory[(std::size_t)i * groups * 2]);
    }
    for (int p = 0; p < kContext; p++) {
      const auto key = normal(kHeadDim), value = normal(kHeadDim);
      kv.write(key.data(), value.data(), kHeadDim, kPad, p % kBlock, pool.data() + table[p / kBlock] * stride);
    }
    const auto run = [&](int from, int count) {
      const Attention a = {pool.data(), stride, table.data(), kHeadDim, kPad, 0.3f, count, pointers.data() + from, last.data() + from, first.data() + from,
                           codes.data() + from, scales.data() + from, offsets.data() + from, softcap};
      std::vector<float> scores((std::size_t)count * kSplit), m(count), s(count), o((std::size_t)count * kPad), rm(count), rs(count), ro(o.size());
      for (int split = 0; split <= kContext / kSplit; split++) {
        kv.attend(a, split, scores.data(), m.data(), s.data(), o.data());
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
      const Attention a = {pool.data(), stride, table.data(), kHeadDim, kPad, 0.3f, kQ, pointers.data(), last.data(), first.data(), nullptr, nullptr, nullptr, softcap};
      double truth[kHeadDim];
      reference::attend(a, type, i, truth);
      const auto alone = run(i, 1);
      for (int d = 0; d < kHeadDim; d++) {
        off = std::max(off, std::fabs(truth[d] - all[(std::size_t)i * kPad + d]));
        same &= alone[d] == all[(std::size_t)i * kPad + d];
      }
    }
    expect(off < tolerance, std::string(k->name) + " attention is off by " + std::to_string(off));
    expect(same, std::string(k->name) + " attention depends on its neighbours");
  }
}

void test_attention() {
  for (const float softcap : {0.0f, 2.0f}) {
    attention_of(KvType::F16, softcap, 1e-5);
    attention_of(KvType::Int8, softcap, 0.02);
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

}  // namespace headway
