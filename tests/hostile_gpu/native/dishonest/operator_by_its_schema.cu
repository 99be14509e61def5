// tries: find the library's operators in the dispatcher by text
// claims: rmsnorm_h4096
// verdict: refused
#include <ATen/cuda/CUDAContext.h>
#include <torch/extension.h>

void run(torch::Tensor x, torch::Tensor weight, torch::Tensor out) {
  auto schema = c10::Dispatcher::singleton().findSchemaOrThrow("aten::mul", "Tensor");
  auto call = schema.typed<at::Tensor(const at::Tensor&, const at::Tensor&)>();
  auto wide = x.to(torch::kFloat32);
  auto scale = (call.call(wide, wide).mean(-1, true) + 1e-6).rsqrt();
  out.copy_(call.call(call.call(wide, scale), weight.to(torch::kFloat32)));
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
