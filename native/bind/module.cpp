// The only file that knows Python. Arguments are checked here for shape and in the engine for meaning.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>

#include "checksum.h"
#include "headway/engine.h"
#include "quantise.h"
#include "weights.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace headway;

namespace {

using Bytes = nb::ndarray<const std::uint8_t, nb::c_contig, nb::device::cpu>;
using Ints = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ids = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bits = nb::ndarray<const std::uint32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

Tensor tensor_of(const std::string& type, std::int64_t rows, std::int64_t columns, const Bytes& data) {
  const Tensor t{type_of(type), rows, columns, data.data()};
  if (rows < 1 || columns < 1 || data.size() != row_bytes(t.type, columns) * (std::size_t)rows)
    throw std::invalid_argument("the data does not have the size of its type and shape");
  return t;
}

// An array that owns what `fill` writes into it.
template <class T, class Fill>
nb::ndarray<nb::numpy, T, nb::ndim<1>> array_of(std::size_t size, Fill fill) {
  auto memory = std::make_unique<std::vector<T>>(size);
  {
    nb::gil_scoped_release release;
    fill(memory->data());
  }
  T* data = memory->data();
  nb::capsule owner(memory.release(), [](void* p) noexcept { delete (std::vector<T>*)p; });
  return {data, {size}, owner};
}

class Core {
 public:
  Core(Config config, Limits limits) : engine(std::move(config), limits), slots(limits.slots) {}

  // A matrix that is `packed` needs no `data`.
  void load(const std::string& role, int layer, const std::string& type, std::int64_t rows, std::int64_t columns,
            std::optional<Bytes> data, std::optional<Bytes> packed) {
    if (!data && !packed) throw std::invalid_argument(role + " has neither data nor packed data");
    Tensor t = data ? tensor_of(type, rows, columns, *data) : Tensor{type_of(type), rows, columns, nullptr};
    if (packed) {
      if (rows < 1 || columns < 1 || packed->size() != packed_bytes(t.type, rows, columns) || (std::uintptr_t)packed->data() % 64)
        throw std::invalid_argument(role + ": the packed data does not have the size of its type and shape, or is not aligned");
      t.packed = packed->data();
      kept.push_back(*packed);
    }
    nb::gil_scoped_release release;
    engine.load(role, layer, t);
  }

  void finish() {
    nb::gil_scoped_release release;
    engine.finish();
    finished = true;
  }

  void open(int slot, const Sampling& sampling, Ids known, std::size_t prompt) {
    engine.open(slot, sampling, known.data(), known.size(), prompt);
  }

  void extend(int slot, Ids tokens) { engine.extend(slot, tokens.data(), tokens.size()); }

  // `header` holds slot, start, count, sample for each work; tokens and tables (one per layer group) lie one after the
  // other. `ready` is called before the first draw, with the GIL, and returns when `masks` is written.
  nb::list step(Ints header, Ids tokens, Ids tables, std::optional<Bits> bits, nb::object ready) {
    const std::size_t n = header.size() / 4;
    work.resize(n);
    std::size_t token = 0, table = 0;
    for (std::size_t i = 0; i < n; i++) {
      const std::int32_t* h = header.data() + 4 * i;
      if (h[1] < 0 || h[2] < 1 || h[1] > engine.config().context - h[2]) throw std::invalid_argument("work lies outside the context");
      const std::size_t entries = (std::size_t)(h[1] + h[2] + kBlock - 1) / kBlock * engine.config().groups.size();
      work[i] = {h[0], h[1], h[2], tokens.data() + token, tables.data() + table, h[3] != 0};
      token += (std::size_t)h[2], table += entries;
      if (token > tokens.size() || table > tables.size()) throw std::invalid_argument("too few tokens or table entries");
    }
    Masks masks;
    if (bits) {
      if (bits->shape(0) != (std::size_t)slots || bits->shape(1) != ((std::size_t)engine.config().vocab + 31) / 32)
        throw std::invalid_argument("masks are [slots][words]");
      masks.bits = bits->data();
    }
    if (!ready.is_none())
      masks.ready = [&ready] {
        nb::gil_scoped_acquire acquire;
        ready();
      };
    {
      nb::gil_scoped_release release;
      engine.step(work.data(), (int)n, results, masks);
    }
    nb::list out;
    for (std::size_t i = 0; i < n; i++) out.append(nb::cast(results[i]));
    return out;
  }

  std::vector<Bytes> kept;  // what the engine's weights lie in
  Engine engine;
  std::vector<Work> work;
  std::vector<Sampled> results;
  int slots;
  bool finished = false;
};

}  // namespace

NB_MODULE(_ext, m) {
  m.attr("BLOCK") = kBlock;
  m.attr("LOGIT_ROWS") = kLogitRows;
  m.attr("PACKING") = kPacking;
#if defined(HEADWAY_TEST_HOOKS)
  m.attr("TEST_HOOKS") = true;
#else
  m.attr("TEST_HOOKS") = false;
#endif
  m.def("best_isa", &best_isa);
  m.def("packed_bytes", [](const std::string& type, std::int64_t rows, std::int64_t columns) { return packed_bytes(type_of(type), rows, columns); },
        "type"_a, "rows"_a, "columns"_a, "size of such a matrix once it is packed");
  m.def(
      "pack",
      [](const std::string& type, std::int64_t rows, std::int64_t columns, Bytes data) {
        const Tensor t = tensor_of(type, rows, columns, data);
        return array_of<std::uint8_t>(packed_bytes(t.type, rows, columns), [&](std::uint8_t* out) {
          const Matrix m = pack(t);
          std::memcpy(out, m.packed.data, m.bytes());
        });
      },
      "type"_a, "rows"_a, "columns"_a, "data"_a, "a matrix as `Core.load` takes it for `packed`");
  m.def(
      "quantise",
      [](const std::string& type, std::int64_t rows, std::int64_t columns, Bytes data, const std::string& to) {
        const Tensor t = tensor_of(type, rows, columns, data);
        const Type target = type_of(to);
        return array_of<std::uint8_t>(row_bytes(target, columns) * (std::size_t)rows,
                                      [&](std::uint8_t* out) { quantise(t, target, out); });
      },
      "type"_a, "rows"_a, "columns"_a, "data"_a, "to"_a, "a matrix of floats as one of Q8_0 or Q4_1");
  m.def(
      "dequantise",
      [](const std::string& type, std::int64_t rows, std::int64_t columns, Bytes data) {
        const Tensor t = tensor_of(type, rows, columns, data);
        const std::size_t stride = row_bytes(t.type, columns);
        return array_of<float>((std::size_t)(rows * columns), [&](float* out) {
          for (std::int64_t r = 0; r < rows; r++) dequantise_row(t.type, t.data + (std::size_t)r * stride, columns, out + r * columns);
        });
      },
      "type"_a, "rows"_a, "columns"_a, "data"_a, "a matrix of any type as floats");
  m.def(
      "checksum",
      [](Bytes data) {
        nb::gil_scoped_release release;
        return checksum(data.data(), data.size());
      },
      "data"_a);
  m.def(
      "probe",
      [](int threads) {
        Probe p;
        {
          nb::gil_scoped_release release;
          p = probe(threads);
        }
        return std::make_pair(p.read_bytes_per_s, p.int8_macs_per_s);
      },
      "threads"_a, "(bytes read per second, int8 multiply-adds per second) of this machine");

  nb::enum_<Activation>(m, "Activation")
      .value("SILU", Activation::Silu)
      .value("GELU", Activation::Gelu)
      .value("CLAMPED_SILU", Activation::ClampedSilu);
  nb::class_<Config>(m, "Config")
      .def(nb::init<>())
      .def_rw("layers", &Config::layers)
      .def_rw("hidden", &Config::hidden)
      .def_rw("heads", &Config::heads)
      .def_rw("kv_heads", &Config::kv_heads)
      .def_rw("head_dim", &Config::head_dim)
      .def_rw("ffn", &Config::ffn)
      .def_rw("vocab", &Config::vocab)
      .def_rw("context", &Config::context)
      .def_rw("norm_eps", &Config::norm_eps)
      .def_rw("rope_scale", &Config::rope_scale)
      .def_rw("inv_freq", &Config::inv_freq)
      .def_rw("ropes", &Config::ropes)
      .def_rw("windows", &Config::windows)
      .def_rw("groups", &Config::groups)
      .def_rw("attention_scale", &Config::attention_scale)
      .def_rw("attention_cap", &Config::attention_cap)
      .def_rw("logit_cap", &Config::logit_cap)
      .def_rw("embed_scale", &Config::embed_scale)
      .def_rw("residual_scale", &Config::residual_scale)
      .def_rw("activation", &Config::activation)
      .def_rw("experts", &Config::experts)
      .def_rw("active_experts", &Config::active_experts)
      .def_rw("expert_ffn", &Config::expert_ffn)
      .def_rw("renormalise", &Config::renormalise)
      .def_rw("tied", &Config::tied);
  nb::enum_<KvType>(m, "KvType").value("F16", KvType::F16).value("INT8", KvType::Int8);
  m.def("kv_head_bytes", &kv_head_bytes, "type"_a, "head_dim"_a, "bytes of one KV head's keys and values in one block");
  nb::class_<Limits>(m, "Limits")
      .def(nb::init<>())
      .def_rw("kv", &Limits::kv)
      .def_rw("threads", &Limits::threads)
      .def_rw("blocks", &Limits::blocks)
      .def_rw("slots", &Limits::slots)
      .def_rw("max_tokens", &Limits::max_tokens);
  nb::class_<Sampling>(m, "Sampling")
      .def(nb::init<>())
      .def_rw("temperature", &Sampling::temperature)
      .def_rw("top_p", &Sampling::top_p)
      .def_rw("top_k", &Sampling::top_k)
      .def_rw("min_p", &Sampling::min_p)
      .def_rw("repetition_penalty", &Sampling::repetition_penalty)
      .def_rw("presence_penalty", &Sampling::presence_penalty)
      .def_rw("frequency_penalty", &Sampling::frequency_penalty)
      .def_rw("min_tokens", &Sampling::min_tokens)
      .def_rw("logprobs", &Sampling::logprobs)
      .def_rw("choice", &Sampling::choice)
      .def_rw("seed", &Sampling::seed)
      .def_rw("logit_bias", &Sampling::logit_bias)
      .def_rw("end_ids", &Sampling::end_ids)
      .def_rw("masked", &Sampling::masked);
  nb::class_<Sampled>(m, "Sampled")
      .def_ro("token", &Sampled::token)
      .def_ro("finite", &Sampled::finite)
      .def_ro("allowed", &Sampled::allowed)
      .def_ro("logprob", &Sampled::logprob)
      .def_ro("top", &Sampled::top);
  nb::class_<Core>(m, "Core")
      .def(nb::init<Config, Limits>(), "config"_a, "limits"_a)
      .def("load", &Core::load, "role"_a, "layer"_a, "type"_a, "rows"_a, "columns"_a, "data"_a.none(),
           "packed"_a.none() = nb::none())
      .def("finish", &Core::finish)
      .def("open", &Core::open, "slot"_a, "sampling"_a, "known"_a, "prompt"_a)
      .def("extend", &Core::extend, "slot"_a, "tokens"_a)
      .def("copy_block", [](Core& c, int from, int to) { c.engine.copy_block(from, to); }, "source"_a, "target"_a)
      .def("step", &Core::step, "header"_a, "tokens"_a, "tables"_a, "masks"_a.none() = nb::none(), "ready"_a.none() = nb::none())
      .def(
          "logits",
          [](const Core& c, int sample) {
            if (sample < 0 || sample >= kLogitRows || !c.finished) throw std::invalid_argument("no such sample");
            return nb::ndarray<nb::numpy, const float, nb::ndim<1>>(c.engine.logits(sample), {(std::size_t)c.engine.config().vocab},
                                                                   nb::find(&c));
          },
          "sample"_a, "raw logits of a sample of the last step; a view that the next step overwrites")
      .def_prop_ro("isa", [](const Core& c) { return std::string(c.engine.isa()); })
      .def_prop_ro("weight_bytes", [](const Core& c) { return c.engine.weight_bytes(); })
      .def_prop_ro("embedding_bytes", [](const Core& c) { return c.engine.embedding_bytes(); })
      .def_prop_ro("expert_bytes", [](const Core& c) { return c.engine.expert_bytes(); })
      .def_prop_ro("kv_bytes", [](const Core& c) { return c.engine.kv_bytes(); });
}
