"""Glowplug as a backend of torch.compile: ``torch.compile(model, backend="glowplug")``.

torch finds it through the entry point group ``torch_dynamo_backends`` of the installed package; a
process that has imported torch._dynamo before glowplug gets it registered on import as well.
"""

import sys
from typing import Any

import torch
from torch.fx._lazy_graph_module import _LazyGraphModule

from ._compile import compile


def glowplug(
    graph: torch.fx.GraphModule,
    example_inputs: list[torch.Tensor],
    *,
    mode: str = "default",
    options: dict[str, Any] | None = None,
) -> Any:
    """Compile the graph that torch.compile captured; the result takes its inputs as arguments."""
    # torch.compile's modules write their code at the first call, which is not to be recorded.
    _LazyGraphModule.force_recompile(graph)
    entry = compile(graph.forward, mode=mode, options=options)

    # torch.compile looks through an entry, as through its own wrappers, to what was compiled.
    def run(*inputs: torch.Tensor) -> Any:
        return entry(*inputs)

    return run


def register_if_loaded() -> None:
    """Register at once where torch._dynamo is imported already; never import it for that."""
    registry = sys.modules.get("torch._dynamo.backends.registry")
    if registry is not None and "glowplug" not in registry._COMPILER_FNS:
        registry.register_backend(glowplug, name="glowplug")
