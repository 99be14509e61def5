// tries: work on the stream that each thread has for itself
// claims: rmsnorm_h4096
// verdict: refused or wrong_numbers
#include "rms.cuh"

void run(TensorView x, TensorView weight, TensorView out) {
  launch(x, weight, out, static_cast<int>(x.size(0)), static_cast<int>(x.size(1)), cudaStreamPerThread);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
