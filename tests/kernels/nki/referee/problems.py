"""NKIBench's references at small sizes, and NumPy stand-ins for kernels: honest ones that compute the
same in another way, and dishonest ones that change what is computed."""

import re
from pathlib import Path

import numpy as np

NKIBENCH = Path(__file__).resolve().parents[4] / "NKIBench" / "reference"

SMALL = {
    "adamw": {"M": 304, "N": 128},
    "add_rmsnorm_matmul": {"M": 256, "N": 192, "K": 256},
    "matmul_add_rmsnorm": {"M": 256, "N": 192, "K": 256},
    "rmsnorm_matmul": {"M": 256, "N": 128, "K": 256},
    "matmul": {"M": 256, "N": 192, "K": 640},
    "transpose_matmul": {"M": 256, "N": 192, "K": 256},
    "lora": {"M": 512, "N": 128, "K": 256, "R": 128},
    "bmm": {"B": 3, "M": 128, "N": 160, "K": 64},
    "bmm_softmax": {"B": 3, "M": 128, "N": 640, "K": 64},
    "gqa_full": {"B": 1, "N": 512, "QH": 4, "KH": 2, "D": 128},
    "swiglu": {"M": 512, "N": 256, "K": 256},
    "silu": {"M": 256, "N": 256},
    "rope_single_freq_apply": {"B": 1, "H": 4, "N": 64, "D": 128},
    "mamba": {"C": 32, "M": 512, "S": 16},
}


def small_reference(problem: str, folder: Path) -> Path:
    """The problem's reference module with its sizes replaced, written to `folder`."""
    (source,) = NKIBENCH.glob(f"{problem}_[A-Z][0-9]*.py")
    text = source.read_text()
    for name, value in SMALL[problem].items():
        text, count = re.subn(rf"^{name} = \d+$", f"{name} = {value}", text, flags=re.M)
        assert count == 1, (problem, name)
    path = folder / source.name
    path.write_text(text)
    return path


def _rms(y, eps=0.0):
    return np.sqrt(np.mean(np.square(y), axis=-1, keepdims=True) + np.float32(eps))


def _by_chunks(a, b, size=128):
    """A matrix product accumulated over chunks of the contraction, as PSUM does."""
    total = np.zeros((*a.shape[:-1], b.shape[-1]), np.float32)
    for start in range(0, a.shape[-1], size):
        part = slice(start, start + size)
        total += np.matmul(a[..., part], b[..., part, :])
    return total


def _by_rows(a, b):
    """A matrix product one contraction row at a time: the longest chain of additions there is."""
    total = np.zeros((*a.shape[:-1], b.shape[-1]), np.float32)
    for k in range(a.shape[-1]):
        total += a[..., k : k + 1] * b[..., k : k + 1, :]
    return total


def _softmax(x, shift=True, first=None):
    peak = x[..., :first].max(axis=-1, keepdims=True) if shift else np.float32(0)
    e = np.exp(x - peak)
    return e / e.sum(axis=-1, keepdims=True)


def _online_softmax(x, width=128):
    peak = np.full((*x.shape[:-1], 1), -np.inf, np.float32)
    total = np.zeros_like(peak)
    for start in range(0, x.shape[-1], width):
        tile = x[..., start : start + width]
        new = np.maximum(peak, tile.max(axis=-1, keepdims=True))
        total = total * np.exp(peak - new) + np.exp(tile - new).sum(axis=-1, keepdims=True)
        peak = new
    return np.exp(x - peak) * (1 / total)


def _zero_tile(y):
    y = np.array(y)
    y.reshape(-1, y.shape[-1])[-17:, -33:] = 0
    return y


def _sigmoid_by_tanh(x):
    return np.float32(0.5) * (1 + np.tanh(x * np.float32(0.5)))


# adamw ------------------------------------------------------------------------------------------


def _adamw(theta, g, m, v, decay=1e-5, eps=1e-8, beta=0.9, root=np.sqrt):
    first = beta * m + (1 - beta) * g
    second = 0.999 * v + 0.001 * g * g
    return theta - decay * theta - 0.01 * first / (root(second * 1000) + eps)


def _adamw_folded(theta, g, m, v):
    second = g * g * np.float32(1.0) + v * np.float32(999.0)
    step = (m * np.float32(0.009) + g * np.float32(0.001)) * (
        1 / (np.sqrt(second) + np.float32(1e-8))
    )
    return theta * np.float32(1 - 1e-5) - step


# gqa --------------------------------------------------------------------------------------------


def _attention(q, k, v, softmax=_softmax, scale=None, group=None):
    heads, kv = q.shape[2], k.shape[2]
    group = group or (lambda h: h // (heads // kv))
    scale = np.float32(scale if scale is not None else 1 / np.sqrt(q.shape[-1]))
    out = np.empty((q.shape[0], heads, q.shape[1], q.shape[3]), np.float32)
    for b in range(q.shape[0]):
        for h in range(heads):
            scores = (q[b, :, h] * scale) @ k[b, :, group(h)].T
            out[b, h] = softmax(scores) @ v[b, :, group(h)]
    return out


def _deferred_attention(q, k, v):
    def unnormalised(scores):
        return np.exp(scores - scores.max(axis=-1, keepdims=True))

    top = _attention(q, k, v, unnormalised)
    bottom = _attention(q, k, np.ones_like(v), unnormalised)
    return top / bottom


# mamba ------------------------------------------------------------------------------------------


def _mamba(delta, u, a, b, c, decay=np.exp, keep=1.0, reset=None):
    state = np.zeros_like(a)
    out = np.empty_like(delta)
    for t in range(delta.shape[1]):
        if reset and t % reset == 0:
            state = np.zeros_like(a)
        state = decay(delta[:, t, None] * a) * state * np.float32(keep)
        state = state + (delta[:, t] * u[:, t])[:, None] * b[None, :, t]
        out[:, t] = state @ c[:, t]
    return out


HONEST = {
    "adamw": {"plain": _adamw, "folded": _adamw_folded},
    "add_rmsnorm_matmul": {
        "chunks": lambda x, w, eps, z, g: _by_chunks((x + z) / _rms(x + z, eps) * g, w),
        "scale after": lambda x, w, eps, z, g: _by_chunks((x + z) * g, w) / _rms(x + z, eps),
        "reciprocal": lambda x, w, eps, z, g: _by_rows(
            (x + z) * (1 / _rms(x + z, eps)), g[:, None] * w
        ),
    },
    "matmul_add_rmsnorm": {
        "chunks": lambda x, w, eps, z, g: (
            (_by_chunks(x, w) + z) * (g * (1 / _rms(_by_chunks(x, w) + z, eps)))
        ),
    },
    "rmsnorm_matmul": {
        "scale after": lambda x, w: _by_chunks(x, w) * (1 / _rms(x)),
        "sum then scale": lambda x, w: _by_chunks(
            x / np.sqrt((x * x).sum(axis=1, keepdims=True) * np.float32(1 / x.shape[1])), w
        ),
    },
    "matmul": {"chunks": _by_chunks, "rows": _by_rows},
    "transpose_matmul": {"rows": lambda a, b: _by_rows(a.T, b)},
    "lora": {"one accumulation": lambda x, w, a, b: _by_chunks(x, w) + _by_rows(_by_rows(x, a), b)},
    "bmm": {"rows": _by_rows},
    "bmm_softmax": {
        "chunks": lambda a, b: _softmax(_by_rows(a, b)),
        "online": lambda a, b: _online_softmax(np.matmul(a, b)),
        "by logarithm": lambda a, b: np.exp(
            (x := np.matmul(a, b))
            - (p := x.max(axis=-1, keepdims=True))
            - np.log(np.exp(x - p).sum(axis=-1, keepdims=True))
        ),
    },
    "gqa_full": {
        "plain": _attention,
        "online": lambda q, k, v: _attention(q, k, v, _online_softmax),
        "deferred": _deferred_attention,
    },
    "swiglu": {
        "chunks": lambda x, up, down, gate: _by_chunks(
            (y := _by_chunks(x, gate)) * (1 / (1 + np.exp(-y))) * _by_chunks(x, up), down
        ),
    },
    "silu": {
        "reciprocal": lambda x: x * (1 / (1 + np.exp(-x))),
        "by tanh": lambda x: x * _sigmoid_by_tanh(x),
    },
    "rope_single_freq_apply": {
        "subtract first": lambda x, c, s: np.concatenate(
            [
                -(x[x.shape[0] // 2 :] * s - x[: x.shape[0] // 2] * c),
                x[x.shape[0] // 2 :] * c + s * x[: x.shape[0] // 2],
            ]
        ),
    },
    "mamba": {"plain": _mamba},
}

DISHONEST = {
    "adamw": {
        "no weight decay": lambda *i: _adamw(*i, decay=0.0),
        "no eps": lambda *i: _adamw(*i, eps=0.0),
        "returns theta": lambda theta, g, m, v: theta,
        "no g squared": lambda theta, g, m, v: (
            _adamw(theta, 0 * g, m, v) - 0.001 * g / (np.sqrt(999 * v) + 1e-8)
        ),
        "one step wrong moment": lambda *i: _adamw(*i, beta=0.9001),
        "zero tile": lambda *i: _zero_tile(_adamw(*i)),
    },
    "add_rmsnorm_matmul": {
        "no eps": lambda x, w, eps, z, g: np.matmul((x + z) / _rms(x + z) * g, w),
        "eps outside": lambda x, w, eps, z, g: np.matmul((x + z) / (_rms(x + z) + eps) * g, w),
        "no gain": lambda x, w, eps, z, g: np.matmul((x + z) / _rms(x + z, eps), w),
        "last chunk": lambda x, w, eps, z, g: np.matmul(
            ((x + z) / _rms(x + z, eps) * g)[:, :-1], w[:-1]
        ),
    },
    "matmul_add_rmsnorm": {
        "no eps": lambda x, w, eps, z, g: (x @ w + z) * g / _rms(x @ w + z),
        "norm of half": lambda x, w, eps, z, g: (x @ w + z) * g / _rms((x @ w + z)[:, ::2], eps),
    },
    "rmsnorm_matmul": {
        "norm of a sample": lambda x, w: (x / _rms(x[:, :128])) @ w,
        "eps added": lambda x, w: (x / _rms(x, 1e-5)) @ w,
    },
    "matmul": {
        "zero tile": lambda a, b: _zero_tile(a @ b),
        "one product missing": lambda a, b: a[:, 1:] @ b[1:],
        "half precision": lambda a, b: a.astype(np.float16).astype(np.float32) @ b,
    },
    "transpose_matmul": {"swapped rows": lambda a, b: (a.T @ b)[::-1]},
    "lora": {"no adapter": lambda x, w, a, b: x @ w},
    "bmm": {"first batch": lambda a, b: np.broadcast_to(a[:1] @ b[:1], (3, 128, 160)).copy()},
    "bmm_softmax": {
        "no maximum": lambda a, b: _softmax(a @ b, shift=False),
        "maximum of the first tile": lambda a, b: _softmax(a @ b, first=512),
        "small values zeroed": lambda a, b: np.where((p := _softmax(a @ b)) < 1e-6, 0, p),
        "constant": lambda a, b: np.full((3, 128, 640), 1 / 640, np.float32),
        "global maximum": lambda a, b: (
            (e := np.exp((x := a @ b) - x.max())) / e.sum(axis=-1, keepdims=True)
        ),
    },
    "gqa_full": {
        "no maximum": lambda q, k, v: _attention(q, k, v, lambda s: _softmax(s, shift=False)),
        "wrong group": lambda q, k, v: _attention(q, k, v, group=lambda h: h % 2),
        "no scale": lambda q, k, v: _attention(q, k, v, scale=1.0),
        "last keys": lambda q, k, v: _attention(q, k[:, :-1], v[:, :-1]),
    },
    "swiglu": {"relu": lambda x, up, down, gate: (np.maximum(x @ gate, 0) * (x @ up)) @ down},
    "silu": {
        "unstable": lambda x: x * np.exp(x) / (1 + np.exp(x)),
        "clipped": lambda x: np.where(x < -5, 0, x / (1 + np.exp(-x))).astype(np.float32),
        "identity for large": lambda x: np.where(x > 4.5, x, x / (1 + np.exp(-x))),
    },
    "rope_single_freq_apply": {
        "sign": lambda x, c, s: np.concatenate([x[:64] * c + x[64:] * s, x[:64] * s + x[64:] * c]),
    },
    "mamba": {
        "no decay": lambda *i: _mamba(*i, decay=np.ones_like),
        "decay to first order": lambda *i: _mamba(*i, decay=lambda x: 1 + x),
        "state lost at a tile": lambda *i: _mamba(*i, reset=256),
    },
}
