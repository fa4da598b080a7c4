// Runs all native tests; counts allocations for them.
#include <cstdlib>
#include <new>

#include "check.h"

// Not inlined: GCC would take malloc and free inside for a mismatch with new and delete outside.
__attribute__((noinline)) void* operator new(std::size_t n) {
  headway::allocations++;
  if (void* p = std::malloc(n ? n : 1)) return p;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* p) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete(void* p, std::size_t) noexcept { std::free(p); }

int main() {
  using namespace headway;
  test_matmul(), test_rows(), test_attention(), test_threads(), test_uniform(), test_sampling(), test_engine(false), test_engine(true), test_sinks(), test_no_allocation(false), test_no_allocation(true), test_poison(), test_refusals();
  test_packed_again(), test_quantise(), test_mxfp4(), test_checksum(), test_hostile_weights();
  std::printf("%s: %d failures, instruction sets:", failures ? "FAILED" : "ok", failures);
  for (const Kernels* k : all_kernels()) std::printf(" %s", k->name);
  std::printf("\n");
  return failures != 0;
}
