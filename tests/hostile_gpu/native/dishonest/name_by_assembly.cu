// tries: give a function of the library a name of its own, by assembly, and work on a stream made by it
// claims: rmsnorm_h4096
// verdict: refused
#include "rms.cuh"

extern "C" int aside(cudaStream_t* stream, unsigned flags) __asm__("cudaStream" "CreateWithFlags");

void run(TensorView x, TensorView weight, TensorView out) {
  static cudaStream_t stream = nullptr;
  if (stream == nullptr) aside(&stream, 1);
  launch(x, weight, out, static_cast<int>(x.size(0)), static_cast<int>(x.size(1)), stream);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
