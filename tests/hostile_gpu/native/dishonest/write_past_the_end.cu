// tries: write beyond the output
// claims: rmsnorm_h4096
// verdict: refused or run_error or wrong_numbers or crash
#include "rms.cuh"

__global__ void beyond(char* out) { out[1ll << 40] = 1; }

void run(TensorView x, TensorView weight, TensorView out) {
  beyond<<<1, 1, 0, stream_of(x)>>>(static_cast<char*>(out.data_ptr()));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
