import torch


def run(logits):
    return torch.softmax(logits.to(torch.float32), dim=-1)
