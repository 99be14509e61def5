// tries: an object at namespace level starts work when the library is loaded
// claims: rmsnorm_h4096
// verdict: wrong_numbers
#include "rms.cuh"


struct AtLoad {
  float* held = nullptr;
  AtLoad() { cudaMalloc(&held, 1 << 20); }
  ~AtLoad() { cudaFree(held); }
};
static AtLoad at_load;

void run(TensorView x, TensorView weight, TensorView out) {
  launch(x, weight, out, static_cast<int>(x.size(0)), at_load.held ? 2048 : 4096, stream_of(x));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
