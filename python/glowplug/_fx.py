"""The FX bridge: a recorded segment as a ``torch.fx.GraphModule`` of ATen ops.

The engine hands a segment over as plain data::

    {"inputs": [(id, tensor or None), ...],
     "ops": [{"target": "aten::add.Tensor", "args": [...], "results": [...],
              "result_lengths": [...], "site": "file.py:12"}, ...],
     "outputs": [id, ...]}

``("v", id)`` stands for a value wherever one may stand in `args`, which holds all arguments in the
order of the operator's schema. `results` names the tensors that come back, lists laid flat, -1 for
one that nobody uses; `result_lengths` has -1 for each single one and the length for each list. An
input that exists only while the program runs has no example yet: None.
"""

import functools
import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

Compiled = Callable[..., Sequence[torch.Tensor]]

# c10::MemoryFormat, by its number; torch gives no way to ask for it.
_MEMORY_FORMATS = (
    torch.contiguous_format,
    torch.preserve_format,
    torch.channels_last,
    torch.channels_last_3d,
)


def lower(backend: Callable[..., Any], graph: dict[str, Any]) -> Compiled:
    """Let `backend` compile the segment `graph`; what it returns takes and gives tensors.

    Where an example input is missing, this waits for the first call, which brings them all.
    Raises TypeError when the backend returns something that cannot be called.
    """
    module = to_graph_module(graph)
    examples = [tensor for _, tensor in graph["inputs"]]
    if any(example is None for example in examples):
        return _compiled_at_first_call(backend, module)
    return _compiled(backend, module, examples)


def _compiled(
    backend: Callable[..., Any], module: fx.GraphModule, examples: list[torch.Tensor]
) -> Compiled:
    compiled = backend(module, examples)
    if not callable(compiled):
        raise TypeError(
            f"backend {getattr(backend, '__name__', backend)!r} returned "
            f"{type(compiled).__name__}, which cannot be called"
        )
    return compiled


def _compiled_at_first_call(backend: Callable[..., Any], module: fx.GraphModule) -> Compiled:
    compiled: Compiled | None = None
    lock = threading.Lock()

    def run(*tensors: torch.Tensor) -> Sequence[torch.Tensor]:
        nonlocal compiled
        if compiled is None:
            with lock:
                compiled = compiled or _compiled(backend, module, list(tensors))
        return compiled(*tensors)

    return run


def to_graph_module(graph: dict[str, Any]) -> fx.GraphModule:
    """The segment as a graph module: takes the segment's inputs, returns a tuple of its outputs."""
    built = fx.Graph()
    constants: dict[str, torch.Tensor] = {}
    values = {
        value: built.placeholder(f"input_{position}")
        for position, (value, _) in enumerate(graph["inputs"])
    }
    for op in graph["ops"]:
        _add_op(built, values, constants, op)
    built.output(tuple(values[value] for value in graph["outputs"]))
    return fx.GraphModule(constants, built, class_name="GlowplugSegment")


def _add_op(
    built: fx.Graph,
    values: dict[int, fx.Node],
    constants: dict[str, torch.Tensor],
    op: dict[str, Any],
) -> None:
    target = overload(op["target"])
    if target is torch.ops.aten.lift_fresh.default and isinstance(op["args"][0], torch.Tensor):
        # Each call makes the tensor anew: what is written to it must not reach the constant.
        target = torch.ops.aten.lift_fresh_copy.default
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for value, (name, kind, keyword) in zip(op["args"], _parameters(target), strict=False):
        if isinstance(value, torch.Tensor):
            constants[f"constant_{len(constants)}"] = value
            argument = built.get_attr(f"constant_{len(constants) - 1}")
        else:
            argument = _argument(value, kind, values)
        if keyword:
            kwargs[name] = argument
        else:
            args.append(argument)
    node = built.call_function(target, tuple(args), kwargs)
    if op["site"]:
        node.meta["stack_trace"] = f"File {op['site']}"
    _name_results(built, values, node, op["results"], op["result_lengths"])


def _name_results(
    built: fx.Graph,
    values: dict[int, fx.Node],
    node: fx.Node,
    results: list[int],
    lengths: list[int],
) -> None:
    """Let each result's id stand for the node that gives it: an op's own, or an item of it."""

    def item(of: fx.Node, position: int) -> fx.Node:
        return built.call_function(operator.getitem, (of, position))

    flat = iter(results)
    for position, length in enumerate(lengths):
        ids = [next(flat) for _ in range(1 if length < 0 else length)]
        if all(value < 0 for value in ids):
            continue
        returned = node if len(lengths) == 1 else item(node, position)
        for number, value in enumerate(ids):
            if value >= 0:
                values[value] = returned if length < 0 else item(returned, number)


def _argument(value: Any, kind: str, values: dict[int, fx.Node]) -> Any:
    if isinstance(value, tuple) and len(value) == 2 and value[0] == "v":
        return values[value[1]]
    if isinstance(value, (list, tuple)):
        return [_argument(item, kind, values) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        # Enumerations travel as numbers; Python decompositions want the objects.
        if "ScalarType" in kind:
            return _dtype(value)
        if "Layout" in kind:
            return _layout(value)
        if "MemoryFormat" in kind:
            return _MEMORY_FORMATS[value]
    return value


@functools.cache
def _parameters(target: Any) -> tuple[tuple[str, str, bool], ...]:
    """Name, type and whether it goes by keyword only, of each parameter of an overload."""
    return tuple((p.name, str(p.real_type), p.kwarg_only) for p in target._schema.arguments)


@functools.cache
def _dtype(number: int) -> torch.dtype:
    return torch.ops.aten.empty.memory_format([0], dtype=number).dtype


@functools.cache
def _layout(number: int) -> torch.layout:
    return torch.ops.aten.empty.memory_format([0], layout=number).layout


@functools.cache
def overload(target: str) -> Any:
    """The overload of ``torch.ops`` that "namespace::name.overload" means."""
    namespace, _, rest = target.partition("::")
    name, _, variant = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), name)
    return getattr(packet, variant or "default")
