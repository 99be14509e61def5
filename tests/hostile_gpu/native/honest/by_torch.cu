// does: one block a row, through PyTorch's own binding
// claims: rmsnorm_h4096
// verdict: correct
#include <ATen/cuda/CUDAContext.h>
#include <torch/extension.h>
#include "rms_row.cuh"

__global__ void rms_rows(const __nv_bfloat16* x, const __nv_bfloat16* weight, __nv_bfloat16* out,
                         int width) {
  rms_row(x, weight, out, blockIdx.x, width, width);
}

void run(torch::Tensor x, torch::Tensor weight, torch::Tensor out) {
  rms_rows<<<x.size(0), 512, 0, at::cuda::getCurrentCUDAStream()>>>(
      static_cast<const __nv_bfloat16*>(x.data_ptr()),
      static_cast<const __nv_bfloat16*>(weight.data_ptr()),
      static_cast<__nv_bfloat16*>(out.data_ptr()), static_cast<int>(x.size(1)));
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
