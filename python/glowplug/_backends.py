"""Backends by name: Glowplug's own, the registered ones, and torch.compile's.

A backend is a callable ``fn(graph_module, example_inputs) -> callable``, as for ``torch.compile``:
the graph module holds ATen ops in program order, every tensor it uses (parameters too) is a
placeholder, and the result is called with those tensors and returns a sequence of tensors.
"""

import functools
import logging
from collections.abc import Callable
from typing import Any

import torch

log = logging.getLogger("glowplug")

Backend = Callable[..., Any]

TIER_1 = "eager"
NATIVE = "native"
OWN = (NATIVE, TIER_1)
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")

_registered: dict[str, Backend] = {}


def register_backend(name: str, fn: Backend) -> Backend:
    """Make `fn` known as ``backend=name``; returns `fn`.

    A name registered twice takes the later function. Raises ValueError for the name of one of
    Glowplug's own backends, TypeError when `fn` cannot be called.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of a backend is a str; got {type(name).__name__}")
    if not callable(fn):
        raise TypeError(f"backend {name!r} must be callable; got {type(fn).__name__}")
    if name in OWN:
        raise ValueError(f"backend {name!r} is Glowplug's own; register under another name")
    _registered[name] = fn
    return fn


def list_backends(exclude_tags: tuple[str, ...] = ("debug", "experimental")) -> list[str]:
    """Names that ``backend=`` takes: Glowplug's own first, then the others in order.

    `exclude_tags` leaves out torch.compile backends that carry one of the tags, as
    ``torch.compiler.list_backends`` does; they still work when named.
    """
    from torch._dynamo.backends.registry import list_backends as of_torch

    others = {*_registered, *of_torch(exclude_tags)} - {*OWN, "glowplug"}
    return [*OWN, *sorted(others)]


def resolve(
    backend: str | Backend, mode: str, options: dict[str, Any], dynamic: bool | None
) -> tuple[str | Backend, dict[str, Any]]:
    """The backend that the engine gets (its name, or a function) and the options meant for it.

    Options that are the backend's own (inductor's configuration) are bound to the function; the
    others stay for the engine, which knows its own. Raises ValueError for an unknown name.
    """
    if mode != "default" and backend not in (NATIVE, "inductor"):
        log.warning("glowplug: backend %r ignores mode %r", backend, mode)
    if callable(backend) and not isinstance(backend, str):
        return backend, options
    if backend in OWN:
        return backend, options
    if backend in _registered:
        return _registered[backend], options
    if backend == "inductor":
        return _inductor(mode, options, dynamic)
    return _of_torch(backend), options


def _inductor(
    mode: str, options: dict[str, Any], dynamic: bool | None
) -> tuple[Backend, dict[str, Any]]:
    from torch._inductor import config

    known = config.get_config_copy()
    theirs = {k: v for k, v in options.items() if k.replace("-", "_") in known}
    ours = {k: v for k, v in options.items() if k not in theirs}
    return torch._TorchCompileInductorWrapper(mode, theirs, dynamic), ours


def _of_torch(name: str) -> Backend:
    from torch._dynamo.backends import registry

    if name == "glowplug" or name not in registry.list_backends(exclude_tags=()):
        raise ValueError(f"backend {name!r} is unknown; known: {', '.join(list_backends())}")
    return registry.lookup_backend(name)


def lowering(backend: Backend) -> Callable[[dict[str, Any]], Any]:
    """What the engine calls, once a segment, to have it compiled by `backend`."""
    return functools.partial(_lower, backend)


def _lower(backend: Backend, graph: dict[str, Any]) -> Any:
    from . import _fx

    return _fx.lower(backend, graph)
