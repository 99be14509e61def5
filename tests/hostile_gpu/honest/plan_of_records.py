# does: keeps its launches in records, enumerations and named tuples
# claims: rmsnorm_h4096
# verdict: correct
import dataclasses
import enum
import math

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


class Mode(enum.Enum):
    WIDE = enum.auto()
    NARROW = "narrow"


@dataclasses.dataclass(frozen=True)
class Plan:
    mode: Mode
    block: int
    warps: int = 8
    extra: dict = dataclasses.field(default_factory=dict)

    @property
    def stages(self) -> int:
        return 2 if self.mode is Mode.WIDE else 1

    @classmethod
    def of(cls, width: int) -> "Plan":
        return cls(Mode.WIDE if width > 1024 else Mode.NARROW, 1 << math.ceil(math.log2(width)))


def run(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    plan = Plan.of(x.shape[1])
    plan = dataclasses.replace(plan, warps=4) if plan.mode.name == "NARROW" else plan
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rmsnorm_kernel[(x.shape[0],)](
        x, weight, out, x.stride(0), BLOCK=plan.block, num_warps=plan.warps, num_stages=plan.stages
    )
    return out
