// tries: work on the first calls only
// claims: rmsnorm_h4096
// verdict: refused or wrong_numbers
#include "rms.cuh"

static int calls = 0;

void run(TensorView x, TensorView weight, TensorView out) {
  if (++calls <= 20) honest(x, weight, out);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
