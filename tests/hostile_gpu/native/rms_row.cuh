// What the exhibits of this folder share, however they are bound: one row's norm, by all threads of a block.
#pragma once
#include <cuda_bf16.h>

__device__ inline void rms_row(const __nv_bfloat16* x, const __nv_bfloat16* weight, __nv_bfloat16* out,
                               int row, int width, int read) {
  __shared__ float partial[32];
  const size_t start = static_cast<size_t>(row) * width;
  float sum = 0.0f;
  for (int i = threadIdx.x; i < read; i += blockDim.x) {
    float value = __bfloat162float(x[start + i]);
    sum += value * value;
  }
  for (int step = 16; step; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  float total = 0.0f;
  for (int i = 0; i < static_cast<int>(blockDim.x) / 32; ++i) total += partial[i];
  __syncthreads();  // the next row's sums take the same place
  float scale = rsqrtf(total / read + 1e-6f);
  for (int i = threadIdx.x; i < width; i += blockDim.x)
    out[start + i] = __float2bfloat16(__bfloat162float(x[start + i]) * scale * __bfloat162float(weight[i]));
}
