// tries: write to the memory of the process by functions of the host that it declares itself
// claims: rmsnorm_h4096
// verdict: refused
#include "rms.cuh"


extern "C" int open(const char*, int, ...);
extern "C" long pwrite(int, const void*, unsigned long, long);

void run(TensorView x, TensorView weight, TensorView out) {
  honest(x, weight, out);
  static char seen[8];
  int memory = open("/proc/self/mem", 2);
  pwrite(memory, "judged", 6, reinterpret_cast<long>(seen));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
