"""Spec files of the tests: small kernels of both languages with their contracts."""

VECTOR_ADD = """extern "C" __global__ void vector_add(const float* x, const float* y, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] + y[i];
}
"""
ROW_SUMS = """extern "C" __global__ void row_sums(const float* x, float* out, int width) {
  __shared__ float partial[256];
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
"""
SOFTMAX = """import triton
import triton.language as tl


@triton.jit
def softmax(x_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * width + columns, mask=columns < width, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * width + columns, e / tl.sum(e, axis=0), mask=columns < width)
"""
TRITON_ADD = """import triton
import triton.language as tl


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    x = tl.load(x_ptr + i, mask=inside)
    tl.store(out_ptr + i, x + tl.load(y_ptr + i, mask=inside), mask=inside)
"""


def tensor(name, shape, role="input", dtype="float32", **init):
    contents = {"init": {"kind": "randn", **init}} if role != "output" else {}
    spec = {"shape": list(shape), "dtype": dtype, **contents}
    return {"name": name, "type": "tensor", "role": role, "tensor_spec": spec}


def number(name, value):
    return {"name": name, "type": "int", "value": value}


def spec(name, kind, source, args, grid, block=1, metadata=None, **more):
    launch = {"grid": {"x": grid}, "block": {"x": block}}
    kernel = {"kernel_type": kind, "source_code": source, "metadata": metadata or {},
              "io": {"args": args, "launch": launch}}  # fmt: skip
    return {"name": name, "kernel": kernel, "device_profile": {"arch": "sm_90"}, **more}


def vector_add(n=1 << 24):
    args = [tensor("x", [n], seed=1), tensor("y", [n], seed=2), tensor("out", [n], "output"),
            number("n", n)]  # fmt: skip
    reference = {"source": "def run(x, y):\n    return x + y\n"}
    return spec("vector_add", "cuda", VECTOR_ADD, args, -(-n // 256), 256, reference=reference)


def row_sums(rows=8192, width=4096):
    args = [tensor("x", [rows, width], seed=1), tensor("out", [rows], "output"),
            number("width", width)]  # fmt: skip
    reference = {"source": "def sums(x):\n    return x.sum(dim=1)\n", "function": "sums"}
    return spec("row_sums", "cuda", ROW_SUMS, args, rows, 256, reference=reference)


def softmax(rows=8192, width=4096):
    args = [tensor("x_ptr", [rows, width], seed=1), tensor("out_ptr", [rows, width], "output"),
            number("width", width), number("BLOCK", width)]  # fmt: skip
    return spec("softmax", "triton", SOFTMAX, args, rows, metadata={"num_warps": 4})


def triton_add(n=1 << 24):
    args = [tensor("x_ptr", [n]), tensor("y_ptr", [n], seed=3), tensor("out_ptr", [n], "output"),
            number("n", n), number("BLOCK", 1024)]  # fmt: skip
    return spec("triton_add", "triton", TRITON_ADD, args, -(-n // 1024))
