"""Short notes on the names of CUDA C++, for an executor that wants to look one up."""

NOTES = {
    "#pragma launch": "#pragma launch grid(x, y, z) block(x, y, z) shared(bytes): how the kernel is "
    "started; change the line and the kernel together.",
    "__launch_bounds__": "__launch_bounds__(threads, blocks): the most threads of a block, and the "
    "fewest blocks that shall fit on a multiprocessor; bounds registers.",
    "__restrict__": "const T* __restrict__ p: nothing else points there; loads may go by the "
    "read-only path and be reordered.",
    "__ldcs": "__ldcs(pointer), __stcs(pointer, value): load and store that do not stay in the "
    "caches; __ldg reads through the read-only cache.",
    "float4": "reinterpret_cast<const float4*>(p)[i]: 16 bytes at once; p + 4 i must be aligned to 16 "
    "bytes.",
    "__shfl_down_sync": "__shfl_down_sync(0xffffffff, value, by): the value of the lane `by` further "
    "in the warp; __shfl_xor_sync for a butterfly.",
    "__syncthreads": "__syncthreads(): all threads of the block arrive before one goes on.",
    "__pipeline_memcpy_async": "<cuda_pipeline.h>: __pipeline_memcpy_async(shared, global, 16), then "
    "__pipeline_commit() and __pipeline_wait_prior(n): copies that run beside the arithmetic.",
    "wmma": "<mma.h>, nvcuda::wmma: fragments of 16x16x16, load_matrix_sync, mma_sync, "
    "store_matrix_sync: tensor cores for 16-bit operands with float sums.",
    "__nv_bfloat16": "<cuda_bf16.h>: __bfloat162float, __float2bfloat16, __nv_bfloat162 for two.",
    "__half": "<cuda_fp16.h>: __half2float, __float2half, __half2 for two.",
    "__expf": "__expf(x), __frcp_rn(x), rsqrtf(x): one instruction, less exact than expf and division.",
}
