"""CUDA kernels as strangers write them, with data on which to run them."""

from __future__ import annotations

from on_cpu import Data, Sample


def sample(source, grid, block, data, cases, shared=0, **more):
    three = lambda n: n if isinstance(n, str) else f"{n}, 1, 1"
    line = f"#pragma launch grid({three(grid)}) block({three(block)}) shared({shared})\n"
    return Sample(line + source, data, cases, **more)


N = [{"n": n} for n in (2048, 2047, 2045, 1030, 257, 31, 5, 4, 3, 1, 0)]
ARRAY = Data("n")
WIDTHS = [{"width": n} for n in (256, 512, 260, 258, 257, 96, 40, 33, 7, 4, 1)]
ROWS = [{"rows": 37, "width": n} for n in (128, 132, 130, 129, 64, 31, 4, 1)]

SAMPLES = {
    "add": sample(
        'extern "C" __global__ void add(const float* x, const float* y, float* out, int n) {\n'
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) out[i] = x[i] + y[i];\n}\n",
        8, 256, {"x": ARRAY, "y": ARRAY, "out": ARRAY}, N),
    "saxpy_early_return": sample("""
__global__ void saxpy(long long n, float a, const float* __restrict__ x, float* __restrict__ y) {
    const long long idx = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (idx >= n) return;
    y[idx] = a * x[idx] + y[idx];   // in place
}
""", 8, 256, {"x": ARRAY, "y": ARRAY}, [{**one, "a": 1.5} for one in N]),
    "mean_square_error": sample("""
__global__ void mse(const float* a, const float* b, float* out, int n) {
  float s = 0.f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    float d = a[i] - b[i];
    s += d * d;
  }
  atomicAdd(out, s / n);
}
""", 4, 128, {"a": ARRAY, "b": ARRAY, "out": Data("1")}, N[:-1]),
    "whole_quotients": sample("""
__global__ void quotients(const int* a, int* out, int n) {
  int s = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) s += a[i];
  atomicAdd(out, s / 3);
}
""", 4, 128, {"a": Data("n", 0, 50), "out": Data("1")}, N, refuses=True),
    "count_of_large": sample("""
__global__ void count_large(const float* a, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && a[i] > 0.5f) atomicAdd(out, 1);
}
""", 8, 256, {"a": ARRAY, "out": Data("1")}, N),
    "gelu_half": sample("""
#include <cuda_fp16.h>
__device__ __forceinline__ float gelu(float v) {
  return 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}
extern "C" __global__ void gelu_half(const __half* in, __half* out, size_t n) {
  size_t tid = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (tid < n) {
    float v = __half2float(in[tid]);
    out[tid] = __float2half(gelu(v));
  }
}
""", 8, 256, {"in": ARRAY, "out": ARRAY}, N),
    "scale_bias_bf16_macro": sample("""
#include <cuda_bf16.h>
#define TPB 128
#define GID (blockIdx.x * TPB + threadIdx.x)
#define F(v) __bfloat162float(v)
__global__ void scale_bias(const __nv_bfloat16 *x, const float *bias, __nv_bfloat16 *y, float s, int n, int width)
{
    unsigned int i = GID;
    if (i < n)
    {
        y[i] = __float2bfloat16(F(x[i]) * s + bias[i % width]);
    }
}
""", 16, 128, {"x": ARRAY, "y": ARRAY, "bias": Data("width")}, [{**one, "s": 0.5, "width": 7} for one in N]),
    "grid_stride_relu": sample("""
extern "C" __global__ void relu(float* data, int n) {
  int stride = gridDim.x * blockDim.x;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
    if (data[i] < 0.0f) data[i] = 0.0f;
  }
}
""", 3, 128, {"data": ARRAY}, N),
    "grid_stride_several": sample("""
template <typename T> __device__ T clamp01(T v) { return v < T(0) ? T(0) : (v > T(1) ? T(1) : v); }
__global__ void fused(const float *a, const float *b, const float *c, float *out, const size_t n) {
    const size_t start = threadIdx.x + blockIdx.x * blockDim.x;
    for (size_t k = start; k < n; k += (size_t)blockDim.x * gridDim.x) {
        const float t = fmaf(a[k], b[k], c[k]);
        if (t > 10.f) continue;
        out[k] = clamp01(t) + __ldg(&c[k]) + *(a + k);
    }
}
""", 3, 128, {"a": ARRAY, "b": ARRAY, "c": ARRAY, "out": ARRAY}, N),
    "two_dimensional": sample("""
extern "C" __global__ void blend(const float* a, const float* b, float* out, int height, int width) {
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row < height && col < width) {
    int idx = row * width + col;
    out[idx] = 0.25f * a[idx] + 0.75f * b[idx];
  }
}
""", "5, 3, 1", "16, 8, 1", {"a": Data("height * width"), "b": Data("height * width"), "out": Data("height * width")},
        [{"height": h, "width": w} for h, w in ((24, 80), (23, 79), (5, 33), (1, 1), (24, 4), (0, 3))]),
    "two_dimensional_return": sample("""
#define IDX2(r, c, ld) ((r) * (ld) + (c))
__global__ void bias2d(const float* x, const float* bias, float* y, int M, int N) {
  int r = blockIdx.y * blockDim.y + threadIdx.y, c = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= M || c >= N) return;
  y[IDX2(r, c, N)] = x[IDX2(r, c, N)] + bias[c];
}
""", "3, 4, 1", "32, 4, 1", {"x": Data("M * N"), "bias": Data("N"), "y": Data("M * N")},
        [{"M": m, "N": n} for m, n in ((16, 96), (15, 95), (3, 33), (1, 1))]),
    "stencil": sample("""
extern "C" __global__ void blur(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i > 0 && i < n - 1) {
    out[i] = 0.25f * in[i - 1] + 0.5f * in[i] + 0.25f * in[i + 1];
  }
}
""", 8, 256, {"in": ARRAY, "out": ARRAY}, N),
    "stencil_clamped": sample("""
__global__ void diff(const float* in, float* out, int n) {
  int i = threadIdx.x + blockDim.x * blockIdx.x;
  if (i >= n) return;
  float left = i > 0 ? in[i - 1] : in[i];
  float right = (i + 1 < n) ? in[i + 1] : in[i];
  out[i] = right - left;
}
""", 8, 256, {"in": ARRAY, "out": ARRAY}, N),
    "no_guard_ints": sample("""
__global__ void mix(const unsigned char* a, const int* b, unsigned* out) {
  const int tid = threadIdx.x;
  const int gid = blockIdx.x * 96 + tid;
  out[gid] = (unsigned)a[gid] * 3u + (unsigned)b[gid];
}
""", 5, 96, {"a": Data("480", 0, 200), "b": Data("480", -9, 90), "out": Data("480", 0, 9)}, [{}]),
    "sum_atomic_each": sample("""
extern "C" __global__ void total(const float* x, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(out, x[i]);
}
""", 8, 256, {"x": ARRAY, "out": Data("1")}, N),
    "dot_grid_stride_atomic": sample("""
__global__ void dot(const float *__restrict__ a, const float *__restrict__ b, float *result, int n)
{
    float local = 0.f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        local += a[i] * b[i];
    atomicAdd(&result[0], local);
}
""", 4, 128, {"a": ARRAY, "b": ARRAY, "result": Data("1")}, N),
    "dot_tree_atomic": sample("""
#define BLOCK_SIZE 128
__global__ void dot_tree(const float* a, const float* b, float* out, int n) {
  __shared__ float cache[BLOCK_SIZE];
  int tid = threadIdx.x;
  int i = blockIdx.x * blockDim.x + tid;
  cache[tid] = (i < n) ? a[i] * b[i] : 0.0f;
  __syncthreads();
  for (unsigned int s = blockDim.x / 2; s > 0; s >>= 1) {
    if (tid < s) cache[tid] += cache[tid + s];
    __syncthreads();
  }
  if (tid == 0) atomicAdd(out, cache[0]);
}
""", 16, 128, {"a": ARRAY, "b": ARRAY, "out": Data("1")}, N),
    "max_tree_interleaved": sample("""
__global__ void max_int(const int* x, int* out, int n) {
  extern __shared__ int sdata[];
  int tid = threadIdx.x, i = blockIdx.x * blockDim.x + threadIdx.x;
  int v = -2147483647;
  if (i < n) v = x[i];
  sdata[tid] = v;
  __syncthreads();
  for (int s = 1; s < blockDim.x; s *= 2) {
    if (tid % (2 * s) == 0) sdata[tid] = max(sdata[tid], sdata[tid + s]);
    __syncthreads();
  }
  if (tid == 0) atomicMax(out, sdata[0]);
}
""", 16, 128, {"x": Data("n", -99, 900), "out": Data("1", -5, 5)}, N, shared=512),
    "block_sums_kept_apart": sample("""
__global__ void reduce0(const float* g_idata, float* g_odata, unsigned int n) {
  __shared__ float sdata[128];
  unsigned int tid = threadIdx.x;
  unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
  sdata[tid] = (i < n) ? g_idata[i] : 0;
  __syncthreads();
  for (unsigned int s = 1; s < blockDim.x; s *= 2) {
    if (tid % (2 * s) == 0) { sdata[tid] += sdata[tid + s]; }
    __syncthreads();
  }
  if (tid == 0) g_odata[blockIdx.x] = sdata[0];
}
""", 16, 128, {"g_idata": ARRAY, "g_odata": Data("16")}, N, refuses=True),
    "histogram": sample("""
__global__ void histogram(const int* x, int* bins, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&bins[x[i]], 1);
}
""", 8, 256, {"x": Data("n", 0, 17), "bins": Data("17", 0, 5)}, N),
    "row_sums_tree": sample("""
extern "C" __global__ void row_sums(const float* x, float* out, int width) {
  __shared__ float partial[128];
  float sum = 0.0f;
  for (int i = threadIdx.x; i < width; i += blockDim.x) sum += x[(size_t)blockIdx.x * width + i];
  partial[threadIdx.x] = sum;
  __syncthreads();
  for (int step = blockDim.x / 2; step > 0; step /= 2) {
    if (threadIdx.x < step) partial[threadIdx.x] += partial[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[blockIdx.x] = partial[0];
}
""", 5, 128, {"x": Data("5 * width"), "out": Data("5")}, WIDTHS),
    "row_max_thread_a_row": sample("""
__global__ void row_max(const float* in, float* out, int rows, int width) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float m = -INFINITY;
  for (int j = 0; j < width; ++j) m = fmaxf(m, in[row * width + j]);
  out[row] = m;
}
""", 2, 64, {"in": Data("rows * width"), "out": Data("rows")}, ROWS),
    "row_mean_thread_pointer": sample("""
__global__ void mean_var(const float* in, float* mean, float* var, int rows, int width) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < rows) {
    const float* p = in + (size_t)row * width;
    float s = 0, sq = 0;
    for (int j = 0; j < width; j++) {
      float v = p[j];
      s += v;
      sq += v * v;
    }
    float mu = s / width;
    mean[row] = mu;
    var[row] = sq / width - mu * mu;
  }
}
""", 2, 64, {"in": Data("rows * width"), "mean": Data("rows"), "var": Data("rows")}, ROWS),
    "softmax_thread_a_row": sample("""
extern "C" __global__ void softmax(const float* x, float* y, int rows, int width) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  float m = x[r * width];
  for (int j = 1; j < width; ++j) if (x[r * width + j] > m) m = x[r * width + j];
  float s = 0.0f;
  for (int j = 0; j < width; ++j) {
    float e = expf(x[r * width + j] - m);
    y[r * width + j] = e;
    s += e;
  }
  for (int j = 0; j < width; ++j) y[r * width + j] /= s;
}
""", 2, 64, {"x": Data("rows * width"), "y": Data("rows * width")}, ROWS),
    "softmax_block_a_row": sample("""
__global__ void softmax_block(const float* __restrict__ input, float* __restrict__ output, const int width) {
    extern __shared__ float buf[];
    const int row = blockIdx.x;
    const int tid = threadIdx.x;
    const float* in_row = input + row * width;
    float* out_row = output + row * width;
    float local_max = -1e30f;
    for (int i = tid; i < width; i += blockDim.x) local_max = fmaxf(local_max, in_row[i]);
    buf[tid] = local_max;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) buf[tid] = fmaxf(buf[tid], buf[tid + s]);
        __syncthreads();
    }
    float row_max = buf[0];
    __syncthreads();
    float local_sum = 0.f;
    for (int i = tid; i < width; i += blockDim.x) {
        float e = __expf(in_row[i] - row_max);
        out_row[i] = e;
        local_sum += e;
    }
    buf[tid] = local_sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) buf[tid] += buf[tid + s];
        __syncthreads();
    }
    float inv = 1.0f / buf[0];
    for (int i = tid; i < width; i += blockDim.x) out_row[i] *= inv;
}
""", 5, 64, {"input": Data("5 * width"), "output": Data("5 * width")}, WIDTHS, shared=256),
    "layer_norm_block": sample("""
extern "C" __global__ void layer_norm(const float* x, const float* gamma, const float* beta, float* y, int width, float eps) {
  __shared__ float s1[128], s2[128];
  __shared__ float mean, rstd;
  int t = threadIdx.x;
  size_t base = (size_t)blockIdx.x * width;
  float a = 0.0f, b = 0.0f;
  for (int i = t; i < width; i += 128) { float v = x[base + i]; a += v; b += v * v; }
  s1[t] = a; s2[t] = b;
  __syncthreads();
  for (int k = 64; k > 0; k >>= 1) {
    if (t < k) { s1[t] += s1[t + k]; s2[t] += s2[t + k]; }
    __syncthreads();
  }
  if (t == 0) {
    mean = s1[0] / width;
    float v = s2[0] / width - mean * mean;
    rstd = rsqrtf(v + eps);
  }
  __syncthreads();
  for (int i = t; i < width; i += 128) y[base + i] = (x[base + i] - mean) * rstd * gamma[i] + beta[i];
}
""", 5, 128, {"x": Data("5 * width"), "gamma": Data("width"), "beta": Data("width"), "y": Data("5 * width")},
        [{**one, "eps": 1e-2} for one in WIDTHS], relative=2e-3),
    "rms_norm_half_thread": sample("""
#include <cuda_fp16.h>
__global__ void rms_norm(const half* x, const half* w, half* y, int rows, int width, float eps) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float ss = 0.f;
  for (int i = 0; i < width; ++i) { float v = __half2float(x[row * width + i]); ss += v * v; }
  float scale = rsqrtf(ss / (float)width + eps);
  for (int i = 0; i < width; ++i)
    y[row * width + i] = __float2half(__half2float(x[row * width + i]) * scale * __half2float(w[i]));
}
""", 2, 64, {"x": Data("rows * width"), "w": Data("width"), "y": Data("rows * width")},
        [{**one, "eps": 1e-2} for one in ROWS]),
    "prefix_sum_serial": sample("""
__global__ void prefix(const float* x, float* y, int rows, int width) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float run = 0.f;
  for (int j = 0; j < width; ++j) { run += x[row * width + j]; y[row * width + j] = run; }
}
""", 2, 64, {"x": Data("rows * width"), "y": Data("rows * width")}, ROWS, refuses=True),
    "argmax_rows": sample("""
__global__ void argmax(const float* x, int* out, int rows, int width) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float best = x[row * width]; int at = 0;
  for (int j = 1; j < width; ++j) { float v = x[row * width + j]; if (v > best) { best = v; at = j; } }
  out[row] = at;
}
""", 2, 64, {"x": Data("rows * width"), "out": Data("rows", 0, 3)}, ROWS, refuses=True),
    "column_sums": sample("""
__global__ void column_sums(const float* x, float* out, int rows, int width) {
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= width) return;
  float s = 0.0f;
  for (int r = 0; r < rows; ++r) s += x[r * width + c];
  out[c] = s;
}
""", 3, 64, {"x": Data("rows * width"), "out": Data("width")}, ROWS, refuses=True),
    "matmul": sample("""
extern "C" __global__ void matmul(const float* A, const float* B, float* C, int M, int N, int K) {
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < M && col < N) {
    float sum = 0.0f;
    for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
    C[row * N + col] = sum;
  }
}
""", "9, 9, 1", "16, 16, 1", {"A": Data("M * K"), "B": Data("K * N"), "C": Data("M * N")},
        [{"M": m, "N": n, "K": k} for m, n, k in ((144, 144, 40), (131, 140, 33), (130, 129, 16), (5, 3, 7), (1, 1, 1), (20, 16, 0))]),
    "gemm_alpha_beta_transposed": sample("""
#define CEIL(a, b) (((a) + (b) - 1) / (b))
__global__ void gemm_nt(const float *a, const float *b, float *c, const int m, const int n, const int k, float alpha, float beta)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= m || j >= n) return;
    float acc = 0.f;
    #pragma unroll 4
    for (int p = 0; p < k; p++) {
        float u = a[i * k + p];
        float v = b[j * k + p];
        acc = fmaf(u, v, acc);
    }
    int at = i * n + j;
    c[at] = alpha * acc + beta * c[at];
}
""", "5, 18, 1", "32, 8, 1", {"a": Data("m * k"), "b": Data("n * k"), "c": Data("m * n")},
        [{"m": m, "n": n, "k": k, "alpha": 0.5, "beta": 2} for m, n, k in ((160, 144, 40), (131, 140, 33), (3, 5, 7))]),
    "matmul_tiled": sample("""
#define TILE 16
__global__ void tiled(const float* A, const float* B, float* C, int M, int N, int K) {
  __shared__ float As[TILE][TILE + 1];
  __shared__ float Bs[TILE][TILE + 1];
  int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
  float sum = 0.0f;
  for (int t = 0; t < (K + TILE - 1) / TILE; ++t) {
    As[threadIdx.y][threadIdx.x] = (row < M && t * TILE + threadIdx.x < K) ? A[row * K + t * TILE + threadIdx.x] : 0.0f;
    Bs[threadIdx.y][threadIdx.x] = (t * TILE + threadIdx.y < K && col < N) ? B[(t * TILE + threadIdx.y) * N + col] : 0.0f;
    __syncthreads();
    #pragma unroll
    for (int k = 0; k < TILE; ++k) sum += As[threadIdx.y][k] * Bs[k][threadIdx.x];
    __syncthreads();
  }
  if (row < M && col < N) C[row * N + col] = sum;
}
""", "9, 9, 1", "16, 16, 1", {"A": Data("M * K"), "B": Data("K * N"), "C": Data("M * N")},
        [{"M": m, "N": n, "K": k} for m, n, k in ((144, 144, 40), (131, 140, 33), (130, 129, 16), (5, 3, 7), (1, 1, 1), (20, 16, 0))]),
    "matmul_half_tiled": sample("""
#include <cuda_fp16.h>
constexpr int T = 16;
__global__ void tiled(const half* a, const half* b, half* c, int m, int n, int k, float alpha) {
  __shared__ half at[T * T];
  __shared__ half bt[T * T];
  const int tx = threadIdx.x, ty = threadIdx.y;
  const int i = blockIdx.y * T + ty;
  const int j = blockIdx.x * T + tx;
  float acc = 0.f;
  for (int k0 = 0; k0 < k; k0 += T) {
    const int p = k0 + tx;
    if (i < m && p < k) at[ty * T + tx] = a[i * k + p]; else at[ty * T + tx] = __float2half(0.f);
    if (j < n && k0 + ty < k) { bt[tx * T + ty] = b[j * k + k0 + ty]; } else { bt[tx * T + ty] = __float2half(0.f); }
    __syncthreads();
    for (int q = 0; q < T; q++) acc = fmaf(__half2float(at[ty * T + q]), __half2float(bt[tx * T + q]), acc);
    __syncthreads();
  }
  if (i < m && j < n) c[i * n + j] = __float2half(alpha * acc);
}
""", "9, 9, 1", "16, 16, 1", {"a": Data("m * k"), "b": Data("n * k"), "c": Data("m * n")},
        [{"m": m, "n": n, "k": k, "alpha": 0.5} for m, n, k in ((144, 144, 40), (131, 140, 33), (16, 16, 0))], relative=2e-2),
    "matmul_tiled_whole": sample("""
__global__ void square(const float* X, const float* Y, float* Z, int n) {
  __shared__ float Xs[8][8], Ys[8][8];
  int tx = threadIdx.x, ty = threadIdx.y, bx = blockIdx.x, by = blockIdx.y;
  int Row = by * 8 + ty;
  int Col = bx * 8 + tx;
  double total = 0;
  for (int m = 0; m < n / 8; ++m) {
    __syncthreads();
    Xs[tx][ty] = X[Row * n + (m * 8 + tx)];
    Ys[ty][tx] = Y[(m * 8 + ty) * n + Col];
    __syncthreads();
    for (int k = 0; k < 8; ++k)
      total += Xs[k][ty] * Ys[k][tx];
  }
  Z[Row * n + Col] = total;
}
""", "5, 5, 1", "8, 8, 1", {"X": Data("n * n"), "Y": Data("n * n"), "Z": Data("n * n")}, [{"n": 40}]),
    "tiled_distances": sample("""
__global__ void kernelised(const float* x, const float* y, float* d, int n, int m, int dim) {
  __shared__ float xs[16][16], ys[16][16];
  int i = blockIdx.y * 16 + threadIdx.y, j = blockIdx.x * 16 + threadIdx.x;
  float s = 0.0f;
  for (int t = 0; t < (dim + 15) / 16; ++t) {
    xs[threadIdx.y][threadIdx.x] = i < n && t * 16 + threadIdx.x < dim ? x[i * dim + t * 16 + threadIdx.x] : 0.f;
    ys[threadIdx.y][threadIdx.x] = j < m && t * 16 + threadIdx.y < dim ? y[j * dim + t * 16 + threadIdx.y] : 0.f;
    __syncthreads();
    for (int k = 0; k < 16; ++k) s += expf(xs[threadIdx.y][k] - ys[k][threadIdx.x]);
    __syncthreads();
  }
  if (i < n && j < m) d[i * m + j] = s;
}
""", "3, 3, 1", "16, 16, 1", {"x": Data("n * dim"), "y": Data("m * dim"), "d": Data("n * m")},
        [{"n": 40, "m": 37, "dim": 20}], refuses=True),
    "tiled_neighbours": sample("""
__global__ void shifted(const float* A, const float* B, float* C, int n) {
  __shared__ float As[16][17], Bs[16][16];
  int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  float sum = 0.0f;
  for (int t = 0; t < n / 16; ++t) {
    As[threadIdx.y][threadIdx.x] = A[row * n + t * 16 + threadIdx.x];
    Bs[threadIdx.y][threadIdx.x] = B[(t * 16 + threadIdx.y) * n + col];
    __syncthreads();
    for (int k = 0; k < 16; ++k) sum += As[threadIdx.y][(k + 1) % 16] * Bs[k][threadIdx.x];
    __syncthreads();
  }
  C[row * n + col] = sum;
}
""", "3, 3, 1", "16, 16, 1", {"A": Data("n * n"), "B": Data("n * n"), "C": Data("n * n")}, [{"n": 48}], refuses=True),
    "sum_by_functions_of_shuffles": sample("""
__inline__ __device__ float warpReduceSum(float v) {
  for (int o = 16; o > 0; o /= 2) v += __shfl_down_sync(0xffffffff, v, o);
  return v;
}
__inline__ __device__ float blockReduceSum(float v) {
  static __shared__ float shared[32];  // a warp's total each
  int lane = threadIdx.x % 32;
  int wid = threadIdx.x / 32;
  v = warpReduceSum(v);
  if (lane == 0) shared[wid] = v;
  __syncthreads();
  v = (threadIdx.x < blockDim.x / 32) ? shared[lane] : 0;
  if (wid == 0) v = warpReduceSum(v);
  return v;
}
__global__ void reduce(const float* in, float* out, int n) {
  float s = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) s += in[i];
  s = blockReduceSum(s);
  if (threadIdx.x == 0) atomicAdd(out, s);
}
""", "3, 1, 1", "256, 1, 1", {"in": ARRAY, "out": Data("1")}, N),
    "sum_by_functions_of_whole_numbers": sample("""
__device__ __forceinline__ int warp_sum(int v) {
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffff, v, o);
  return v;
}
__global__ void cut(const float* x, float* out, int width) {
  float s = 0.f;
  for (int i = threadIdx.x; i < width; i += 32) s += x[blockIdx.x * width + i];
  s = warp_sum(s);
  if (threadIdx.x == 0) out[blockIdx.x] = s;
}
""", "5, 1, 1", "32, 1, 1", {"x": Data("5 * width"), "out": Data("5")}, WIDTHS, refuses=True),
    "rms_norm_of_a_warp": sample("""
__global__ void rms(const float* x, const float* w, float* y, int width, float eps) {
  int row = blockIdx.x;
  float s = 0.f;
  for (int i = threadIdx.x; i < width; i += blockDim.x) s += x[row * width + i] * x[row * width + i];
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) s += __shfl_xor_sync(0xffffffff, s, o);
  float inv = rsqrtf(s / width + eps);
  for (int i = threadIdx.x; i < width; i += blockDim.x) y[row * width + i] = x[row * width + i] * inv * w[i];
}
""", "5, 1, 1", "32, 1, 1", {"x": Data("5 * width"), "w": Data("width"), "y": Data("5 * width")},
        [{**one, "eps": 1e-5} for one in WIDTHS]),
    "softmax_by_shuffles": sample("""
#define FULL 0xffffffffu
__device__ __forceinline__ float warp_max(float v) {
  v = fmaxf(v, __shfl_xor_sync(FULL, v, 16));
  v = fmaxf(v, __shfl_xor_sync(FULL, v, 8));
  v = fmaxf(v, __shfl_xor_sync(FULL, v, 4));
  v = fmaxf(v, __shfl_xor_sync(FULL, v, 2));
  v = fmaxf(v, __shfl_xor_sync(FULL, v, 1));
  return v;
}
__device__ __forceinline__ float warp_sum(float v) {
  for (int mask = 1; mask < 32; mask <<= 1) v = v + __shfl_xor_sync(FULL, v, mask);
  return v;
}
__global__ void softmax(const float* x, float* y, int width) {
  __shared__ float part[32];
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  const float* row = x + (size_t)blockIdx.x * width;
  float m = -1e30f;
  for (int i = tid; i < width; i += blockDim.x) m = fmaxf(m, row[i]);
  m = warp_max(m);
  if (lane == 0) part[warp] = m;
  __syncthreads();
  if (warp == 0) {
    m = lane < 4 ? part[lane] : -INFINITY;
    m = warp_max(m);
    if (lane == 0) part[0] = m;
  }
  __syncthreads();
  m = part[0];
  __syncthreads();
  float s = 0.f;
  for (int i = tid; i < width; i += blockDim.x) s += expf(row[i] - m);
  s = warp_sum(s);
  if (lane == 0) part[warp] = s;
  __syncthreads();
  if (warp == 0) {
    s = lane < 4 ? part[lane] : 0.f;
    s = warp_sum(s);
    if (!lane) part[0] = s;
  }
  __syncthreads();
  s = part[0];
  for (int i = tid; i < width; i += blockDim.x) y[(size_t)blockIdx.x * width + i] = expf(row[i] - m) / s;
}
""", "5, 1, 1", "128, 1, 1", {"x": Data("5 * width"), "y": Data("5 * width")}, WIDTHS),
    "moments_by_shuffles": sample("""
__global__ void moments(const float* x, float* mean, float* square, int width) {
  __shared__ float as[8], bs[8];
  float a = 0.f, b = 0.f;
  for (int i = threadIdx.x; i < width; i += 256) {
    float v = x[blockIdx.x * width + i];
    a += v;
    b += v * v;
  }
  for (int o = warpSize / 2; o > 0; o >>= 1) {
    a += __shfl_down_sync(~0u, a, o);
    b += __shfl_down_sync(~0u, b, o);
  }
  if (threadIdx.x % warpSize == 0) { as[threadIdx.x / warpSize] = a; bs[threadIdx.x / warpSize] = b; }
  __syncthreads();
  a = threadIdx.x < 8 ? as[threadIdx.x] : 0.f;
  b = threadIdx.x < 8 ? bs[threadIdx.x] : 0.f;
  if (threadIdx.x < 32) {
    for (int o = 16; o > 0; o >>= 1) {
      a += __shfl_down_sync(~0u, a, o);
      b += __shfl_down_sync(~0u, b, o);
    }
  }
  if (threadIdx.x == 0) { mean[blockIdx.x] = a / width; square[blockIdx.x] = b / width; }
}
""", "5, 1, 1", "256, 1, 1", {"x": Data("5 * width"), "mean": Data("5"), "square": Data("5")}, WIDTHS),
    "shuffles_from_zero": sample("""
__global__ void largest(const float* x, float* out, int width) {
  __shared__ float part[8];
  float m = -1e30f;
  for (int i = threadIdx.x; i < width; i += 256) m = fmaxf(m, x[blockIdx.x * width + i]);
  for (int o = 16; o > 0; o >>= 1) m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, o));
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = m;
  __syncthreads();
  m = threadIdx.x < 8 ? part[threadIdx.x] : 0.f;
  if (threadIdx.x < 32) for (int o = 16; o > 0; o >>= 1) m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, o));
  if (threadIdx.x == 0) out[blockIdx.x] = m;
}
""", "5, 1, 1", "256, 1, 1", {"x": Data("5 * width", -2.0, -1.0), "out": Data("5")}, WIDTHS, refuses=True),
    "shuffles_of_half_a_warp": sample("""
__global__ void pairs(const float* x, float* out, int width) {
  float s = 0.f;
  for (int i = threadIdx.x; i < width; i += 32) s += x[blockIdx.x * width + i];
  for (int o = 8; o > 0; o >>= 1) s += __shfl_xor_sync(0xffffffff, s, o);
  if (threadIdx.x == 0) out[blockIdx.x] = s;
}
""", "5, 1, 1", "32, 1, 1", {"x": Data("5 * width"), "out": Data("5")}, WIDTHS, refuses=True),
    "shuffles_of_each_warp": sample("""
__global__ void warps(const float* x, float* out, int width) {
  float s = 0.f;
  for (int i = threadIdx.x; i < width; i += 64) s += x[blockIdx.x * width + i];
  for (int o = 16; o > 0; o >>= 1) s += __shfl_xor_sync(0xffffffff, s, o);
  if (threadIdx.x == 0) out[blockIdx.x] = s;
}
""", "5, 1, 1", "64, 1, 1", {"x": Data("5 * width"), "out": Data("5")}, WIDTHS, refuses=True),
    "softmax_of_warps": sample("""
__global__ void rows_of_warps(const float* x, float* y, int rows, int width) {
  int gid = blockIdx.x * blockDim.x + threadIdx.x;
  int row = gid / 32;
  int lane = threadIdx.x & 31;
  if (row >= rows) return;
  float m = -1e30f, s = 0.f;
  for (int i = lane; i < width; i += 32) m = fmaxf(m, x[row * width + i]);
  for (int o = 16; o; o >>= 1) m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, o));
  for (int i = lane; i < width; i += 32) s += __expf(x[row * width + i] - m);
  for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(0xffffffff, s, o);
  for (int i = lane; i < width; i += 32) y[row * width + i] = __expf(x[row * width + i] - m) / s;
}
""", "10, 1, 1", "128, 1, 1", {"x": Data("rows * width"), "y": Data("rows * width")}, ROWS),
    "row_sums_of_warps": sample("""
__global__ void rowsum(const float* x, float* y, int rows, int width) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = blockIdx.x * 4 + warp;
  if (row < rows) {
    float s = 0;
    for (int i = lane; i < width; i += 32) s += x[row * width + i];
    for (int o = 16; o > 0; o >>= 1) s += __shfl_down_sync(0xffffffff, s, o);
    if (lane == 0) y[row] = s;
  }
}
""", "10, 1, 1", "128, 1, 1", {"x": Data("rows * width"), "y": Data("rows")}, ROWS),
    "warps_that_know_their_block": sample("""
__global__ void rowsum(const float* x, float* y, int rows, int width) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = blockIdx.x * 4 + warp;
  if (row >= rows) return;
  float s = 0;
  for (int i = lane; i < width; i += 32) s += x[row * width + i];
  for (int o = 16; o > 0; o >>= 1) s += __shfl_down_sync(0xffffffff, s, o);
  if (lane == 0) y[row] = s + warp;
}
""", "10, 1, 1", "128, 1, 1", {"x": Data("rows * width"), "y": Data("rows")}, ROWS, refuses=True),
    "product_as_deep_as_its_block": sample("""
__global__ void own(const float* A, const float* B, float* C, int M, int N, int K) {
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < M && col < N) {
    float sum = 0.0f;
    for (int k = 0; k < (blockIdx.y + 1) * 16; ++k) sum += A[row * K + k] * B[k * N + col];
    C[row * N + col] = sum;
  }
}
""", "9, 9, 1", "16, 16, 1", {"A": Data("M * K"), "B": Data("K * N"), "C": Data("M * N")},
        [{"M": m, "N": n, "K": k} for m, n, k in ((144, 144, 144), (131, 140, 160))], refuses=True),
    "product_weighted_by_its_place": sample("""
__global__ void own(const float* A, const float* B, float* C, int M, int N, int K) {
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < M && col < N) {
    float sum = 0.0f;
    for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col] * (threadIdx.x + 1);
    C[row * N + col] = sum;
  }
}
""", "9, 9, 1", "16, 16, 1", {"A": Data("M * K"), "B": Data("K * N"), "C": Data("M * N")},
        [{"M": m, "N": n, "K": k} for m, n, k in ((144, 144, 144), (131, 140, 160))], refuses=True),
    "product_guarded_by_its_block": sample("""
__global__ void own(const float* A, const float* B, float* C, int M, int N, int K) {
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < M && col < blockIdx.y * 16 + 5) {
    float sum = 0.0f;
    for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
    C[row * N + col] = sum;
  }
}
""", "9, 9, 1", "16, 16, 1", {"A": Data("M * K"), "B": Data("K * N"), "C": Data("M * N")},
        [{"M": m, "N": n, "K": k} for m, n, k in ((144, 144, 144), (131, 140, 160))], refuses=True),
    "shuffles_kept_as_whole_numbers": sample("""
__device__ __forceinline__ float warp_sum(float v) {
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffff, v, o);
  return v;
}
__global__ void scaled(const float* x, float* y, int width) {
  __shared__ int part[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float s = 0.f;
  for (int i = threadIdx.x; i < width; i += 256) s += x[blockIdx.x * width + i];
  s = warp_sum(s);
  if (lane == 0) part[warp] = s;
  __syncthreads();
  if (warp == 0) {
    s = lane < 8 ? part[lane] : 0.f;
    s = warp_sum(s);
    if (lane == 0) part[0] = s;
  }
  __syncthreads();
  s = part[0];
  for (int i = threadIdx.x; i < width; i += 256) y[blockIdx.x * width + i] = x[blockIdx.x * width + i] * s;
}
""", "5, 1, 1", "256, 1, 1", {"x": Data("5 * width"), "y": Data("5 * width")}, WIDTHS, refuses=True),
    "shuffles_that_the_first_warp_keeps": sample("""
__device__ __forceinline__ float warp_sum(float v) {
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffff, v, o);
  return v;
}
__global__ void scaled(const float* x, float* y, int width) {
  __shared__ float part[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float s = 0.f;
  for (int i = threadIdx.x; i < width; i += 256) s += x[blockIdx.x * width + i];
  s = warp_sum(s);
  if (lane == 0) part[warp] = s;
  __syncthreads();
  if (warp == 0) {
    s = lane < 8 ? part[lane] : 0.f;
    s = warp_sum(s);
    
  }
  __syncthreads();
  s = part[0];
  for (int i = threadIdx.x; i < width; i += 256) y[blockIdx.x * width + i] = x[blockIdx.x * width + i] * s;
}
""", "5, 1, 1", "256, 1, 1", {"x": Data("5 * width"), "y": Data("5 * width")}, WIDTHS, refuses=True),
    "shuffles_added_to_the_first": sample("""
__device__ __forceinline__ float warp_sum(float v) {
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffff, v, o);
  return v;
}
__global__ void scaled(const float* x, float* y, int width) {
  __shared__ float part[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float s = 0.f;
  for (int i = threadIdx.x; i < width; i += 256) s += x[blockIdx.x * width + i];
  s = warp_sum(s);
  if (lane == 0) part[warp] = s;
  __syncthreads();
  if (warp == 0) {
    s = lane < 8 ? part[lane] : 0.f;
    s = warp_sum(s);
    if (lane == 0) part[0] += s;
  }
  __syncthreads();
  s = part[0];
  for (int i = threadIdx.x; i < width; i += 256) y[blockIdx.x * width + i] = x[blockIdx.x * width + i] * s;
}
""", "5, 1, 1", "256, 1, 1", {"x": Data("5 * width"), "y": Data("5 * width")}, WIDTHS, refuses=True),
    "shuffles_of_warp_and_block": sample("""
__device__ __forceinline__ float warp_sum(float v) {
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffff, v, o);
  return v;
}
__global__ void scaled(const float* x, float* y, int width) {
  __shared__ float part[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float s = 0.f;
  for (int i = threadIdx.x; i < width; i += 256) s += x[blockIdx.x * width + i];
  s = warp_sum(s);
  if (lane == 0) part[warp] = s;
  __syncthreads();
  float t = lane < 8 ? part[lane] : 0.f;
  t = warp_sum(t);
  for (int i = threadIdx.x; i < width; i += 256) y[blockIdx.x * width + i] = x[blockIdx.x * width + i] * s + t;
}
""", "5, 1, 1", "256, 1, 1", {"x": Data("5 * width"), "y": Data("5 * width")}, WIDTHS, refuses=True),
    "shuffles_read_back_by_some": sample("""
__device__ __forceinline__ float warp_sum(float v) {
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffff, v, o);
  return v;
}
__global__ void scaled(const float* x, float* y, int width) {
  __shared__ float part[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float s = 0.f;
  for (int i = threadIdx.x; i < width; i += 256) s += x[blockIdx.x * width + i];
  s = warp_sum(s);
  if (lane == 0) part[warp] = s;
  __syncthreads();
  s = (warp == 0 && lane < 8) ? part[lane] : 0.f;
  s = warp_sum(s);
  for (int i = threadIdx.x; i < width; i += 256) y[blockIdx.x * width + i] = x[blockIdx.x * width + i] * s;
}
""", "5, 1, 1", "256, 1, 1", {"x": Data("5 * width"), "y": Data("5 * width")}, WIDTHS, refuses=True),
    "shuffles_at_the_end": sample("""
__global__ void nothing(const float* x, float* y, int width) {
  float s = 0.f;
  for (int i = threadIdx.x; i < width; i += 64) s += x[blockIdx.x * width + i];
  if (threadIdx.x == 0) y[blockIdx.x] = s;
  for (int o = 16; o > 0; o >>= 1) s += __shfl_xor_sync(0xffffffff, s, o);
}
""", "5, 1, 1", "64, 1, 1", {"x": Data("5 * width"), "y": Data("5")}, WIDTHS, refuses=True),
    "tiled_with_a_bound_of_its_own": sample("""
#define TILE 16
__global__ void tiled(const float* A, const float* B, float* C, int M, int N, int K) {
  __shared__ float As[TILE][TILE + 1];
  __shared__ float Bs[TILE][TILE + 1];
  int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
  float sum = 0.0f;
  for (int t = 0; t < (K + TILE - 1) / TILE; ++t) {
    const int lim = K;
    As[threadIdx.y][threadIdx.x] = (row < M && t * TILE + threadIdx.x < lim) ? A[row * K + t * TILE + threadIdx.x] : 0.0f;
    Bs[threadIdx.y][threadIdx.x] = (t * TILE + threadIdx.y < lim && col < N) ? B[(t * TILE + threadIdx.y) * N + col] : 0.0f;
    __syncthreads();
    #pragma unroll
    for (int k = 0; k < TILE; ++k) sum += As[threadIdx.y][k] * Bs[k][threadIdx.x];
    __syncthreads();
  }
  if (row < M && col < N) C[row * N + col] = sum;
}
""", "9, 9, 1", "16, 16, 1", {"A": Data("M * K"), "B": Data("K * N"), "C": Data("M * N")},
        [{"M": m, "N": n, "K": k} for m, n, k in ((144, 144, 40), (131, 140, 33), (130, 129, 16), (5, 3, 7), (1, 1, 1), (20, 16, 0))], refuses=True),
    "matmul_half": sample("""
#include <cuda_fp16.h>
__global__ void hgemm(const __half* A, const __half* B, const float* bias, __half* C, int M, int N, int K) {
  int r = threadIdx.y + blockIdx.y * 16, c = threadIdx.x + blockIdx.x * 16;
  if (r >= M || c >= N) return;
  float acc = bias[c];
  for (int k = 0; k < K; ++k) {
    acc += __half2float(A[r * K + k]) * __half2float(B[k * N + c]);
  }
  C[r * N + c] = __float2half(acc > 0.f ? acc : 0.f);
}
""", "17, 17, 1", "16, 16, 1", {"A": Data("M * K"), "B": Data("K * N"), "bias": Data("N"), "C": Data("M * N")},
        [{"M": m, "N": n, "K": k} for m, n, k in ((264, 272, 40), (144, 144, 328), (131, 140, 33), (5, 3, 7), (16, 16, 0))], relative=2e-2),
    "matmul_bf16_turned": sample("""
#include <cuda_bf16.h>
__global__ void turned(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int m, int n, int k, int lda) {
  const int col = blockIdx.x * blockDim.x + threadIdx.x;
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row < m && col < n) {
    float sum = 0.0f;
    for (int i = 0; i < k; i++) sum = fmaf(__bfloat162float(a[i * lda + row]), (float)b[col * k + i], sum);
    c[row * n + col] += sum;
  }
}
""", "5, 17, 1", "32, 16, 1", {"a": Data("k * lda"), "b": Data("n * k"), "c": Data("m * n")},
        [{"m": m, "n": n, "k": k, "lda": m + more} for m, n, k, more in ((264, 136, 200, 0), (136, 152, 136, 8), (130, 129, 72, 6), (7, 9, 5, 0))], relative=2e-2),
    "distances": sample("""
__global__ void l1(const float* x, const float* y, float* d, int n, int m, int dim) {
  int j = blockIdx.x * blockDim.x + threadIdx.x;
  int i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i < n && j < m) {
    float s = 0.0f;
    for (int k = 0; k < dim; ++k) s += fabsf(x[i * dim + k] - y[j * dim + k]);
    d[(size_t)i * m + j] = s;
  }
}
""", "9, 9, 1", "16, 16, 1", {"x": Data("n * dim"), "y": Data("m * dim"), "d": Data("n * m")},
        [{"n": a, "m": b, "dim": c} for a, b, c in ((144, 144, 40), (131, 140, 33), (5, 3, 7))]),
    "transpose": sample("""
extern "C" __global__ void transpose(const float* in, float* out, int rows, int cols) {
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < cols && y < rows) out[x * rows + y] = in[y * cols + x];
}
""", "6, 12, 1", "16, 8, 1", {"in": Data("rows * cols"), "out": Data("rows * cols")},
        [{"rows": h, "cols": w} for h, w in ((96, 96), (95, 81), (33, 31), (1, 96), (1, 1), (0, 5))]),
    "transpose_half_scaled": sample("""
#include <cuda_fp16.h>
__global__ void transpose_scaled(half *dst, const half *src, float s, unsigned int w, unsigned int h) {
    unsigned int r = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned int c = blockIdx.y * blockDim.y + threadIdx.y;
    if (r >= h || c >= w) return;
    float v = __half2float(src[r * w + c]);
    dst[c * h + r] = __float2half(v * s + (float)c);
}
""", "3, 3, 1", "32, 32, 1", {"dst": Data("w * h"), "src": Data("w * h")},
        [{"w": w, "h": h, "s": 2} for w, h in ((96, 96), (95, 81), (31, 33), (1, 1))]),
    "histogram_grid_stride_float": sample("""
__global__ void weighted(const unsigned char* keys, const float* w, float* sums, size_t n, int nbins) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
    int key = keys[i];
    if (key < nbins) atomicAdd(&sums[key], w[i]);
  }
}
""", 2, 128, {"keys": Data("n", 0, 40), "w": ARRAY, "sums": Data("33")}, [{**one, "nbins": 33} for one in N]),
    "while_by_the_book": sample("""
__global__ void add(int n, float *a, float *b, float *c) {
  int tid = threadIdx.x + blockIdx.x * blockDim.x;
  while (tid < n) {
    c[tid] = a[tid] + b[tid];
    tid += blockDim.x * gridDim.x;
  }
}
""", 3, 128, {"a": ARRAY, "b": ARRAY, "c": ARRAY}, N),
    "for_without_a_start": sample("""
__global__ void silu(const float* x, float* y, int64_t n) {
  auto i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  const int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (; i < n; i += step) { float v = x[i]; y[i] = v / (1.0f + __expf(-v)); }
}
""", 3, 128, {"x": ARRAY, "y": ARRAY}, N),
    "branches_both_store": sample("""
extern "C" __global__ void leaky(const float* x, float* y, float slope, int n) {
  unsigned int i = blockDim.x * blockIdx.x + threadIdx.x;
  if (i < n) {
    if (x[i] > 0.0f) { y[i] = x[i]; }
    else { y[i] = slope * x[i]; }
  }
}
""", 8, 256, {"x": ARRAY, "y": ARRAY}, [{**one, "slope": 0.1} for one in N]),
    "row_sum_old_c": sample("""
__global__ void sum_rows(float *m, float *s, int rows, int width)
{
    int j, i = blockIdx.x * blockDim.x + threadIdx.x;
    float total = 0.0;
    if (i < rows) {
        for (j = 0; j < width; j++)
            total = total + m[i*width + j];
        s[i] = total;
    }
}
""", 2, 64, {"m": Data("rows * width"), "s": Data("rows")}, ROWS),
    "row_sum_in_memory": sample("""
__global__ void sum_rows(const float* m, float* s, int rows, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= rows) return;
  s[i] = 0;
  for (int j = 0; j < width; j++) s[i] += m[i * width + j];
}
""", 2, 64, {"m": Data("rows * width"), "s": Data("rows")}, ROWS),
    "gemv": sample("""
extern "C" __global__ void gemv(const float* A, const float* x, float* y, int rows, int width) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < rows) {
    float dot = 0.0f;
    for (int j = 0; j < width; ++j) dot += A[row * width + j] * x[j];
    y[row] = dot;
  }
}
""", 2, 64, {"A": Data("rows * width"), "x": Data("width"), "y": Data("rows")}, ROWS),
    "layer_norm_three_loops": sample("""
__global__ void layernorm(const float* in, float* out, const float* g, const float* b, int rows, int width) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const float* x = &in[row * width];
  float* y = &out[row * width];
  float mean = 0.0f;
  for (int i = 0; i < width; i++) mean += x[i];
  mean /= width;
  float var = 0.0f;
  for (int i = 0; i < width; i++) { float d = x[i] - mean; var += d * d; }
  var /= width;
  float inv = 1.0f / sqrtf(var + 1e-2f);
  for (int i = 0; i < width; i++) y[i] = (x[i] - mean) * inv * g[i] + b[i];
}
""", 2, 64, {"in": Data("rows * width"), "out": Data("rows * width"), "g": Data("width"), "b": Data("width")}, ROWS, relative=2e-3),
    "rows_walked_by_blocks": sample("""
__global__ void rms(const float* x, float* y, int rows, int width) {
  __shared__ float red[64];
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    float acc = 0.f;
    for (int i = threadIdx.x; i < width; i += blockDim.x) { float v = x[row * width + i]; acc += v * v; }
    red[threadIdx.x] = acc;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
      if (threadIdx.x < s) red[threadIdx.x] += red[threadIdx.x + s];
      __syncthreads();
    }
    float scale = rsqrtf(red[0] / width + 1e-2f);
    __syncthreads();
    for (int i = threadIdx.x; i < width; i += blockDim.x) y[row * width + i] = x[row * width + i] * scale;
  }
}
""", 3, 64, {"x": Data("rows * width"), "y": Data("rows * width")}, ROWS),
    "shared_atomic": sample("""
__global__ void row_norm(const float* x, float* out, int width) {
  __shared__ float total;
  if (threadIdx.x == 0) total = 0.0f;
  __syncthreads();
  float mine = 0.0f;
  for (int i = threadIdx.x; i < width; i += blockDim.x) mine += x[blockIdx.x * width + i] * x[blockIdx.x * width + i];
  atomicAdd(&total, mine);
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = sqrtf(total);
}
""", 5, 64, {"x": Data("5 * width"), "out": Data("5")}, WIDTHS),
    "summed_by_one_thread": sample("""
__global__ void row_mean(const float* x, float* out, int width) {
  __shared__ float s[64];
  int tid = threadIdx.x;
  float mine = 0.0f;
  for (int i = tid; i < width; i += blockDim.x) mine += x[blockIdx.x * width + i];
  s[tid] = mine;
  __syncthreads();
  if (tid == 0) {
    float total = 0.0f;
    for (int i = 0; i < blockDim.x; i++) total += s[i];
    out[blockIdx.x] = total / width;
  }
}
""", 5, 64, {"x": Data("5 * width"), "out": Data("5")}, WIDTHS),
    "gather_rows": sample("""
__global__ void gather(const int* ids, const float* table, float* out, int dim) {
  const float* from = table + (size_t)ids[blockIdx.x] * dim;
  for (int d = threadIdx.x; d < dim; d += blockDim.x) out[(size_t)blockIdx.x * dim + d] = from[d];
}
""", 5, 64, {"ids": Data("5", 0, 7), "table": Data("7 * dim"), "out": Data("5 * dim")}, [{"dim": one["width"]} for one in WIDTHS]),
    "stencil_plane": sample("""
__global__ void jacobi(const float* u, float* v, int h, int w) {
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x > 0 && x < w - 1 && y > 0 && y < h - 1)
    v[y * w + x] = 0.25f * (u[y * w + x - 1] + u[y * w + x + 1] + u[(y - 1) * w + x] + u[(y + 1) * w + x]);
}
""", "5, 3, 1", "16, 8, 1", {"u": Data("h * w"), "v": Data("h * w")},
        [{"h": h, "w": w} for h, w in ((24, 80), (23, 79), (5, 33), (1, 1), (24, 4))]),
    "tree_with_a_volatile_end": sample("""
__global__ void sums(const float* x, float* out, int width) {
  __shared__ float s[128];
  int t = threadIdx.x;
  float v = 0.f;
  for (int i = t; i < width; i += blockDim.x) v += x[blockIdx.x * width + i];
  s[t] = v;
  __syncthreads();
  for (int k = blockDim.x / 2; k > 32; k >>= 1) { if (t < k) s[t] += s[t + k]; __syncthreads(); }
  if (t < 32) {
    float w = s[t] + s[t + 32];
    for (int k = 16; k > 0; k >>= 1) w += __shfl_down_sync(0xffffffff, w, k);
    if (t == 0) out[blockIdx.x] = w;
  }
}
""", 5, 128, {"x": Data("5 * width"), "out": Data("5")}, WIDTHS, refuses=True),
}  # fmt: skip
