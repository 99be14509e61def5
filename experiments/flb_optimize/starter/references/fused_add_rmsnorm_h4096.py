import torch


def run(hidden_states, residual, weight):
    total = hidden_states.to(torch.float32) + residual.to(torch.float32)
    scale = torch.rsqrt(total.pow(2).mean(dim=-1, keepdim=True) + 1e-6)
    output = (total * scale * weight.to(torch.float32)).to(hidden_states.dtype)
    return output, total.to(residual.dtype)
