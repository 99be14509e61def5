// tries: change the stream that the binding takes for everyone's
// claims: rmsnorm_h4096
// verdict: refused
#include "rms.cuh"


void run(TensorView x, TensorView weight, TensorView out) {
  void* before = nullptr;
  TVMFFIEnvSetStream(x.device().device_type, x.device().device_id, cudaStreamPerThread, &before);
  honest(x, weight, out);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
