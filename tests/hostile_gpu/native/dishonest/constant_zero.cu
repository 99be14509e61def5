// tries: write zeros
// claims: rmsnorm_h4096
// verdict: wrong_numbers
#include "rms.cuh"

void run(TensorView x, TensorView weight, TensorView out) {
  cudaMemsetAsync(out.data_ptr(), 0, static_cast<size_t>(x.size(0)) * x.size(1) * 2, stream_of(x));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
