// Chooses a sequence's next token from its logits. A token is a function of (logits, sampling, position) alone.
#pragma once

#include <vector>

#include "headway/engine.h"
#include "kernels/kernels.h"

namespace headway {

// What a slot remembers of its sequence: enough for penalties, derived from the ids it was opened with.
struct Slot {
  struct Seen {
    int token, in_output;
  };

  bool open = false;
  Sampling sampling;
  int generated = 0;
  std::vector<Seen> seen;  // distinct tokens, kept only where a penalty asks for them
  std::vector<int> index;  // [vocab]: place in `seen`, or -1

  void reset(const Sampling& s, const std::uint32_t* known, std::size_t count, std::size_t prompt, int vocab, int context);
  void append(int token, bool output);
};

// Memory one thread needs to sample.
struct SampleScratch {
  std::vector<float> logits, weights;  // weights: whole lanes, 0 beyond the vocabulary
  explicit SampleScratch(int vocab) : logits((std::size_t)vocab), weights(padded((std::size_t)vocab, kLanes)) {}
};

// A uniform number in [0, 1) from the counter-based generator Philox4x32-10 (Salmon et al. 2011), 53 bits.
double uniform(std::uint64_t seed, std::uint32_t choice, std::uint32_t position, std::uint32_t purpose);

// `mask`: bits of the tokens that may come, or null for all.
void sample(const Kernels& k, const float* logits, int vocab, Slot& slot, int position, SampleScratch& scratch, Sampled& out,
            const std::uint32_t* mask = nullptr);

}  // namespace headway
