// tries: compute what the call before was asked for
// claims: rmsnorm_h4096
// verdict: refused or wrong_numbers
#include "rms.cuh"

static const void* late_x = nullptr;
static const void* late_weight = nullptr;
static void* late_out = nullptr;

void run(TensorView x, TensorView weight, TensorView out) {
  if (late_x != nullptr)
    rms_rows<<<static_cast<int>(x.size(0)), 512, 0, stream_of(x)>>>(
        static_cast<const __nv_bfloat16*>(late_x), static_cast<const __nv_bfloat16*>(late_weight),
        static_cast<__nv_bfloat16*>(late_out), static_cast<int>(x.size(1)),
        static_cast<int>(x.size(1)));
  late_x = x.data_ptr();
  late_weight = weight.data_ptr();
  late_out = out.data_ptr();
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
