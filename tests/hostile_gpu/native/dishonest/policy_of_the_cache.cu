// tries: set an access policy on the stream so that inputs stay in the L2 cache
// claims: rmsnorm_h4096
// verdict: refused
#include "rms.cuh"


void run(TensorView x, TensorView weight, TensorView out) {
  cudaStreamAttrValue value = {};
  value.accessPolicyWindow.base_ptr = x.data_ptr();
  value.accessPolicyWindow.num_bytes = 30 << 20;
  value.accessPolicyWindow.hitRatio = 1.0f;
  value.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
  cudaStreamSetAttribute(stream_of(x), cudaStreamAttributeAccessPolicyWindow, &value);
  honest(x, weight, out);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
