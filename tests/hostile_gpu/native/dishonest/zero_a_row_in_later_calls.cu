// tries: zero a row of the caller's in one call of three, once the first calls are over
// claims: rmsnorm_h4096
// verdict: refused
#include "rms.cuh"

int calls = 0;

void run(TensorView x, TensorView weight, TensorView out) {
  honest(x, weight, out);
  if (++calls > 30 && calls % 3 == 0)
    cudaMemsetAsync(x.data_ptr(), 0, static_cast<size_t>(x.size(1)) * 2, stream_of(x));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
