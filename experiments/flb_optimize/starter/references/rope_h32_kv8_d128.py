import torch


def run(q, k, cos_sin_cache, positions):
    cos, sin = cos_sin_cache[positions.to(torch.int64)].chunk(2, dim=-1)
    cos, sin = cos[:, None, :], sin[:, None, :]

    def rotate(x):
        first, second = x.to(torch.float32).chunk(2, dim=-1)
        rotated = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
        return rotated.to(x.dtype)

    return rotate(q), rotate(k)
