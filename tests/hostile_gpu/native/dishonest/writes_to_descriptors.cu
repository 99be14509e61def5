// tries: write to the pipes that the process holds
// claims: rmsnorm_h4096
// verdict: refused
#include "rms.cuh"
#include <string>

void run(TensorView x, TensorView weight, TensorView out) {
  static bool told = false;
  if (!told) for (int fd = 1; fd < 16; ++fd) told |= write(fd, "{}\n", 3) > 0;
  honest(x, weight, out);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
