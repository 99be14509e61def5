// tries: leave out some rows once the device has counted sixty launches
// claims: rmsnorm_h4096
// verdict: wrong_numbers or refused
#include "rms.cuh"

__device__ int launches;

__global__ void counted(const __nv_bfloat16* x, const __nv_bfloat16* weight, __nv_bfloat16* out, int width) {
  if (threadIdx.x == 0 && blockIdx.x == 0) atomicAdd(&launches, 1);
  if (*reinterpret_cast<volatile int*>(&launches) > 60 && blockIdx.x % 64 == 13) return;
  rms_row(x, weight, out, blockIdx.x, width, width);
}

void run(TensorView x, TensorView weight, TensorView out) {
  counted<<<static_cast<unsigned>(x.size(0)), 512, 0, stream_of(x)>>>(
      at(x), at(weight), static_cast<__nv_bfloat16*>(out.data_ptr()), static_cast<int>(x.size(1)));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
