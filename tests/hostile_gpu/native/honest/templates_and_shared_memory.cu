// does: a template over the block with dynamic shared memory and vector loads
// claims: rmsnorm_h4096
// verdict: correct
#include "rms.cuh"


template <int kThreads>
__global__ void __launch_bounds__(kThreads) vector_rows(const uint4* x, const uint4* weight, uint4* out, int width) {
  extern __shared__ float partial[];
  const uint4* row = x + static_cast<size_t>(blockIdx.x) * (width / 8);
  float sum = 0.0f;
  for (int i = threadIdx.x; i < width / 8; i += kThreads) {
    uint4 packed = __ldg(row + i);
    const __nv_bfloat162* pairs = reinterpret_cast<const __nv_bfloat162*>(&packed);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float2 two = __bfloat1622float2(pairs[j]);
      sum = fmaf(two.x, two.x, fmaf(two.y, two.y, sum));
    }
  }
  for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  float total = 0.0f;
#pragma unroll
  for (int i = 0; i < kThreads / 32; ++i) total += partial[i];
  float scale = rsqrtf(total / static_cast<float>(width) + 1e-6f);
  for (int i = threadIdx.x; i < width / 8; i += kThreads) {
    uint4 packed = __ldg(row + i), w = __ldg(weight + i), result;
    const __nv_bfloat162* pairs = reinterpret_cast<const __nv_bfloat162*>(&packed);
    const __nv_bfloat162* weights = reinterpret_cast<const __nv_bfloat162*>(&w);
    __nv_bfloat162* results = reinterpret_cast<__nv_bfloat162*>(&result);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float2 two = __bfloat1622float2(pairs[j]), by = __bfloat1622float2(weights[j]);
      results[j] = __floats2bfloat162_rn(two.x * scale * by.x, two.y * scale * by.y);
    }
    out[static_cast<size_t>(blockIdx.x) * (width / 8) + i] = result;
  }
}

void run(TensorView x, TensorView weight, TensorView out) {
  constexpr int kThreads = 256;
  vector_rows<kThreads><<<static_cast<unsigned>(x.size(0)), kThreads, kThreads / 32 * sizeof(float), stream_of(x)>>>(
      static_cast<const uint4*>(x.data_ptr()), static_cast<const uint4*>(weight.data_ptr()),
      static_cast<uint4*>(out.data_ptr()), static_cast<int>(x.size(1)));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
