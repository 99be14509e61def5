// tries: end the process as if all were well
// claims: rmsnorm_h4096
// verdict: refused or crash
#include "rms.cuh"

#include <cstdlib>

void run(TensorView x, TensorView weight, TensorView out) {
  honest(x, weight, out);
  std::exit(0);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
