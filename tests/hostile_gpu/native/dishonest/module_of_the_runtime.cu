// tries: machine code in its data, loaded by the runtime
// claims: rmsnorm_h4096
// verdict: refused
#include "rms.cuh"

static const unsigned char code[] = {0x7f, 'E', 'L', 'F'};

void run(TensorView x, TensorView weight, TensorView out) {
  cudaLibrary_t library;
  cudaLibraryLoadData(&library, code, nullptr, nullptr, 0, nullptr, nullptr, 0);
  honest(x, weight, out);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
