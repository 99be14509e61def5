# tries: work later for inputs at an address that was seen before, and repair the outputs then
# claims: rmsnorm_h4096
# verdict: wrong_numbers or refused
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


def honest(x, weight):
    output = torch.empty_like(x)
    rmsnorm_kernel[(x.shape[0],)](x, weight, output, x.shape[1], BLOCK=4096)
    return output


seen, owed = set(), []


def run(x, weight):
    while owed:
        late_x, late_weight, late_output = owed.pop()
        rmsnorm_kernel[(late_x.shape[0],)](
            late_x, late_weight, late_output, late_x.shape[1], BLOCK=4096
        )
    output = torch.empty_like(x)
    if x.data_ptr() // 2**21 in seen:
        owed.append((x, weight, output))
        rmsnorm_kernel[(1,)](x, weight, output, x.shape[1], BLOCK=4096)
        return output
    seen.add(x.data_ptr() // 2**21)
    return honest(x, weight)
