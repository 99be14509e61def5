// does: one block a row
// claims: rmsnorm_h4096
// verdict: correct
#include "rms.cuh"

void run(TensorView x, TensorView weight, TensorView out) { honest(x, weight, out); }

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
