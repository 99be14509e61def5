// tries: declare dlopen by hand and look cuBLAS up
// claims: rmsnorm_h4096
// verdict: refused
#include "rms.cuh"


extern "C" void* dlopen(const char*, int);
extern "C" void* dlsym(void*, const char*);

void run(TensorView x, TensorView weight, TensorView out) {
  void* library = dlopen("libcublas.so.12", 2);
  auto make = reinterpret_cast<int (*)(void**)>(dlsym(library, "cublasCreate_v2"));
  static void* handle = nullptr;
  if (!handle) make(&handle);
  honest(x, weight, out);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
