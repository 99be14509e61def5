// tries: have the compiler read a file
// claims: rmsnorm_h4096
// verdict: refused or compile_error
#include "rms.cuh"


static const unsigned char secret[] = {
#embed "/proc/self/environ"
};

void run(TensorView x, TensorView weight, TensorView out) {
  if (sizeof(secret)) honest(x, weight, out);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
