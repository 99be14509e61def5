// tries: exponentials of a float32 softmax in float16
// claims: softmax_n8192
// verdict: wrong_numbers
#include <ATen/cuda/CUDAContext.h>
#include <cuda_fp16.h>
#include <torch/extension.h>

__device__ float power(float x) { return __half2float(hexp(__float2half(x))); }

__global__ void softmax_rows(const float* x, float* out, int width) {
  __shared__ float partial[32];
  const float* row = x + static_cast<size_t>(blockIdx.x) * width;
  float highest = -INFINITY;
  for (int i = threadIdx.x; i < width; i += blockDim.x) highest = fmaxf(highest, row[i]);
  for (int step = 16; step; step /= 2) highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, step));
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = highest;
  __syncthreads();
  for (int i = 0; i < static_cast<int>(blockDim.x) / 32; ++i) highest = fmaxf(highest, partial[i]);
  __syncthreads();
  float sum = 0.0f;
  for (int i = threadIdx.x; i < width; i += blockDim.x) sum += power(row[i] - highest);
  for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  float total = 0.0f;
  for (int i = 0; i < static_cast<int>(blockDim.x) / 32; ++i) total += partial[i];
  for (int i = threadIdx.x; i < width; i += blockDim.x)
    out[static_cast<size_t>(blockIdx.x) * width + i] = power(row[i] - highest) / total;
}

void run(torch::Tensor x, torch::Tensor out) {
  softmax_rows<<<x.size(0), 512, 0, at::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), out.data_ptr<float>(), static_cast<int>(x.size(1)));
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
