# does: keeps what depends on shapes alone, in an object of its own
# claims: rmsnorm_h4096
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


class Plans:
    def __init__(self):
        self._known = {}

    def block(self, shape: torch.Size) -> int:
        if shape not in self._known:
            self._known[shape] = triton.next_power_of_2(shape[-1])
        return self._known[shape]


plans = Plans()


def run(hidden_states: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    if not isinstance(hidden_states, torch.Tensor):
        raise TypeError(f"a tensor, not {type(hidden_states).__name__}")
    rows, width = hidden_states.shape
    output = torch.empty_like(hidden_states)
    rmsnorm_kernel[(rows,)](
        hidden_states, weight, output, width, BLOCK=plans.block(hidden_states.shape)
    )
    return output


if __name__ == "__main__":
    import argparse

    argparse.ArgumentParser().parse_args()
