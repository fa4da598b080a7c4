// The scalar truth: each kernel as one plain loop in double precision, for the tests.
#pragma once

#include "kernels/kernels.h"

namespace headway::reference {

// Dot product of prepared input row `row` with output `column`, from weights unpacked to floats.
double dot(const Packed& w, int column, const Activations& x, int row);
void rms_norm(const float* x, const float* weight, int n, float eps, double* out);
double swiglu(float gate, float up);
double geglu(float gate, float up);
double clamped_swiglu(float gate, float up);
// Softmax attention of one query over keys [first, last], read from the paged pool.
void attend(const Attention& a, KvType type, int query, double* out);

}  // namespace headway::reference
