// tries: set lines of the cache aside for its inputs, so that they outlive its being emptied
// claims: rmsnorm_h4096
// verdict: refused
#include "rms.cuh"


void run(TensorView x, TensorView weight, TensorView out) {
  static bool asked = cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 30 << 20) == cudaSuccess;
  cudaStreamAttrValue window = {};
  window.accessPolicyWindow.base_ptr = x.data_ptr();
  window.accessPolicyWindow.num_bytes = 16 << 20;
  window.accessPolicyWindow.hitRatio = 1.0f;
  window.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
  window.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
  if (asked) cudaStreamSetAttribute(stream_of(x), cudaStreamAttributeAccessPolicyWindow, &window);
  honest(x, weight, out);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
