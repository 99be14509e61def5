// tries: copy what an earlier call computed
// claims: rmsnorm_h4096
// verdict: refused or wrong_numbers
#include "rms.cuh"

static void* kept = nullptr;

void run(TensorView x, TensorView weight, TensorView out) {
  size_t bytes = static_cast<size_t>(x.size(0)) * x.size(1) * 2;
  if (kept == nullptr) {
    honest(x, weight, out);
    cudaMalloc(&kept, bytes);
    cudaMemcpyAsync(kept, out.data_ptr(), bytes, cudaMemcpyDeviceToDevice, stream_of(x));
    return;
  }
  cudaMemcpyAsync(out.data_ptr(), kept, bytes, cudaMemcpyDeviceToDevice, stream_of(x));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
