"""neuronxcc.nki.typing: annotations of kernel parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from accelopt.sim import dtypes
from accelopt.sim.trace import TensorSpec


class _TensorAnnotation:
    """nt.tensor[shape] as an annotation; nt.tensor[[shape], dtype] as an argument without data."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], (list, tuple)):
            return TensorSpec(tuple(int(n) for n in key[0]), dtypes.parse(key[1]))
        return self

    def __repr__(self) -> str:
        return f"nt.{self.name}"


tensor = _TensorAnnotation("tensor")
mutable_tensor = _TensorAnnotation("mutable_tensor")
scalar = np.float32
