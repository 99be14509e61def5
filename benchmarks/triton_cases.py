"""Launches of public Triton kernels: the file in a checkout, its inputs, and what calls it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

SHELLS = (
    "fla", "fla.ops", "fla.modules", "liger_kernel", "liger_kernel.ops", "unsloth", "unsloth.kernels",
    "flag_gems", "flag_gems.ops", "flag_gems.fused",
)  # fmt: skip
"""Packages whose `__init__` imports models and backends: only their modules are wanted."""


@dataclass(frozen=True)
class Case:
    """A launch: `file` ends the path of a module, `call` is given it and the inputs."""

    name: str
    file: str
    call: Callable[..., Any]
    inputs: tuple[np.ndarray, ...]


_numbers = np.random.default_rng(7)


def _f(*shape: int) -> np.ndarray:
    return _numbers.standard_normal(shape).astype(np.float32)


def _p(*shape: int) -> np.ndarray:
    return (np.abs(_f(*shape)) + 0.1).astype(np.float32)


def _i(most: int, *shape: int) -> np.ndarray:
    return _numbers.integers(0, most, shape)


def _log(*shape: int) -> np.ndarray:
    x = _f(*shape)
    return (x - np.log(np.exp(x).sum(-1, keepdims=True))).astype(np.float32)


class _Context:
    needs_input_grad = (True,) * 16

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors


def _backward(function: str, gradient: int) -> Callable[..., Any]:
    """An autograd function's forward and then its backward of one of the inputs."""

    def call(module: Any, *given: Any) -> Any:
        context, one = _Context(), getattr(module, function)
        one.forward(context, *given[:gradient], *given[gradient + 1 :])
        return one.backward(context, given[gradient])

    return call


_L, _U, _F, _G, _T = (
    "liger_kernel/ops/", "unsloth/kernels/", "fla/", "flag_gems/ops/", "kernels/",
)  # fmt: skip


def _liger_loss(m: Any, x: Any, t: Any) -> Any:
    import torch

    loss = torch.zeros(x.shape[0], dtype=x.dtype)
    m.liger_cross_entropy_kernel[(x.shape[0],)](
        X_ptr=x, X_stride=x.stride(0), Y_ptr=t, Y_stride=1, weight_ptr=None, loss_ptr=loss,
        z_loss_ptr=None, loss_stride=1, token_accuracy_ptr=None, token_accuracy_stride=0,
        predicted_tokens_ptr=None, predicted_tokens_stride=0, n_cols=x.shape[1],
        n_non_ignore=x.shape[0], sum_non_ignore_weight=x.shape[0], ignore_index=-100,
        weight_sum=0.0, lse_square_scale=0.0, label_smoothing=0.1, reduction="mean", softcap=None,
        RETURN_Z_LOSS=False, RETURN_TOKEN_ACCURACY=False, RETURN_PREDICTED_TOKENS=False,
        BLOCK_SIZE=64, HAS_WEIGHT=False, HAS_SOFTCAPPING=False, HAS_GRADIENTS=True,
    )  # fmt: skip
    return loss, x


def _rms_backward(m: Any, x: Any, w: Any, dy: Any) -> Any:
    _, x2, r, block, warps, mode = m.rms_norm_forward(x, w, 1e-6, 0.0, "llama", None)
    return m.rms_norm_backward(dy, x2, w, r, 0.0, mode, block, warps, False, None)


def _layer_backward(m: Any, x: Any, w: Any, b: Any, dy: Any) -> Any:
    _, x2, mean, rstd, *_ = m.layer_norm_forward(x, w, b, 1e-6)
    return m.layer_norm_backward(dy, x2, w, b, mean, rstd)


def _attention_backward(m: Any, q: Any, k: Any, v: Any, do: Any) -> Any:
    context = _Context()
    m._attention.forward(context, q, k, v, False, 0.25)
    return m._attention.backward(context, do)[:3]


CASES = (
    Case("rms_norm", _L + "rms_norm.py",
         lambda m, x, w: m.rms_norm_forward(x, w, 1e-6, 0.0, "llama", None)[:3], (_f(6, 100), _f(100))),
    Case("rms_norm gemma blocks", _L + "rms_norm.py",
         lambda m, x, w: m.rms_norm_forward(x, w, 1e-6, 1.0, "gemma", False)[:3],
         (_f(4100, 20), _f(20))),
    Case("rms_norm backward", _L + "rms_norm.py", _rms_backward, (_f(300, 50), _f(50), _f(300, 50))),
    Case("fused_add_rms_norm", _L + "fused_add_rms_norm.py",
         lambda m, x, r, w: m.fused_add_rms_norm_forward(x, r, w, 1e-6, 0.0, "llama")[:3],
         (_f(6, 100), _f(6, 100), _f(100))),
    Case("layer_norm", _L + "layer_norm.py",
         lambda m, x, w, b: m.layer_norm_forward(x, w, b, 1e-6)[:4], (_f(6, 100), _f(100), _f(100))),
    Case("layer_norm backward", _L + "layer_norm.py", _layer_backward,
         (_f(300, 50), _f(50), _f(50), _f(300, 50))),
    Case("group_norm", _L + "group_norm.py",
         lambda m, x, w, b: m.group_norm_forward(x, 8, 4, w, b, 1e-6)[:4], (_f(3, 8, 20), _f(8), _f(8))),
    Case("swiglu", _L + "swiglu.py", lambda m, a, b: m.swiglu_forward(a, b)[2], (_f(6, 100), _f(6, 100))),
    Case("swiglu backward", _L + "swiglu.py", lambda m, a, b, c: m.swiglu_backward(a, b, c),
         (_f(6, 100), _f(6, 100), _f(6, 100))),
    Case("geglu", _L + "geglu.py", lambda m, a, b: m.geglu_forward(a, b)[2], (_f(6, 100), _f(6, 100))),
    Case("geglu backward", _L + "geglu.py", lambda m, a, b, c: m.geglu_backward(a, b, c),
         (_f(6, 100), _f(6, 100), _f(6, 100))),
    Case("rope", _L + "rope.py", lambda m, q, k, c, s: m.rope_forward(q, k, c, s)[:2],
         (_f(2, 4, 10, 16), _f(2, 2, 10, 16), _f(1, 10, 16), _f(1, 10, 16))),
    Case("llama4 rope", _L + "llama4_rope.py", lambda m, q, k, c: m.llama4_rope_forward(q, k, c),
         (_f(2, 10, 4, 16), _f(2, 10, 2, 16), _f(10, 8, 2))),
    Case("qwen2vl_mrope", _L + "qwen2vl_mrope.py",
         lambda m, q, k, c, s: m.qwen2vl_mrope_forward(q, k, c, s, [2, 3, 3])[:2],
         (_f(2, 4, 10, 16), _f(2, 2, 10, 16), _f(3, 2, 10, 16), _f(3, 2, 10, 16))),
    Case("cross_entropy", _L + "cross_entropy.py", _liger_loss, (_f(6, 100), _i(100, 6))),
    Case("jsd", _L + "jsd.py", lambda m, x, y: m.jsd_forward(x, y, None, 0.5, -100, False),
         (_log(6, 100), _log(6, 100))),
    Case("kl_div", _L + "kl_div.py", lambda m, x, y: m.kldiv_forward_triton(x, y, True, "batchmean", 1e-10),
         (_log(6, 100), _log(6, 100))),
    Case("tvd", _L + "tvd.py",
         lambda m, p, q: m.tv_distance_forward_triton(p, q, None, "batchmean", -100, False),
         (_p(6, 100), _p(6, 100))),
    Case("dyt", _L + "dyt.py", lambda m, x, a, g, b: m.liger_dyt_fwd(x, a, g, b),
         (_f(6, 100), _f(1), _f(100), _f(100))),
    Case("dyt backward", _L + "dyt.py", lambda m, dy, x, a, g, b: m.liger_dyt_bwd(dy, x, a, g, b),
         (_f(6, 100), _f(6, 100), _f(1), _f(100), _f(100))),
    Case("poly_norm", _L + "poly_norm.py", lambda m, x, w, b: m.poly_norm_forward(x, w, b)[:3],
         (_f(6, 100), _f(3), _f(1))),
    Case("softmax", _L + "softmax.py", lambda m, x: m._softmax_forward(x)[0], (_f(6, 100),)),
    Case("sparsemax", _L + "sparsemax.py", lambda m, x: m._sparsemax_forward(x, -1), (_f(6, 100),)),
    Case("relu_squared", _L + "relu_squared.py", lambda m, x: m.relu_squared_forward(x), (_f(6, 100),)),
    Case("embedding", _L + "experimental/embedding.py",
         lambda m, t, i: m.LigerEmbeddingFunction.forward(_Context(), t, i), (_f(40, 30), _i(40, 5, 3))),
    Case("embedding backward", _L + "experimental/embedding.py", _backward("LigerEmbeddingFunction", 2),
         (_f(40, 30), _i(40, 5), _f(5, 30))),
    Case("attn_res", _L + "attn_res.py", lambda m, b, q, w: m.attn_res_forward(b, q, w)[:1],
         (_f(3, 2, 4, 20), _f(20), _f(20))),
    Case("modulated_rms_norm", _L + "modulated_rms_norm.py",
         lambda m, x, w, a, b: m.modulated_rms_norm_forward(x, w, a, b, 1e-6, 0.0, "llama")[:1],
         (_f(2, 5, 40), _f(40), _f(2, 40), _f(2, 40))),
    Case("multi token mask", _L + "multi_token_attention.py", lambda m, x: m._mask_inf_forward(x),
         (_f(2, 3, 20, 20),)),
    Case("unsloth cross_entropy", _U + "cross_entropy_loss.py",
         lambda m, x, t: m.Fast_CrossEntropyLoss.forward(_Context(), x, t, 30.0, 0), (_f(6, 100), _i(100, 6))),
    Case("unsloth cross_entropy backward", _U + "cross_entropy_loss.py",
         _backward("Fast_CrossEntropyLoss", 2), (_f(6, 100), _i(100, 6), _f(6))),
    Case("unsloth rms", _U + "rms_layernorm.py",
         lambda m, x, w: m.Fast_RMS_Layernorm.forward(_Context(), x, w, 1e-6, True), (_f(6, 100), _f(100))),
    Case("unsloth rms backward", _U + "rms_layernorm.py",
         lambda m, x, w, dy: (c := _Context(), m.Fast_RMS_Layernorm.forward(c, x, w, 1e-6, False),
                              m.Fast_RMS_Layernorm.backward(c, dy))[2],
         (_f(6, 100), _f(100), _f(6, 100))),
    Case("unsloth layernorm", _U + "layernorm.py",
         lambda m, x, w, b: m.Fast_Layernorm.forward(_Context(), x, w, b, 1e-6),
         (_f(6, 100), _f(100), _f(100))),
    Case("unsloth rope", _U + "rope_embedding.py",
         lambda m, q, c, s: m.Fast_RoPE_Embedding.forward(_Context(), q, c, s),
         (_f(2, 10, 4, 16), _f(10, 16), _f(10, 16))),
    Case("unsloth geglu exact", _U + "geglu.py", lambda m, a, b: m.geglu_exact_forward_kernel(a, b),
         (_f(2, 5, 40), _f(2, 5, 40))),
    Case("unsloth geglu backward", _U + "geglu.py", lambda m, d, a, b: m.geglu_approx_backward_kernel(d, a, b),
         (_f(10, 40), _f(10, 40), _f(10, 40))),
    Case("unsloth swiglu", _U + "swiglu.py", lambda m, a, b: m.swiglu_fg_kernel(a, b),
         (_f(2, 5, 40), _f(2, 5, 40))),
    Case("unsloth swiglu backward", _U + "swiglu.py", lambda m, d, a, b: m.swiglu_DWf_DW_dfg_kernel(d, a, b),
         (_f(10, 40), _f(10, 40), _f(10, 40))),
    Case("fla l2norm", _F + "modules/l2norm.py", lambda m, x: m.l2norm_fwd(x, 1e-6), (_f(6, 100),)),
    Case("fla layer_norm", _F + "modules/layernorm.py",
         lambda m, x, w, b: m.layer_norm_fwd(x, w, b, 1e-6)[:3], (_f(6, 100), _f(100), _f(100))),
    Case("fla rotary", _F + "modules/rotary.py", lambda m, x, c, s: m.rotary_embedding_fwdbwd(x, c, s),
         (_f(2, 10, 4, 16), _f(10, 8), _f(10, 8))),
    Case("fla swish", _F + "modules/activations.py", lambda m, x: m.swish_fwd(x), (_f(6, 100),)),
    Case("fla logsigmoid", _F + "modules/activations.py", lambda m, x: m.logsigmoid_fwd(x), (_f(6, 100),)),
    Case("fla swiglu", _F + "modules/activations.py", lambda m, x, y: m.swiglu_fwd(x, y),
         (_f(6, 100), _f(6, 100))),
    Case("fla norm gate", _F + "modules/fused_norm_gate.py",
         lambda m, x, g, w, b: m.layer_norm_gated_fwd(x, g, w, b)[:1],
         (_f(6, 100), _f(6, 100), _f(100), _f(100))),
    Case("fla softmax", _F + "ops/utils/softmax.py", lambda m, x: m.softmax_fwd(x), (_f(6, 100),)),
    Case("fla logsumexp", _F + "ops/utils/logsumexp.py", lambda m, x: m.logsumexp_fwd(x), (_f(6, 100),)),
    Case("fla matmul", _F + "ops/utils/matmul.py", lambda m, a, b: m.matmul(a, b), (_f(64, 40), _f(40, 48))),
    Case("fla cumsum", _F + "ops/utils/cumsum.py",
         lambda m, x: m.chunk_local_cumsum_scalar(x, 16), (_f(2, 48, 3),)),
    Case("fla cumsum vector", _F + "ops/utils/cumsum.py",
         lambda m, x: m.chunk_local_cumsum_vector(x, 16), (_f(2, 48, 3, 20),)),
    Case("fla global cumsum", _F + "ops/utils/cumsum.py",
         lambda m, x: m.chunk_global_cumsum_vector(x), (_f(2, 48, 3, 20),)),
    Case("fla mean pooling", _F + "ops/utils/pooling.py", lambda m, x: m.mean_pooling_fwd(x, 16),
         (_f(2, 48, 3, 20),)),
    Case("fla attention", _F + "ops/attn/parallel.py",
         lambda m, q, k, v: m.parallel_attn_fwd(q, k, v, None, None, 0.25, None, None),
         (_f(1, 64, 4, 16), _f(1, 64, 2, 16), _f(1, 64, 2, 16))),
    Case("fla chunk_fwd_h", _F + "ops/common/chunk_h.py",
         lambda m, k, v: m.chunk_fwd_h(k, v, chunk_size=16)[0], (_f(1, 64, 2, 16), _f(1, 64, 2, 16))),
    Case("fla chunk_fwd_o", _F + "ops/common/chunk_o.py",
         lambda m, q, k, v, h: m.chunk_fwd_o(q, k, v, h, scale=0.25, chunk_size=16),
         (_f(1, 64, 2, 16), _f(1, 64, 2, 16), _f(1, 64, 2, 16), _f(1, 4, 2, 16, 16))),
    Case("fla fused_recurrent", _F + "ops/common/fused_recurrent.py",
         lambda m, q, k, v: m.fused_recurrent_fwd(q, k, v, scale=0.25)[0],
         (_f(1, 12, 2, 16), _f(1, 12, 2, 16), _f(1, 12, 2, 16))),
    Case("fla scaled_dot_kkt", _F + "ops/common/chunk_scaled_dot_kkt.py",
         lambda m, k, b: m.chunk_scaled_dot_kkt_fwd(k, beta=b, chunk_size=16),
         (_f(1, 64, 2, 16), _f(1, 64, 2))),
    Case("fla delta_rule", _F + "ops/delta_rule/fused_recurrent.py",
         lambda m, q, k, v, b: m.fused_recurrent_delta_rule_fwd(q, k, v, b, 0.25, None, False)[0],
         (_f(1, 12, 2, 16), _f(1, 12, 2, 16), _f(1, 12, 2, 16), _f(1, 12, 2))),
    Case("fla hgrn", _F + "ops/hgrn/fused_recurrent.py",
         lambda m, x, g: m.fused_recurrent_hgrn_fwd(x, g)[0], (_f(2, 12, 20), _f(2, 12, 20))),
    Case("kernels cross_entropy", _T + "cross_entropy.py",
         lambda m, x, t: m._cross_entropy.forward(_Context(), x, t), (_f(6, 100), _i(100, 6))),
    Case("kernels matmul", _T + "matmul.py",
         lambda m, a, b: m._matmul.forward(_Context(), a, b), (_f(64, 80), _f(80, 96))),
    Case("kernels attention", _T + "flash_attention.py",
         lambda m, q, k, v: m._attention.forward(_Context(), q, k, v, True, 0.25),
         (_f(1, 2, 256, 16), _f(1, 2, 256, 16), _f(1, 2, 256, 16))),
    Case("kernels attention backward", _T + "flash_attention.py", _attention_backward,
         (_f(1, 1, 256, 16), _f(1, 1, 256, 16), _f(1, 1, 256, 16), _f(1, 1, 256, 16))),
    Case("gems addmm", _G + "addmm.py", lambda m, c, a, b: m.addmm(c, a, b, alpha=0.5),
         (_f(48), _f(30, 40), _f(40, 48))),
    Case("gems addmv", _G + "addmv.py", lambda m, c, a, x: m.addmv(c, a, x), (_f(30), _f(30, 40), _f(40))),
    Case("gems addr", _G + "addr.py", lambda m, c, x, y: m.addr(c, x, y), (_f(30, 40), _f(30), _f(40))),
    Case("gems amax", _G + "amax.py", lambda m, x: m.amax(x), (_f(30, 40),)),
    Case("gems amax rows", _G + "amax.py", lambda m, x: m.amax(x, [1]), (_f(30, 40),)),
    Case("gems argmax", _G + "argmax.py", lambda m, x: m.argmax(x, 1), (_f(30, 40),)),
    Case("gems argmin", _G + "argmin.py", lambda m, x: m.argmin(x, 1), (_f(30, 40),)),
    Case("gems all", _G + "all.py", lambda m, x: m.all_dim(x, 1), (_f(30, 40),)),
    Case("gems avg_pool2d", _G + "avg_pool2d.py", lambda m, x: m.avg_pool2d(x, 3, 2, 1), (_f(2, 3, 16, 16),)),
    Case("gems batch_norm", _G + "batch_norm.py",
         lambda m, x, w, b, mean, var: m.batch_norm(x, w, b, mean, var, False)[0],
         (_f(4, 8, 20), _f(8), _f(8), _f(8), _p(8))),
    Case("gems batch_norm training", _G + "batch_norm.py",
         lambda m, x, w, b, mean, var: m.batch_norm(x, w, b, mean, var, True)[0],
         (_f(4, 8, 20), _f(8), _f(8), _f(8), _p(8))),
    Case("gems bmm", _G + "bmm.py", lambda m, a, b: m.bmm(a, b), (_f(3, 30, 40), _f(3, 40, 48))),
    Case("gems cat", _G + "cat.py", lambda m, a, b: m.cat([a, b], 1), (_f(6, 30), _f(6, 20))),
    Case("gems conv2d", _G + "conv2d.py", lambda m, x, w: m.conv2d(x, w, None, 1, 1),
         (_f(2, 8, 10, 10), _f(16, 8, 3, 3))),
    Case("gems cumsum", _G + "cumsum.py", lambda m, x: m.cumsum(x, 1), (_f(30, 40),)),
    Case("gems diag", _G + "diag.py", lambda m, x: m.diag(x), (_f(30),)),
    Case("gems dot", _G + "dot.py", lambda m, x, y: m.dot(x, y), (_f(300), _f(300))),
    Case("gems embedding", _G + "embedding.py", lambda m, w, i: m.embedding(w, i), (_f(40, 30), _i(40, 5, 3))),
    Case("gems group_norm", _G + "groupnorm.py", lambda m, x, w, b: m.group_norm(x, w, b, 3, 8, 20, 4)[0],
         (_f(3, 8, 20), _f(8), _f(8))),
    Case("gems hstack", _G + "hstack.py", lambda m, a, b: m.hstack([a, b]), (_f(6, 30), _f(6, 20))),
    Case("gems index_select", _G + "index_select.py", lambda m, x, i: m.index_select(x, 0, i),
         (_f(40, 30), _i(40, 7))),
    Case("gems layer_norm", _G + "layernorm.py", lambda m, x, w, b: m.layer_norm(x, (100,), w, b)[0],
         (_f(6, 100), _f(100), _f(100))),
    Case("gems log_softmax", _G + "log_softmax.py", lambda m, x: m.log_softmax(x, 1), (_f(6, 100),)),
    Case("gems log_softmax backward", _G + "log_softmax.py",
         lambda m, dy, y: m.log_softmax_backward(dy, y, 1, dy.dtype), (_f(6, 100), _log(6, 100))),
    Case("gems max", _G + "max.py", lambda m, x: m.max(x), (_f(30, 40),)),
    Case("gems max rows", _G + "max.py", lambda m, x: tuple(m.max_dim(x, 1)), (_f(30, 40),)),
    Case("gems max_pool2d", _G + "max_pool2d_with_indices.py",
         lambda m, x: m.max_pool2d_with_indices(x, 3, 2, 1)[0], (_f(2, 3, 16, 16),)),
    Case("gems mean", _G + "mean.py", lambda m, x: m.mean(x), (_f(30, 40),)),
    Case("gems mean rows", _G + "mean.py", lambda m, x: m.mean_dim(x, [1]), (_f(30, 40),)),
    Case("gems min rows", _G + "min.py", lambda m, x: tuple(m.min_dim(x, 1)), (_f(30, 40),)),
    Case("gems mm", _G + "mm.py", lambda m, a, b: m.mm(a, b), (_f(30, 40), _f(40, 48))),
    Case("gems mv", _G + "mv.py", lambda m, a, x: m.mv(a, x), (_f(30, 40), _f(40))),
    Case("gems nll_loss", _G + "nllloss.py", lambda m, x, t: m.nll_loss_forward(x, t)[0],
         (_log(6, 100), _i(100, 6))),
    Case("gems prod", _G + "prod.py", lambda m, x: m.prod_dim(x, 1), (_p(30, 40),)),
    Case("gems rms_norm", _G + "rms_norm.py", lambda m, x, w: m.rms_norm(x, (100,), w), (_f(6, 100), _f(100))),
    Case("gems select_scatter", _G + "select_scatter.py", lambda m, x, y: m.select_scatter(x, y, 1, 3),
         (_f(6, 30), _f(6))),
    Case("gems slice_scatter", _G + "slice_scatter.py", lambda m, x, y: m.slice_scatter(x, y, 1, 3, 23, 2),
         (_f(6, 30), _f(6, 10))),
    Case("gems softmax", _G + "softmax.py", lambda m, x: m.softmax(x, 1), (_f(6, 100),)),
    Case("gems softmax columns", _G + "softmax.py", lambda m, x: m.softmax(x, 0), (_f(60, 10),)),
    Case("gems stack", _G + "stack.py", lambda m, a, b: m.stack([a, b], 1), (_f(6, 30), _f(6, 30))),
    Case("gems sum", _G + "sum.py", lambda m, x: m.sum(x), (_f(30, 40),)),
    Case("gems sum rows", _G + "sum.py", lambda m, x: m.sum_dim(x, [1]), (_f(30, 40),)),
    Case("gems trace", _G + "trace.py", lambda m, x: m.trace(x), (_f(30, 40),)),
    Case("gems triu", _G + "triu.py", lambda m, x: m.triu(x, 1), (_f(30, 40),)),
    Case("gems upsample_nearest2d", _G + "upsample_nearest2d.py",
         lambda m, x: m.upsample_nearest2d(x, (16, 16)), (_f(2, 3, 8, 8),)),
    Case("gems var_mean", _G + "var_mean.py", lambda m, x: m.var_mean(x, [1]), (_f(30, 40),)),
    Case("gems vector_norm", _G + "vector_norm.py", lambda m, x: m.vector_norm(x, 2, [1]), (_f(30, 40),)),
    Case("gems vstack", _G + "vstack.py", lambda m, a, b: m.vstack([a, b]), (_f(6, 30), _f(4, 30))),
    Case("gems weight_norm", _G + "weightnorm.py", lambda m, v, g: m.weight_norm_interface(v, g, 0)[0],
         (_f(6, 40), _f(6, 1))),
    Case("gems fused_add_rms_norm", "flag_gems/fused/fused_add_rms_norm.py",
         lambda m, x, r, w: m.fused_add_rms_norm(x, r, (100,), w), (_f(6, 100), _f(6, 100), _f(100))),
    Case("gems skip_layer_norm", "flag_gems/fused/skip_layernorm.py",
         lambda m, x, r, w, b: m.skip_layer_norm(x, r, (100,), w, b),
         (_f(6, 100), _f(6, 100), _f(100), _f(100))),
    Case("gems cross_entropy", "flag_gems/fused/cross_entropy_loss.py",
         lambda m, x, t: m.cross_entropy_loss(x, t), (_f(6, 100), _i(100, 6))),
    Case("gems instance_norm", "flag_gems/fused/instance_norm.py",
         lambda m, x, w, b: m.instance_norm(x, w, b, None, None, True), (_f(3, 8, 20), _f(8), _f(8))),
    Case("gems rotary_embedding", "flag_gems/fused/rotary_embedding.py",
         lambda m, q, k, c, s: m.apply_rotary_pos_emb(q, k, c, s),
         (_f(2, 10, 4, 16), _f(2, 10, 2, 16), _f(10, 8), _f(10, 8))),
)  # fmt: skip
