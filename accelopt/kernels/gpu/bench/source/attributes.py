"""Which attributes of values a solution may ask for, and which of nothing, not even its own.

What a value is cannot be told from the text, so a name is allowed when some value of the kernel's own
trade has it: tensors, plain containers, kernels and what compiles them, devices. A name of the solution's
own classes is allowed as well, unless something of a library that leads out of it is called so.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque

from accelopt.kernels.gpu.bench.source.operators import TORCH_OPERATORS

_PLAIN = (
    str, bytes, bytearray, int, float, complex, list, tuple, dict, set, frozenset, range, slice, Counter,
    OrderedDict, defaultdict, deque, property,
)  # fmt: skip
_TENSORS = """
H T adjoint arccosh arcsinh arctanh argpartition as_strided_ as_strided_scatter astype backward
bernoulli_ bfloat16 bits bool byte cauchy_ ccol_indices cdouble cfloat chalf char cholesky
coalesce col_indices conj_physical contiguous copy copy_ corrcoef cov cpu crow_indices cuda data
data_ptr dense_dim dequantize det detach_ device diagonal_scatter dim dim_order double dsplit
dtype element_size eps exp2_ expand expand_as exponential_ fill fill_ fill_diagonal_ float
float8_e4m3fn float8_e5m2 geometric_ get_device grad grad_fn half hardshrink hsplit i0 imag
index_add_ index_copy_ index_fill_ index_put_ indices int inverse is_coalesced is_conj
is_contiguous is_cpu is_cuda is_distributed is_floating_point is_inference is_leaf is_meta is_neg
is_nested is_pinned is_quantized is_shared is_signed is_sparse is_sparse_csr isnative istft item
itemsize layout log_normal_ logdet long lstsq mH mT masked_fill_ masked_scatter_ matrix_exp
matrix_power max min msort names nanmedian nanquantile nansum narrow_copy nbytes ndim ndimension
nelement new new_empty new_empty_strided new_full new_ones new_tensor new_zeros nonzero_static
normal_ numel numpy output_nr partition pin_memory pinverse polygamma prod ptr put put_ q_scale
q_zero_point qr qscheme rad2deg random_ rank ravel renorm renorm_ repeat requires_grad
requires_grad_ reshape_as resize_ resize_as_ resolution resolve_conj resolve_neg retain_grad
retains_grad row_indices scatter_ scatter_add_ shape short size slogdet smallest_normal softmax
sort sparse_dim sparse_mask squeeze_ stft storage_offset stride sum_to_size svd swapaxes_ t_ tiny
to to_complex to_dense to_device to_padded_tensor to_real to_sparse to_sparse_bsr to_sparse_coo
to_sparse_csr tobytes tolist transpose_ type type_as unfold uniform_ unsafe_chunk unsafe_split
unsafe_split_with_sizes unsqueeze_ view view_as vsplit xpu zero_
""".split()
_KERNELS = """
advance all_kwargs arg_names arrive asm associative_scan atomic_add atomic_and atomic_cas
atomic_max atomic_min atomic_or atomic_xchg atomic_xor base best_config block_shape block_type
cache cast configs dtype element_shape element_ty expand_dims fn fp_mantissa_width gather
get_int_max_value get_int_min_value histogram index int_bitwidth is_bf16 is_block is_bool is_const
is_dtype is_floating is_fp16 is_fp32 is_fp64 is_fp8 is_fp8e4b15 is_fp8e4b8 is_fp8e4nv is_fp8e5
is_fp8e5b16 is_int is_int1 is_int16 is_int32 is_int64 is_int8 is_int_signed is_int_unsigned
is_integral is_ptr is_standard_floating is_uint16 is_uint32 is_uint64 is_uint8 is_void key kind
kwargs load logical_and logical_or maxnreg metadata n_max_threads n_regs n_spills name num_ctas
num_stages num_warps padding primitive_bitwidth product reduce run scalar scatter shared slice
store strides trans value warmup with_element_ty xor_sum
""".split()
_DEVICES = """
L2_cache_size arch backend capability cuda_stream device_index gcnArchName index is_integrated
major max_threads_per_block max_threads_per_multi_processor minor multi_processor_count name
regs_per_multiprocessor shared_memory_per_block shared_memory_per_block_optin
shared_memory_per_multiprocessor total_memory type uuid warp_size
""".split()
_OTHERS = """
apply apply_defaults args arguments bias bind cache_clear cache_info children choice clone_state critical debug denominator
digest elementwise_affine enter_context error eval exception extra_repr fget findall finditer
float_power forward fullmatch get_state group groupdict groups hex hexdigest in_features info
initial_seed instance integers isEnabledFor limit_denominator load_state_dict manual_seed
mark_dirty mark_non_differentiable match named_buffers named_children named_modules
named_parameters needs_input_grad normalized_shape numerator once_differentiable out_features
parameters pattern permutation query randint random register_buffer register_parameter release
sample save_for_backward saved_tensors search seed setLevel set_materialize_grads set_state
shuffle span standard_normal state_dict step stop sub subn synchronize train training uniform
value variance_epsilon warn warning weight zero_grad
""".split()

ATTRIBUTES = frozenset(
    {name for kind in _PLAIN for name in dir(kind) if not name.startswith("_")}
    | {*TORCH_OPERATORS, *(f"{name}_" for name in TORCH_OPERATORS)}
    | {*_TENSORS, *_KERNELS, *_DEVICES, *_OTHERS}
)

# What leads from a value to its frame, its code, its module, to hooks and to what others hold.
FORBIDDEN = frozenset(
    """
f_back f_builtins f_code f_globals f_locals f_trace tb_frame tb_next gi_code gi_frame gi_yieldfrom
cr_code cr_frame cr_origin ag_code ag_frame func_globals func_code mro
sys os gc ctypes threading importlib subprocess builtins inspect multiprocessing pickle socket shutil
pathlib tempfile atexit weakref modules functools operator typing contextlib logging
apply_ as_subclass map_ map2_ module_load record_stream register_hook register_prehook
register_post_accumulate_grad_hook set_ share_memory_ storage storage_type untyped_storage next_functions
tofile dump memmap fromfile setfield getfield setflags
Stream ExternalStream set_stream CUDAGraph make_graphed_callables record_event wait_event wait_stream
used_global_vals get_capture_scope nonlocals obj manager loggerDict loggerClass
cudart hub cpp_extension system popen import_module load_library
launch_enter_hook launch_exit_hook add_pre_run_hook pre_run_hooks cache_hook compiled_hook
addHandler removeHandler handlers addFilter removeFilter callHandlers makeRecord findCaller
compile create_binder device_caches get_module_map get_codegen_implementation add_stages load_dialects
make_ir make_ttgir make_ttir make_llir make_ptx make_cubin gluon_to_ttgir ASTSource CompiledKernel
do_bench get_benchmarker get_device_interface launcher_cls load_binary map_python_to_cpp_type
annotation return_annotation update_wrapper wraps attrgetter methodcaller
py_impl py_kernels py_functionalize_impl redispatch overloadpacket
""".split()
)
# Underscored names that nobody may use though they might be the solution's own.
FORBIDDEN_UNDERSCORED = frozenset(
    """
_C _base _cdata _version _getframe _make_subclass _make_wrapper_subclass _backward_hooks _dispatch
_python_dispatch _typed_storage
""".split()
)
