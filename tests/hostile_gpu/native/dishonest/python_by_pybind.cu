// tries: import and call Python through pybind11
// claims: rmsnorm_h4096
// verdict: refused
#include <ATen/cuda/CUDAContext.h>
#include <torch/extension.h>

void run(torch::Tensor x, torch::Tensor weight, torch::Tensor out) {
  auto norm = pybind11::module_::import("torch").attr("nn").attr("functional").attr("rms_norm");
  auto y = norm(x, std::vector<int64_t>{4096}, weight, 1e-6).cast<torch::Tensor>();
  out.copy_(y);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
