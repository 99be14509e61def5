// tries: record a graph and replay it
// claims: rmsnorm_h4096
// verdict: refused
#include "rms.cuh"

static cudaGraphExec_t recorded = nullptr;

void run(TensorView x, TensorView weight, TensorView out) {
  honest(x, weight, out);
  if (recorded != nullptr) cudaGraphLaunch(recorded, stream_of(x));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
