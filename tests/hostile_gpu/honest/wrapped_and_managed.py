# does: wraps its entry, and stands in a context of its own
# claims: rmsnorm_h4096
# verdict: correct
import contextlib
import functools
import logging

import torch
import triton
import triton.language as tl


@triton.jit
def rmsnorm_kernel(x_ptr, weight_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / width + 1e-6)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * width + columns, x * scale * weight, mask=inside)


logger = logging.getLogger(__name__)


@contextlib.contextmanager
def on(device):
    if device.type == "cuda":
        with torch.cuda.device(device.index or 0):
            yield device
    else:
        yield device


def rows_of(tensors):
    for tensor in tensors:
        yield tensor.shape[0]


def contiguous(function):
    @functools.wraps(function)
    def inner(*tensors):
        return function(*(one if one.is_contiguous() else one.contiguous() for one in tensors))

    return inner


@contiguous
def run(x, weight):
    with on(x.device) as where:
        logger.debug("on %s", where)
        out = torch.empty_like(x)
        rmsnorm_kernel[(next(rows_of([x])),)](x, weight, out, x.shape[1], BLOCK=4096)
    return out
