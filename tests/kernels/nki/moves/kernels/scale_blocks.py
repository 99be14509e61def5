"""Block tensors declared at the top and filled stage by stage, as a compiler writes kernels."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def kernel(a, b):
    out = nl.ndarray((128, 4, 2048), dtype=np.float32, buffer=nl.shared_hbm)
    zero = nl.ndarray((nl.par_dim(128), 1), dtype=np.float32, buffer=nl.sbuf)
    left = nl.ndarray((4, 2, nl.par_dim(128), 1024), dtype=np.float32, buffer=nl.sbuf)
    right = nl.ndarray((4, 2, nl.par_dim(128), 1024), dtype=np.float32, buffer=nl.sbuf)
    again = nl.ndarray((4, 2, nl.par_dim(128), 1024), dtype=np.float32, buffer=nl.sbuf)
    decay = nl.ndarray((4, 2, 2, nl.par_dim(128), 512), dtype=np.float32, buffer=nl.sbuf)
    gate = nl.ndarray((4, 2, 2, nl.par_dim(128), 512), dtype=np.float32, buffer=nl.sbuf)
    both = nl.ndarray((4, 2, nl.par_dim(128), 1024), dtype=np.float32, buffer=nl.sbuf)
    zero[nl.arange(128)[:, None], 0] = nisa.memset(shape=(128, 1), value=0.0, dtype=np.float32)
    for i0 in nl.affine_range(4):
        for i1 in nl.affine_range(2):
            left[i0, i1, nl.arange(128)[:, None], nl.arange(1024)[None, :]] = nl.load(
                a[nl.arange(128)[:, None], i0, nl.arange(1024)[None, :] + 1024 * i1]
            )
            right[i0, i1, nl.arange(128)[:, None], nl.arange(1024)[None, :]] = nl.load(
                b[nl.arange(128)[:, None], 1024 * i1 + nl.arange(1024)[None, :]]
            )
            again[i0, i1, nl.arange(128)[:, None], nl.arange(1024)[None, :]] = nl.load(
                a[nl.arange(128)[:, None], i0, 1024 * i1 + nl.arange(1024)[None, :]]
            )
            for i2 in nl.affine_range(2):
                decay[i0, i1, i2, nl.arange(128)[:, None], nl.arange(512)[None, :]] = (
                    nisa.activation(
                        op=nl.exp,
                        data=left[
                            i0, i1, nl.arange(128)[:, None], 512 * i2 + nl.arange(512)[None, :]
                        ],
                        bias=zero[nl.arange(128)[:, None], 0],
                        scale=-1.0,
                    )
                )
                gate[i0, i1, i2, nl.arange(128)[:, None], nl.arange(512)[None, :]] = (
                    nisa.reciprocal(
                        nisa.tensor_scalar(
                            data=decay[
                                i0, i1, i2, nl.arange(128)[:, None], nl.arange(512)[None, :]
                            ],
                            op0=nl.add,
                            operand0=1.0,
                            reverse0=True,
                        )
                    )
                )
                both[i0, i1, nl.arange(128)[:, None], 512 * i2 + nl.arange(512)[None, :]] = (
                    nl.multiply(
                        again[i0, i1, nl.arange(128)[:, None], 512 * i2 + nl.arange(512)[None, :]],
                        gate[i0, i1, i2, nl.arange(128)[:, None], nl.arange(512)[None, :]],
                    )
                )
            both[i0, i1, nl.arange(128)[:, None], nl.arange(1024)[None, :]] += right[
                i0, i1, nl.arange(128)[:, None], nl.arange(1024)[None, :]
            ]
            nl.store(
                out[nl.arange(128)[:, None], i0, nl.arange(1024)[None, :] + 1024 * i1],
                value=both[i0, i1, nl.arange(128)[:, None], nl.arange(1024)[None, :]],
            )
    return out
