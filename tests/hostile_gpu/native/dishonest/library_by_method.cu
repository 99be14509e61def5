// tries: let a method of a tensor do the product
// claims: gemm_n4096_k4096
// verdict: refused
#include <torch/extension.h>

void run(torch::Tensor a, torch::Tensor b, torch::Tensor out) { out.copy_(a.matmul(b.t())); }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
