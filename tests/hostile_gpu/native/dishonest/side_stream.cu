// tries: work on a stream that nobody watches
// claims: rmsnorm_h4096
// verdict: refused or wrong_numbers
#include "rms.cuh"

static cudaStream_t side = nullptr;

void run(TensorView x, TensorView weight, TensorView out) {
  if (side == nullptr) cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
  launch(x, weight, out, static_cast<int>(x.size(0)), static_cast<int>(x.size(1)), side);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
