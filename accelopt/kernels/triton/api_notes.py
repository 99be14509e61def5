"""Short notes on the names of Triton, for an executor that wants to look one up."""

NOTES = {
    "tl.load": "tl.load(pointer, mask=None, other=None, eviction_policy='', cache_modifier=''): "
    "reads a block; lanes where mask is false give `other` (undefined without it).",
    "tl.store": "tl.store(pointer, value, mask=None, cache_modifier=''): writes a block; the value "
    "is cast to the pointer's element type.",
    "tl.dot": "tl.dot(a, b, acc=None, input_precision=...): matrix product of [M, K] and [K, N], "
    "each at least 16 wide; 16-bit operands use the tensor cores with float32 accumulation, "
    "float32 operands TF32 unless input_precision='ieee'.",
    "tl.arange": "tl.arange(0, N): N must be a constant power of two.",
    "tl.program_id": "tl.program_id(axis): this program's place in the grid, int32.",
    "tl.num_programs": "tl.num_programs(axis): size of the grid along an axis.",
    "tl.range": "tl.range(start, end, step, num_stages=..., flatten=..., warp_specialize=...): a "
    "loop whose loads are prefetched num_stages deep; flatten merges nested loops of a persistent "
    "kernel.",
    "tl.static_range": "tl.static_range(...): a loop unrolled by the compiler.",
    "tl.make_tensor_descriptor": "tl.make_tensor_descriptor(base, shape, strides, block_shape): a "
    "tile view moved by the bulk copy engine; last stride 1, others multiples of 16 bytes; needs "
    "triton.set_allocator on the host.",
    "TensorDescriptor.from_tensor": "triton.tools.tensor_descriptor.TensorDescriptor.from_tensor("
    "tensor, block_shape): the host-side form; pass it as an argument, then d.load([i, j]) and "
    "d.store([i, j], value). No allocator needed.",
    "tl.swizzle2d": "tl.swizzle2d(i, j, size_i, size_j, group): renumbers a grid so that programs "
    "that run together share operands.",
    "tl.max": "tl.max(x, axis): maximum along an axis.",
    "tl.sum": "tl.sum(x, axis): sum along an axis, in the dtype of x; widen 16-bit values first.",
    "tl.exp2": "tl.exp2(x): 2 to the x, one instruction; tl.exp is a multiplication and exp2.",
    "tl.where": "tl.where(condition, a, b): both sides are evaluated.",
    "tl.trans": "tl.trans(x): transpose, free for operands of tl.dot in most cases.",
    "tl.multiple_of": "tl.multiple_of(x, n): promises that x is a multiple of n, for wide accesses.",
    "tl.max_contiguous": "tl.max_contiguous(x, n): promises runs of n consecutive values.",
    "tl.constexpr": "Annotation of a parameter whose value is compiled in.",
    "tl.cdiv": "tl.cdiv(a, b): division rounded up; triton.cdiv on the host.",
    "tl.atomic_add": "tl.atomic_add(pointer, value, mask=None): order of additions is not fixed.",
    "triton.autotune": "@triton.autotune(configs=[triton.Config({...}, num_warps=, num_stages=)], "
    "key=[...]): measures each configuration once for every value of the key arguments.",
    "num_warps": "Launch option: 32-thread warps a program (4 to 8 for dots, up to 32 for rows).",
    "num_stages": "Launch option: buffers of the software pipeline around tl.dot; each takes "
    "shared memory for one step's operands (227 KiB a program on Hopper).",
    "eviction_policy": "'evict_first' for data read once, 'evict_last' for data many programs share.",
    "cache_modifier": "'.cg' cache in L2 only, '.cs' streaming, '.ca' all levels.",
}  # fmt: skip
