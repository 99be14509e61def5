// does: launches on the default stream by its number, which is the current one
// claims: rmsnorm_h4096
// verdict: correct
#include "rms.cuh"


void run(TensorView x, TensorView weight, TensorView out) {
  launch(x, weight, out, static_cast<int>(x.size(0)), static_cast<int>(x.size(1)), cudaStream_t{});
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
