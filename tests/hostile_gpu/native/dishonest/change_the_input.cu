// tries: normalise in place and copy
// claims: rmsnorm_h4096
// verdict: refused
#include "rms.cuh"

void run(TensorView x, TensorView weight, TensorView out) {
  honest(x, weight, x);
  cudaMemcpyAsync(out.data_ptr(), x.data_ptr(), static_cast<size_t>(x.size(0)) * x.size(1) * 2,
                  cudaMemcpyDeviceToDevice, stream_of(x));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
