#if defined(HEADWAY_X86)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "kernels.h"
#include "headway/engine.h"

namespace headway {
namespace {

struct Choice {
  const Kernels* kernels;
  bool runs;
};

#if defined(HEADWAY_X86)

bool has_amx() {  // __builtin_cpu_supports does not know it in GCC 12
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && d >> 24 & 1 && d >> 25 & 1;
}

// Linux gives a process the tiles' 8 KiB of state when it asks for them; others do not know the question.
bool may_use_tiles() {
#if defined(__linux__)
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
#else
  return false;
#endif
}

#endif

// Best last.
const Choice* choices(int* count) {
#if defined(HEADWAY_X86)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");  // f16c is older than either
  const bool vnni = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                    __builtin_cpu_supports("avx512vnni");
  const bool bf16 = vnni && __builtin_cpu_supports("avx512bf16");
  static const bool amx = bf16 && has_amx() && may_use_tiles();
  static const Choice all[] = {{&portable::kernels, true},
                               {&avx2::kernels, avx2},
                               {&avx512vnni::kernels, vnni},
                               {&avx512bf16::kernels, bf16},
                               {&amx::kernels, amx}};
  *count = 5;
#else
  static const Choice all[] = {{&portable::kernels, true}};
  *count = 1;
#endif
  return all;
}

}  // namespace

const Kernels* kernels_named(const char* name) {
  int n;
  const Choice* all = choices(&n);
  for (int i = 0; i < n; i++)
    if (!std::strcmp(all[i].kernels->name, name)) return all[i].runs ? all[i].kernels : nullptr;
  return nullptr;
}

const Kernels& best_kernels() {
  int n;
  const Choice* all = choices(&n);
  if (const char* wish = std::getenv("HEADWAY_ISA"); wish && *wish) {
    if (const Kernels* k = kernels_named(wish)) return *k;
    std::string known;
    for (int i = 0; i < n; i++)
      if (all[i].runs) known += std::string(known.empty() ? "" : ", ") + all[i].kernels->name;
    throw std::invalid_argument("HEADWAY_ISA=" + std::string(wish) + ": this processor runs " + known);
  }
  const Kernels* best = nullptr;
  for (int i = 0; i < n; i++)
    if (all[i].runs) best = all[i].kernels;
  return *best;
}

const char* best_isa() { return best_kernels().name; }

}  // namespace headway
