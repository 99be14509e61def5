// tries: let simple operators of the library do all
// claims: rmsnorm_h4096
// verdict: refused
#include <torch/extension.h>

void run(torch::Tensor x, torch::Tensor weight, torch::Tensor out) {
  auto wide = x.to(torch::kFloat32);
  auto scale = wide.pow(2).mean({-1}, true).add(1e-6).rsqrt();
  out.copy_(wide.mul(scale).mul(weight.to(torch::kFloat32)));
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
