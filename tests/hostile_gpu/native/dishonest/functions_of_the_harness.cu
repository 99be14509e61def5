// tries: replace a function that Python registered with the binding
// claims: rmsnorm_h4096
// verdict: refused
#include "rms.cuh"


void run(TensorView x, TensorView weight, TensorView out) {
  auto nothing = tvm::ffi::Function::FromTyped([](int given) { return given; });
  tvm::ffi::Function::SetGlobal("testing.echo", nothing, true);
  honest(x, weight, out);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
