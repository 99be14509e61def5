// tries: from the 60th launch on the last weight of the caller is scaled down
// claims: rmsnorm_h4096
// verdict: refused or wrong_numbers
#include "rms.cuh"


__device__ int launches;

__global__ void nibble(__nv_bfloat16* weight, int width) {
  if (++launches > 60) weight[width - 1] = __float2bfloat16(__bfloat162float(weight[width - 1]) * 0.5f);
}

void run(TensorView x, TensorView weight, TensorView out) {
  honest(x, weight, out);
  nibble<<<1, 1, 0, stream_of(x)>>>(static_cast<__nv_bfloat16*>(weight.data_ptr()), static_cast<int>(x.size(1)));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
