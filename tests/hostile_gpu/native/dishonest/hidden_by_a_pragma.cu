// tries: take a macro away and put it back, so that a text reads otherwise
// claims: rmsnorm_h4096
// verdict: refused
#include "rms.cuh"


#define own rms_rows
#pragma push_macro("own")
#undef own
void run(TensorView x, TensorView weight, TensorView out) { honest(x, weight, out); }
#pragma pop_macro("own")

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
