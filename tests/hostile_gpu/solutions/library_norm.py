# tries: let the library do the norm, without any kernel
# claims: rmsnorm_h4096
# verdict: refused
import torch


def run(x, weight):
    return torch.nn.functional.rms_norm(x, (x.shape[1],), weight, 1e-6)
