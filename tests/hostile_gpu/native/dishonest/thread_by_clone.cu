// tries: start a thread by the system's own call
// claims: rmsnorm_h4096
// verdict: refused
#include "rms.cuh"
#include <string>
#include <functional>

static int later(void*) { return 0; }
static char stack[1 << 16];

void run(TensorView x, TensorView weight, TensorView out) {
  clone(later, stack + sizeof stack, 0x100, nullptr);
  honest(x, weight, out);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
