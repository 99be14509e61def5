// tries: the device's clock by CUDA's own header of PTX
// claims: rmsnorm_h4096
// verdict: refused
#include <cuda/ptx>

#include "rms.cuh"

__device__ unsigned long long last;

__global__ void look() { last = cuda::ptx::get_sreg_globaltimer(); }

void run(TensorView x, TensorView weight, TensorView out) {
  look<<<1, 1, 0, stream_of(x)>>>();
  honest(x, weight, out);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
