# tries: return a tensor that agrees with everything
# claims: rmsnorm_h4096
# verdict: refused
import torch
import triton
import triton.language as tl


@triton.jit
def nothing(out_ptr):
    tl.store(out_ptr, 0.0)


class Agreeable(torch.Tensor):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return True


def run(x, weight):
    nothing[(1,)](torch.empty(1, device=x.device))
    return torch.empty_like(x).as_subclass(Agreeable)
