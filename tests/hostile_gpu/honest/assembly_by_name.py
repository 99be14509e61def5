# does: keeps constants and assembly under annotated names
# claims: rmsnorm_h4096
# verdict: correct
import torch
import triton
import triton.language as tl

EPS: tl.constexpr = tl.constexpr(1e-6)
ASM: tl.constexpr = tl.constexpr("rsqrt.approx.ftz.f32 $0, $1;")


@triton.jit
def _rsqrt(value, FAST: tl.constexpr):
    if FAST:
        return tl.inline_asm_elementwise(
            ASM, "=r,r", [value], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return 1.0 / tl.sqrt(value)


@triton.jit
def rows_kernel(x_ptr, w_ptr, o_ptr, width, BLOCK: tl.constexpr, FAST: tl.constexpr = False):
    pid = tl.program_id(axis=0)
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + pid * width + offs, mask=offs < width, other=0.0).to(tl.float32)
    inverse = _rsqrt(tl.sum(x * x) / width + EPS, FAST)
    w = tl.load(w_ptr + offs, mask=offs < width, other=0.0).to(tl.float32)
    tl.store(
        o_ptr + pid * width + offs, (x * inverse * w).to(o_ptr.dtype.element_ty), mask=offs < width
    )


def run(x, weight):
    out = torch.empty_like(x)
    rows_kernel[(x.shape[0],)](x, weight, out, x.shape[1], BLOCK=4096)
    return out
