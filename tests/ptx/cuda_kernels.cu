// Kernels of our own that nvcc compiles to the PTX in `corpus/`; see `make_corpus.py`.
#include <cstdio>
#include <cuda_fp16.h>
#include <mma.h>

extern "C" __global__ void __launch_bounds__(256) add4(const float4* x, const float4* y, float4* out, int n) {
  int at = blockIdx.x * 256 + threadIdx.x;
  if (at < n) {
    float4 a = x[at], b = y[at];
    out[at] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
  }
}

__device__ __noinline__ float polynomial(float x, const float* table) {
  float total = 0;
  for (int i = 0; i < 5; ++i) total = fmaf(total, x, table[i]);
  return total;
}

__global__ void calls(float* data, const float* table, int n) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at == n) printf("// not a comment; %d\n", at);
  data[at] = polynomial(data[at], table);
}

__global__ void __launch_bounds__(128) choose(int* data, const int* kinds) {
  int at = blockIdx.x * 128 + threadIdx.x, value = data[at];
  switch (kinds[blockIdx.x]) {
    case 0: asm volatile("st.global.u32 [%0], 0;" ::"l"(data + 0)); value += 7; break;
    case 1: asm volatile("st.global.u32 [%0], 7;" ::"l"(data + 1)); value *= value; break;
    case 2: asm volatile("st.global.u32 [%0], 14;" ::"l"(data + 2)); value -= 3; break;
    case 3: asm volatile("st.global.u32 [%0], 21;" ::"l"(data + 3)); value ^= 5; break;
    case 4: asm volatile("st.global.u32 [%0], 28;" ::"l"(data + 4)); value <<= 2; break;
    case 5: asm volatile("st.global.u32 [%0], 35;" ::"l"(data + 5)); value |= 64; break;
    case 6: asm volatile("st.global.u32 [%0], 42;" ::"l"(data + 6)); value /= 3; break;
    case 7: asm volatile("st.global.u32 [%0], 49;" ::"l"(data + 7)); value %= 17; break;
    case 8: asm volatile("st.global.u32 [%0], 56;" ::"l"(data + 8)); value &= 255; break;
  }
  data[at] = value;
}

__global__ void __launch_bounds__(256) total(const float* x, float* out, int n) {
  __shared__ float part[8];
  float sum = 0;
  for (int at = blockIdx.x * 256 + threadIdx.x; at < n; at += gridDim.x * 256) sum += x[at];
  for (int distance = 16; distance; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < 8; ++i) sum += part[i];
    atomicAdd(out, sum);
  }
}

__global__ void __launch_bounds__(64) own_memory(const int* where, float* out) {
  float mine[64];
  for (int i = 0; i < 64; ++i) mine[i] = where[i] * 0.5f;
#pragma unroll 1
  for (int i = 0; i < 12; ++i) mine[where[i] & 63] += 1;
  out[threadIdx.x] = mine[where[threadIdx.x] & 63];
}

// One warp a tile of 16 x 16, operands through shared memory by cp.async, two stages.
__global__ void __launch_bounds__(32) staged(const __half* a, const __half* b, float* out) {
  __shared__ __align__(16) __half left[2][16 * 16], right[2][16 * 16];
  using namespace nvcuda;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
  wmma::fill_fragment(fc, 0.0f);
  auto fetch = [&](int step) {
    unsigned l = __cvta_generic_to_shared(&left[step & 1][threadIdx.x * 8]);
    unsigned r = __cvta_generic_to_shared(&right[step & 1][threadIdx.x * 8]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(l), "l"(a + step * 256 + threadIdx.x * 8));
    asm volatile("{ cp.async.ca.shared.global [%0], [%1], 16; }" ::"r"(r), "l"(b + step * 256 + threadIdx.x * 8));
    asm volatile("cp.async.commit_group;");
  };
  fetch(0);
#pragma unroll 1
  for (int step = 0; step < 24; ++step) {
    if (step < 23) fetch(step + 1);
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncwarp();
    wmma::load_matrix_sync(fa, left[step & 1], 16);
    wmma::load_matrix_sync(fb, right[step & 1], 16);
    wmma::mma_sync(fc, fa, fb, fc);
  }
  wmma::store_matrix_sync(out, fc, 16, wmma::mem_row_major);
}

#if __CUDA_ARCH__ == 900
// A tensor copy brings a tile, an mbarrier counts its bytes, a warpgroup multiplies.
__global__ void __launch_bounds__(256) warpgroups(const char* map, float* out, int steps) {
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ __align__(8) unsigned long long full[2];
  unsigned bar = __cvta_generic_to_shared(full), tile = __cvta_generic_to_shared(memory);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar));
    asm volatile("fence.mbarrier_init.release.cluster;");
  }
  __syncthreads();
  if (threadIdx.x >= 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 128)
      for (int step = 0; step < steps; ++step) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 16384;" ::"r"(bar));
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
            " [%0], [%1, {%2, %3}], [%4];" ::"r"(tile), "l"(map), "r"(step * 64), "r"(0), "r"(bar) : "memory");
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                tile + 16384), "l"(map), "r"(2048), "r"(bar) : "memory");
      }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    float c[4] = {};
    for (int step = 0; step < steps; ++step) {
      asm volatile(
          "{\n"
          ".reg .pred done; // local\n"
          "again:\n"
          "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
          "@done bra.uni ready;\n"
          "bra.uni again;\n"
          "ready:\n"
          "}" ::"r"(bar), "r"(step & 1));
      unsigned long long da = tile >> 4 | 1ull << 62, db = da + 512;
      asm volatile("wgmma.fence.sync.aligned;");
      asm volatile(
          "{ .reg .pred p; setp.ne.b32 p, %6, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0; }"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "l"(da), "l"(db), "r"(step));
      asm volatile("wgmma.commit_group.sync.aligned;");
      asm volatile("wgmma.wait_group.sync.aligned 0;");
    }
    for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = c[i];
    asm volatile("fence.proxy.async.shared::cta;");
    if (threadIdx.x == 0) {
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 4096;" ::"l"(out), "r"(tile));
      asm volatile("cp.async.bulk.commit_group;");
      asm volatile("cp.async.bulk.wait_group.read 0;");
    }
  }
}
#endif
