"""``glowplug.compile``: what may be compiled, and what comes back for it."""

import functools
import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

import torch

from . import _C, _backends, _module

log = logging.getLogger("glowplug")

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Config:
    """The arguments of ``compile``, checked."""

    fullgraph: bool = False
    dynamic: bool | None = None
    backend: str | Callable[..., Any] = _backends.NATIVE
    mode: str = "default"
    options: dict[str, Any] = field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments that make this configuration again."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@overload
def compile(
    model: F,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] = _backends.NATIVE,
    mode: str | None = "default",
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> F: ...


@overload
def compile(
    model: None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] = _backends.NATIVE,
    mode: str | None = "default",
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Callable[[F], F]: ...


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] = _backends.NATIVE,
    mode: str | None = "default",
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """Compile a module, a function, a bound method or another callable object.

    Use as a call, ``compile(model)``, or as a decorator, with or without arguments. The result is
    called like the original and gives what the original gives. A compiled module is of a subclass
    of the module's class and shares its ``__dict__``: parameters, hooks, ``state_dict()`` and
    ``train()``/``eval()`` are those of the original. Nothing runs before the first call.

    Args:
        model: what to compile; left out, a decorator comes back.
        fullgraph: raise, with reason and source line, where the recording breaks into several
            graphs, instead of going on.
        dynamic: True treats sizes as variable from the first recording, False never does, None
            (default) decides from what is met.
        backend: "native", "eager" (recorded and replayed through ATen, no code generation), the
            name of a registered or torch.compile backend ("inductor", ...), or a function
            ``fn(graph_module, example_inputs) -> callable``.
        mode: "default", "reduce-overhead", "max-autotune" or "max-autotune-no-cudagraphs".
        options: settings of the engine, and of the backend where it takes any, by name.
        disable: return `model` as it is.

    Raises:
        TypeError: `model` cannot be compiled; the message names what can.
        ValueError: unknown backend, mode or option; the message lists the known ones.
    """
    config = checked(fullgraph, dynamic, backend, mode, options)
    if model is None:
        return lambda fn: fn if disable else compile(fn, **config.arguments())
    if disable:
        return model
    return compile_with(original(model), config)


def checked(
    fullgraph: bool,
    dynamic: bool | None,
    backend: str | Callable[..., Any],
    mode: str | None,
    options: dict[str, Any] | None,
) -> Config:
    """The arguments as a Config. Raises TypeError or ValueError with the argument's name."""
    if not isinstance(fullgraph, bool):
        raise TypeError(f"fullgraph must be a bool; got {type(fullgraph).__name__}")
    if dynamic is not None and not isinstance(dynamic, bool):
        raise TypeError(f"dynamic must be a bool or None; got {type(dynamic).__name__}")
    if not isinstance(backend, str) and not callable(backend):
        raise TypeError(f"backend must be a name or a callable; got {type(backend).__name__}")
    mode = "default" if mode is None else mode
    if mode not in _backends.MODES:
        raise ValueError(f"mode {mode!r} is unknown; known: {', '.join(_backends.MODES)}")
    if options is not None and not isinstance(options, dict):
        raise TypeError(f"options must be a dict; got {type(options).__name__}")
    return Config(fullgraph, dynamic, backend, mode, dict(options or {}))


def original(model: Any) -> Any:
    """What was compiled, for a compiled module or function; `model` itself for anything else."""
    entry = entry_of(model)
    return model if entry is None else entry.__wrapped__


def entry_of(compiled: Any) -> _C.Entry | None:
    """The entry behind what ``compile`` returned; None for anything else."""
    if isinstance(compiled, _C.Entry):
        return compiled
    return _module.entry_of(compiled)


def config_of(compiled: Any) -> Config:
    """The configuration that `compiled` was made with; the default one for anything else."""
    entry = entry_of(compiled)
    return Config() if entry is None else entry.__dict__["_glowplug_config"]


def compile_with(model: Any, config: Config) -> Any:
    """``compile`` with checked arguments."""
    if isinstance(model, type) or not callable(model):
        what = f"the class {model.__name__}" if isinstance(model, type) else repr(model)
        raise TypeError(
            "glowplug.compile takes a torch.nn.Module, a function, a bound method or another "
            f"callable object; got {type(model).__name__} ({what[:80]})"
        )
    entry = make_entry(model, config)
    if isinstance(model, torch.nn.Module):
        return _module.compiled(model, entry)
    return _dress(entry, model, config)


def make_entry(model: Callable[..., Any], config: Config) -> _C.Entry:
    """An entry for `model`, as it is. Raises ValueError for an unknown backend or option."""
    backend, options = _backends.resolve(
        config.backend, config.mode, config.options, config.dynamic
    )
    lower = None if isinstance(backend, str) else _backends.lowering(backend)
    if backend == _backends.NATIVE:
        _say_native()
    entry = _C.Entry(model, _name(model), backend, lower, options, config.dynamic, config.fullgraph)
    entry.__dict__["_glowplug_config"] = config
    entry.__wrapped__ = model
    return entry


@functools.cache
def _say_native() -> None:
    log.info('backend "native" replays through ATen for now, as "eager" does; no code is generated')


def _name(model: Any) -> str:
    if isinstance(model, functools.partial):
        return _name(model.func)
    name = getattr(model, "__qualname__", None)
    return name if isinstance(name, str) else type(model).__qualname__


def _dress(entry: _C.Entry, fn: Callable[..., Any], config: Config) -> _C.Entry:
    """Make the entry look like `fn`: name, documentation, signature, pickling by the same name."""
    # Only a function's attributes are its wrapper's too; an object's are its state.
    updated = functools.WRAPPER_UPDATES if inspect.isfunction(fn) else ()
    functools.update_wrapper(entry, fn, updated=updated)
    entry.__dict__["_glowplug_config"] = config
    # Set on the object, where copy and pickle find it: a function is pickled by its name, and the
    # entry stands under that name; anything else is pickled itself and compiled again.
    if inspect.isfunction(fn):
        reduced: Any = fn.__qualname__
    else:
        reduced = (_compiled_again, (fn, config))
    entry.__dict__["__reduce_ex__"] = lambda protocol: reduced
    return entry


def _compiled_again(model: Any, config: Config) -> Any:
    return compile_with(model, config)
