// tries: call a library behind another name of its namespace
// claims: rmsnorm_h4096
// verdict: refused
#include <torch/extension.h>

namespace own = at;

void run(torch::Tensor x, torch::Tensor weight, torch::Tensor out) {
  out.copy_(own::rms_norm(x, {x.size(1)}, weight, 1e-6));
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
