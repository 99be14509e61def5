"""CUDA kernels on a GPU: alone, with a contract, or as solutions of FlashInfer-Bench."""

from __future__ import annotations

from collections.abc import Sequence

from accelopt.concurrency import in_thread
from accelopt.evaluation import Case
from accelopt.kernels.cuda.moves import proposals
from accelopt.kernels.gpu.language import Solutions
from accelopt.nodes import Action, Node

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


MOST_PROPOSALS = 48


class Cuda(Solutions):
    """Solutions whose work is done by kernels in CUDA C++."""

    name = "cuda"
    notes = NOTES
    work = "by the kernels of its own sources"
    compiled_with = ()
    may_name = (
        "The sources may include CUDA's own headers, cub, cute and cutlass, and name nothing that "
        "reaches the host's files, threads, clocks or libraries. A kernel that is given alone is "
        "started as its line `#pragma launch` says."
    )

    def unread(self, case: Case) -> str:
        """That no rule reads CUDA, before a search waits for it."""
        if self._problem(case).template.spec.binding != "driver":
            return "CUDA with host code is not read: without a model nothing is tried"
        return "CUDA is not read: hints and knobs only, unless a model writes kernels"

    async def actions(self, node: Node, focus: str = "") -> Sequence[Action]:
        """The hints of `accelopt.kernels.cuda.moves`, the most promising ones."""
        template = self._problem(node.case).template
        if template.spec.binding != "driver":
            return ()
        name = template.spec.entry_point.partition("::")[2]
        return await in_thread(proposals, node.source, name, MOST_PROPOSALS)
