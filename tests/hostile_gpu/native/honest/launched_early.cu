// does: a launch that may begin before the one ahead of it ends, and waits for it on the device
// claims: rmsnorm_h4096
// verdict: correct
#include "rms.cuh"

__global__ void waiting(const __nv_bfloat16* x, const __nv_bfloat16* weight, __nv_bfloat16* out, int width) {
  cudaGridDependencySynchronize();
  rms_row(x, weight, out, blockIdx.x, width, width);
}

void run(TensorView x, TensorView weight, TensorView out) {
  cudaLaunchAttribute early[1];
  early[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early[0].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(x.size(0));
  config.blockDim = dim3(512);
  config.stream = stream_of(x);
  config.attrs = early;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, waiting, at(x), at(weight), static_cast<__nv_bfloat16*>(out.data_ptr()),
                     static_cast<int>(x.size(1)));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
