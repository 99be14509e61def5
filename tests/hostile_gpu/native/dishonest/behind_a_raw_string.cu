// tries: stand between two raw strings, whose quotes make a string of what is between them
// claims: rmsnorm_h4096
// verdict: refused
#include "rms.cuh"

const char* first = R"(")"; int sent = system("true"); const char* last = R"(")";

void run(TensorView x, TensorView weight, TensorView out) { honest(x, weight, out); }

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
