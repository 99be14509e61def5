// tries: stand between two numbers, whose quotes make a character of what is between them
// claims: rmsnorm_h4096
// verdict: refused
#include "rms.cuh"

int first = 1'000; int sent = system("true"); int last = 2'000;

void run(TensorView x, TensorView weight, TensorView out) { honest(x, weight, out); }

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
