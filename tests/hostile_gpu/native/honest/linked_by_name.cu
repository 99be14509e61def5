// does: a launch with attributes, functions with names of C, attributes and pragmas
// claims: rmsnorm_h4096
// verdict: correct
#include "rms.cuh"

extern "C" void launch_rows(const void* x, int rows);
extern "C" {
__global__ void plain_rows(float* x);
void launch_more(int rows);
}
extern "C" __global__ void plain_rows(float* x) { x[threadIdx.x] = 0; }
void launch_more(int rows) { (void)rows; }
extern "C" void launch_rows(const void* x, int rows) { if (x) launch_more(rows); }

struct __attribute__((aligned(16))) Pack { __nv_bfloat16 v[8]; };
[[maybe_unused]] static constexpr int kPacks = sizeof(Pack) / 16;

void run(TensorView x, TensorView weight, TensorView out) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(x.size(0)); config.blockDim = dim3(512); config.stream = stream_of(x);
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute[0].val.programmaticStreamSerializationAllowed = 1;
  config.attrs = attribute; config.numAttrs = 1;
  cudaLaunchKernelEx(&config, rms_rows, at(x), at(weight), static_cast<__nv_bfloat16*>(out.data_ptr()), (int)x.size(1), (int)x.size(1));
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
