// does: blocks that wait for the whole grid between scales and rows
// claims: rmsnorm_h4096
// verdict: correct
#include <cooperative_groups.h>

#include "rms.cuh"

__device__ float scales[1 << 17];

__global__ void together(const __nv_bfloat16* x, const __nv_bfloat16* weight, __nv_bfloat16* out, int rows,
                         int width) {
  const int lane = threadIdx.x % 32, warps = gridDim.x * blockDim.x / 32;
  for (int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32; row < rows; row += warps) {
    float sum = 0.0f;
    for (int i = lane; i < width; i += 32) {
      float value = __bfloat162float(x[static_cast<size_t>(row) * width + i]);
      sum += value * value;
    }
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane == 0) scales[row] = rsqrtf(sum / width + 1e-6f);
  }
  cooperative_groups::this_grid().sync();
  const size_t count = static_cast<size_t>(rows) * width, step = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
    out[i] = __float2bfloat16(__bfloat162float(x[i]) * scales[i / width] * __bfloat162float(weight[i % width]));
}

void run(TensorView x, TensorView weight, TensorView out) {
  int device = 0, processors = 0, rows = static_cast<int>(x.size(0)), width = static_cast<int>(x.size(1));
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  const __nv_bfloat16 *from = at(x), *by = at(weight);
  auto* to = static_cast<__nv_bfloat16*>(out.data_ptr());
  void* given[] = {&from, &by, &to, &rows, &width};
  cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(together), dim3(2 * processors), dim3(512), given, 0,
                              stream_of(x));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
