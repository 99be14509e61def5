"""What `torch.compile` makes of a reference: Inductor's text, and what its autotuner chose."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from accelopt.kernels.gpu.bench.files.tracefiles import Definition
from accelopt.kernels.gpu.bench.process import messages as say


def inductor_text(
    function: Callable[..., Any], definition: Definition, given: list[Any]
) -> say.InductorText:
    """Compile `function` for inputs like `given`, with the definition's variable axes as variables.

    `failure` says why there is no text: more than one graph, which Python runs between.
    """
    import torch
    from torch._inductor.codecache import PyCodeCache
    from torch._inductor.compile_fx import compile_fx
    from torch._inductor.utils import run_and_get_code

    names, graphs = [*definition.inputs], list[tuple[str, ...]]()
    given = [one.clone() if isinstance(one, torch.Tensor) else one for one in given]  # begin at 0

    def backend(graph: Any, inputs: list[Any]) -> Any:
        places = (node for node in graph.graph.nodes if node.op == "placeholder")
        graphs.append(tuple(_origin(node.meta["grapharg"].source, names) for node in places))
        return compile_fx(graph, inputs)

    for tensor, spec in zip(given, definition.inputs.values(), strict=True):
        for place, axis in enumerate(spec.shape or ()):
            if definition.axes[axis].type == "var" and tensor.shape[place] > 1:
                torch._dynamo.maybe_mark_dynamic(tensor, place)
    with torch.no_grad():
        _, texts = run_and_get_code(torch.compile(function, backend=backend), *given)
    if len(texts) != 1 or len(graphs) != 1:
        return say.InductorText(failure=f"torch.compile makes {len(graphs)} graphs of it")
    kernels = vars(PyCodeCache.modules[-1]).items()
    chosen = {
        name: {
            **{key: int(value) for key, value in best.config.kwargs.items()},
            "num_warps": best.config.num_warps,
            "num_stages": best.config.num_stages,
        }
        for name, kernel in kernels
        for best in getattr(kernel, "launchers", [])[:1]
    }
    return say.InductorText(text=texts[0], origins=graphs[0], chosen=chosen)


def _origin(source: Any, names: list[str]) -> str:
    """`L['x']`, also where the function was wrapped and the input is `L['args'][0]`. The source's name is a
    method in some releases of PyTorch, a property in others."""
    said = str(source.name() if callable(source.name) else source.name)
    return re.sub(r"L\['args'\]\[(\d+)\]", lambda found: f"L['{names[int(found[1])]}']", said)
