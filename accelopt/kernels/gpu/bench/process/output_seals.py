"""Keyed checksums (seals) of outputs, computed on the device right behind their call.

A solution's code may run again before its outputs are compared, and could repair them then. A seal
is a sum of all output words, each times a random weight that comes from a key: whoever does not know
the key cannot tell which other words have the same sum. Keys are the parent's, one for every call, and
weights are wiped when they are used. What is judged must have the seal that was made first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

WORDS = 1 << 26  # at a time; weights and products take 256 MB each


class Sealer:
    """Seals tensors on one device. Make it before a candidate is loaded: it binds what it calls."""

    def __init__(self, device: torch.device) -> None:
        import torch

        self.device = device
        self._tensor, self._generator = torch.Tensor, torch.Generator
        self._empty, self._zeros, self._int64 = torch.empty, torch.zeros, torch.int64
        self._int32, self._uint8 = torch.int32, torch.uint8
        base = torch._C.TensorBase
        self._draw, self._zero, self._sum = base.random_, base.zero_, base.sum
        self._times, self._view, self._reshape = base.mul, base.view, base.reshape
        self._contiguous, self._detach, self._to = base.contiguous, base.detach, base.to
        self._part, self._add = base.narrow, base.add_

    def seal(self, outputs: Sequence[Any], key: int) -> torch.Tensor:
        """One number an output, on the device: nothing waits for it. Zero for what is no tensor."""
        generator = self._generator(device=self.device).manual_seed(key)
        made = self._zeros(max(1, len(outputs)), dtype=self._int64, device=self.device)
        for index, output in enumerate(outputs):
            if type(output) is self._tensor and output.numel():
                self._seal_one(self._part(made, 0, index, 1), output, generator)
        return made

    def _seal_one(
        self, made: torch.Tensor, output: torch.Tensor, generator: torch.Generator
    ) -> None:
        raw = self._view(self._reshape(self._contiguous(self._detach(output)), -1), self._uint8)
        whole = raw.numel() // 4 * 4
        words = self._view(self._part(raw, 0, 0, whole), self._int32)
        for start in range(0, words.numel(), WORDS):
            count = min(WORDS, words.numel() - start)
            self._weigh(made, self._part(words, 0, start, count), generator)
        if whole < raw.numel():
            rest = self._to(self._part(raw, 0, whole, raw.numel() - whole), self._int32)
            self._weigh(made, rest, generator)

    def _weigh(self, made: torch.Tensor, words: torch.Tensor, generator: torch.Generator) -> None:
        weights = self._empty(words.numel(), dtype=self._int32, device=self.device)
        self._draw(weights, generator=generator)
        self._add(made, self._sum(self._times(words, weights), dtype=self._int64))
        self._zero(weights)
