"""Operators of PyTorch that a solution may call: whose work it is, the profiler says."""

from __future__ import annotations

# Every operator on tensors that `torch` itself has under a public name and that is no entry to a
# particular library. What a library may do of a problem's work is for the profiler to say.
TORCH_OPERATORS = """
abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr all allclose amax amin aminmax
angle any arange arccos arcsin arctan arctan2 argmax argmin argsort argwhere as_strided as_tensor
asarray asin asinh atan atan2 atanh atleast_1d atleast_2d atleast_3d avg_pool1d baddbmm batch_norm
bernoulli bincount bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift
bitwise_xor block_diag bmm broadcast_shapes broadcast_tensors broadcast_to bucketize can_cast cat
cdist ceil chain_matmul chunk clamp clamp_max clamp_min clip clone column_stack complex concat
concatenate conj conv1d conv2d conv3d conv_transpose1d conv_transpose2d copysign cos cosh
count_nonzero cross cummax cummin cumprod cumsum deg2rad detach diag diag_embed diagflat diagonal
diff digamma dist div divide dot dropout dstack einsum embedding empty empty_like empty_permuted
empty_strided eq equal erf erfc erfinv exp exp2 expm1 eye flatten flip fliplr flipud float_power
floor floor_divide fmax fmin fmod frac frexp frombuffer from_numpy full full_like gather gcd ge
get_default_dtype get_device greater greater_equal group_norm gt heaviside histc hstack hypot
index_add index_copy index_fill index_put index_reduce index_select inner is_complex
is_floating_point is_grad_enabled is_inference_mode_enabled is_nonzero is_same_size is_tensor isclose
isfinite isin isinf isnan isneginf isposinf isreal kron kthvalue layer_norm lcm ldexp le lerp less
less_equal lgamma linspace log log10 log1p log2 log_softmax logaddexp logaddexp2 logcumsumexp
logical_and logical_not logical_or logical_xor logit logspace logsumexp lt manual_seed masked_fill
masked_scatter masked_select matmul max max_pool1d max_pool2d maximum mean median meshgrid min
minimum mm mode moveaxis movedim mul multinomial multiply mv nan_to_num nanmean nansum narrow ne neg
negative nextafter nonzero norm normal not_equal numel ones ones_like outer permute polar positive
pow prelu prod promote_types quantile rand rand_like randint randint_like randn randn_like randperm
range ravel real reciprocal relu remainder repeat_interleave reshape result_type rms_norm roll rot90
round rsqrt rsub scalar_tensor scatter scatter_add scatter_reduce searchsorted select select_scatter
selu set_float32_matmul_precision set_grad_enabled sgn sigmoid sign signbit sin sinc sinh
slice_scatter softmax sort split split_with_sizes sqrt square squeeze stack std std_mean sub subtract
sum swapaxes swapdims t take take_along_dim tan tanh tensor tensor_split tensordot threshold tile topk
trace transpose trapezoid tril tril_indices triu triu_indices true_divide trunc unbind unflatten
unique unique_consecutive unsqueeze vander var var_mean vdot view_as_complex view_as_real vstack
where xlogy zeros zeros_like
""".split()
FUNCTIONALS = """
adaptive_avg_pool1d adaptive_avg_pool2d avg_pool1d avg_pool2d batch_norm binary_cross_entropy
binary_cross_entropy_with_logits celu conv1d conv2d conv3d cosine_similarity cross_entropy dropout
elu embedding gelu glu group_norm gumbel_softmax hardsigmoid hardswish hardtanh instance_norm
interpolate kl_div l1_loss layer_norm leaky_relu linear log_softmax logsigmoid max_pool1d max_pool2d
mish mse_loss nll_loss normalize one_hot pad prelu relu relu6 rms_norm scaled_dot_product_attention
selu sigmoid silu smooth_l1_loss softmax softmin softplus softshrink softsign tanh tanhshrink threshold
unfold
""".split()
