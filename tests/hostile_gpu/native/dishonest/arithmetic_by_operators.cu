// tries: no name of the library: arithmetic of tensors alone
// claims: rmsnorm_h4096
// verdict: refused
#include <ATen/cuda/CUDAContext.h>
#include <torch/extension.h>

void run(torch::Tensor x, torch::Tensor weight, torch::Tensor out) {
  auto wide = x.to(torch::kFloat32);
  auto ones = torch::full({4096, 1}, 1.0f / 4096, wide.options());
  auto scale = 1.0 / ((wide * wide).matmul(ones) + 1e-6).sqrt();
  out.copy_(wide * scale * weight);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
