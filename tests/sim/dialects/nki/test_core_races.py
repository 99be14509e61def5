"""What two cores do to the same elements of HBM with no barrier between (SDK 2.33, nisa.core_barrier: all
cores must reach it "before any can proceed"; it is for cores that write disjoint portions and then
read what both have written)."""

import numpy as np
import pytest

from accelopt.sim.errors import KernelError

A = np.random.default_rng(3).normal(size=(128, 512)).astype(np.float32)

HEAD = """
@nki.jit
def kernel(a):
    me = nl.program_id(0)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    part = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    mine, other = nl.ds(me * 64, 64), nl.ds((1 - me) * 64, 64)
"""

SENT = [
    "t, got = nl.load(a[mine]), nl.ndarray((64, 512), dtype=a.dtype, buffer=nl.sbuf)",
    "nisa.sendrecv(src=t, dst=got, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)",
]
HONEST = {
    "rows": ["nl.store(out[mine], nl.load(a[mine]))"],
    "columns": ["nl.store(out[:, nl.ds(me * 256, 256)], nl.load(a[:, nl.ds(me * 256, 256)]))"],
    "rows in a loop": [
        "for n in range(8):",
        "    rows = nl.ds(me * 64 + n * 8, 8)",
        "    nl.store(out[rows], nl.load(a[rows]))",
    ],
    "every other column in a loop": [
        "for n in range(256):",
        "    nl.store(out[:, nl.ds(2 * n + me, 1)], nl.load(a[:, nl.ds(2 * n + me, 1)]))",
    ],
    "both the same in a loop": [
        "for n in range(8):",
        "    nl.store(out[nl.ds(n * 16, 16)], nl.load(a[nl.ds(n * 16, 16)]))",
    ],
    "every other column": ["nl.store(out[:, me::2], nl.load(a[:, me::2]))"],
    "views of the same bytes": [
        "t = nl.load(a[mine])",
        "nisa.dma_copy(dst=out.view(nl.int32)[mine], src=t.view(nl.int32))",
    ],
    "both the same": ["nl.store(part, nl.load(a))", "nl.store(out, nl.load(part))"],
    "a copy to itself as a fence": [
        "nl.store(out, nl.load(a))",
        "nisa.dma_copy(dst=out, src=out)",
    ],
    "registers of its own engines": [
        "total = nl.ndarray((64, 1), dtype=nl.float32, buffer=nl.sbuf)",
        "for n in range(4):",
        "    t = nl.load(a[mine, nl.ds(n * 128, 128)])",
        "    nisa.activation(dst=t, op=nl.copy, data=t, reduce_op=nl.add, reduce_res=total,",
        "                    reduce_cmd=nisa.reduce_cmd.reduce if n else nisa.reduce_cmd.reset_reduce)",
        "t = nl.load(a[mine])",
        "s = nl.ndarray((64, 1), dtype=nl.float32, buffer=nl.sbuf)",
        "nisa.tensor_reduce(dst=s, op=nl.add, data=t, axis=1)",
        "nisa.tensor_tensor(dst=s, data1=s, data2=total, op=nl.subtract)",
        "nisa.tensor_scalar(dst=s, data=s, op0=nl.abs, operand0=0.0, op1=nl.less, operand1=1e-3)",
        "nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=s)",
        "nl.store(out[mine], t)",
    ],
    "one alone": ["if me == 0:", "    nl.store(part, nl.load(a))", "    nl.store(out, nl.load(part))"],
    "read after a barrier": [
        "nl.store(part[mine], nl.load(a[mine]))",
        "nisa.core_barrier(part, (0, 1))",
        "nl.store(out[other], nl.load(part[other]))",
    ],
    "both the same from what both wrote": [
        "nl.store(part[mine], nl.load(a[mine]))",
        "nisa.core_barrier(part, (0, 1))",
        "nl.store(out, nl.load(part))",
    ],
    "read, barrier, overwritten": [
        "nl.store(out[mine], nl.load(a[mine]))",
        "nisa.core_barrier(out, (0, 1))",
        "t = nl.load(out[other])",
        "nisa.core_barrier(out, (0, 1))",
        "nl.store(out[other], t)",
    ],
    "memory of its own": [
        "own = nl.ndarray((64, 512), dtype=a.dtype, buffer=nl.private_hbm)",
        "nl.store(own, nl.load(a[mine]))",
        "nl.store(out[mine], nl.load(own))",
    ],
    "received, and written to its own place": [
        *SENT,
        "nl.store(out[other], got)",
    ],
    "the sum of both, by both": [  # as the vendor library's qkv_tkg_mx_impl ends
        *SENT,
        "nisa.tensor_tensor(dst=t, data1=t, data2=got, op=nl.add)",
        "nl.store(part[0:64], t)",
        "nl.store(out, nl.load(a))",
    ],
}  # fmt: skip

RACES = {
    "reads what the other writes": [
        "nl.store(part[mine], nl.load(a[mine]))",
        "nl.store(out[other], nl.load(part[other]))",
    ],
    "reads, and the other overwrites": [
        "nl.store(out[mine], nl.load(a[mine]))",
        "nisa.core_barrier(out, (0, 1))",
        "t = nl.load(out[other])",
        "nl.store(out[mine], nl.multiply(t, 2.0))",
    ],
    "rows in a loop, one too many": [
        "for n in range(9 - me):",
        "    rows = nl.ds(me * 64 + n * 8, 8)",
        "    nl.store(out[rows], nl.multiply(nl.load(a[rows]), 1.0 + me))",
    ],
    "rows by a quotient, one of them both's": [
        "for n in range(8):",
        "    r, c = n // 2 + 3 * me, n % 2 * 256",
        "    t = nl.load(a[nl.ds(r, 1), nl.ds(c, 256)])",
        "    nl.store(out[nl.ds(r, 1), nl.ds(c, 256)], nl.multiply(t, 1.0 + me))",
    ],
    "both write, each its own": [
        "nl.store(out, nl.multiply(nl.load(a), 1.0 + me))",
        "pass",
    ],
    "an edge of one column": [
        "columns = nl.ds(me * 255, 257)",
        "nl.store(out[:, columns], nl.multiply(nl.load(a[:, columns]), 1.0 + me))",
    ],
    "what was received": [
        *SENT,
        "nl.store(out[0:64], got)",
    ],
    "the difference of both, by both": [
        *SENT,
        "nisa.tensor_tensor(dst=t, data1=t, data2=got, op=nl.subtract)",
        "nl.store(out[0:64], t)",
    ],
    "the sum of both, and of what one did before": [
        *SENT,
        "got = nl.multiply(got, 1.0 + me)",
        "nisa.tensor_tensor(dst=t, data1=t, data2=got, op=nl.add)",
        "nl.store(out[0:64], t)",
    ],
    "cleared by one, filled by the other": [
        "nl.store(out[mine], nl.zeros((64, 512), dtype=a.dtype))",
        "nl.store(out[other], nl.load(a[other]))",
    ],
}  # fmt: skip


def _kernel(nki_text, lines):
    body = "".join(f"    {line}\n" for line in [*lines, "return out"])
    return nki_text(HEAD + body)


@pytest.mark.parametrize("name", HONEST)
def test_cores_that_keep_apart_are_right(nki_text, name):
    assert np.array_equal(_kernel(nki_text, HONEST[name]).kernel[2](A.copy()), A)


@pytest.mark.parametrize("name", RACES)
def test_a_race_is_refused_with_both_lines(nki_text, name):
    text = _kernel(nki_text, RACES[name])
    with pytest.raises(KernelError, match="no barrier stands between") as refused:
        text.kernel[2](A.copy())
    assert refused.value.identifier == "core_race"
    # the line that reads or overwrites, that which writes, and that which makes the tensor
    assert str(refused.value).count(text.file) == 3 and "core_barrier(" in refused.value.mend
