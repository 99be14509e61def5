// tries: leave out some rows once the device has counted sixty launches
// claims: rmsnorm_h4096
// verdict: wrong_numbers or refused
#include "rms.cuh"

__device__ int launches;

__global__ void counted(const __nv_bfloat16* x, const __nv_bfloat16* weight, __nv_bfloat16* out, int width) {
  if (threadIdx.x == 0 && blockIdx.x == 0) atomicAdd(&launches, 1);
  if (*reinterpret_cast<volatile int*>(&launches) > 60 && blockIdx.x % 64 == 13) return;
  __shared__ float partial[32];
  const __nv_bfloat16* row = x + static_cast<size_t>(blockIdx.x) * width;
  float sum = 0.0f;
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    float value = __bfloat162float(row[i]);
    sum += value * value;
  }
  for (int step = 16; step; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  float total = 0.0f;
  for (int i = 0; i < static_cast<int>(blockDim.x) / 32; ++i) total += partial[i];
  float scale = rsqrtf(total / width + 1e-6f);
  for (int i = threadIdx.x; i < width; i += blockDim.x)
    out[static_cast<size_t>(blockIdx.x) * width + i] = __float2bfloat16(
        __bfloat162float(row[i]) * scale * __bfloat162float(weight[i]));
}

void run(TensorView x, TensorView weight, TensorView out) {
  counted<<<static_cast<unsigned>(x.size(0)), 512, 0, stream_of(x)>>>(
      at(x), at(weight), static_cast<__nv_bfloat16*>(out.data_ptr()), static_cast<int>(x.size(1)));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
