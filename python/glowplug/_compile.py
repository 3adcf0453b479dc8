"""``glowplug.compile``: what may be compiled, and what comes back for it."""

import copy
import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

import torch

from . import _C, _backends, _twin

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
        options: settings of the engine, and of the backend where it takes any, by name;
            ``{"disable_passes": [...]}`` leaves out passes of native code.
        disable: return `model` as it is.

    Raises:
        TypeError: `model` cannot be compiled; the message names what can.
        ValueError: unknown backend, mode, option or pass (the message lists the known ones), or
            two of them that contradict each other (it names both).
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
    return _twin.entry_of(compiled)


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
    if isinstance(model, torch.nn.Module) or _twin.can_have(model):
        return _twin.twin(model, entry, compile_with, config)
    return _dress(entry, model, config)


def make_entry(model: Callable[..., Any], config: Config) -> _C.Entry:
    """An entry for `model`, as it is. Raises ValueError for an unknown backend or option."""
    backend, options = _backends.resolve(
        config.backend, config.mode, config.options, config.dynamic
    )
    lower = None if isinstance(backend, str) else _backends.lowering(backend)
    entry = _C.Entry(model, _name(model), backend, lower, options, config.dynamic, config.fullgraph)
    entry.__dict__["_glowplug_config"] = config
    entry.__wrapped__ = model
    return entry


def _name(model: Any) -> str:
    if isinstance(model, functools.partial):
        return _name(model.func)
    name = getattr(model, "__qualname__", None)
    return name if isinstance(name, str) else type(model).__qualname__


def _dress(entry: _C.Entry, fn: Callable[..., Any], config: Config) -> _C.Entry:
    """Make the entry look like `fn`: name, documentation, signature."""
    # Only a function's attributes are its wrapper's too; an object's are its state.
    updated = functools.WRAPPER_UPDATES if inspect.isfunction(fn) else ()
    functools.update_wrapper(entry, fn, updated=updated)
    entry.__dict__["_glowplug_config"] = config
    return entry


# What every entry has in common with a function is the type's, and reaches the original, so that
# neither goes out of date.


def _reduce(self: _C.Entry, protocol: Any) -> str | tuple[Any, ...]:
    """A function is pickled by its name, where the entry stands under it, and is not copied.

    Everything else is pickled itself and compiled again.
    """
    fn = self.__wrapped__
    if inspect.isfunction(fn) and _named(fn) is not fn:
        return fn.__qualname__
    return compile_with, (fn, self.__dict__["_glowplug_config"])


def _named(fn: Any) -> Any:
    """What is found under the name of `fn`; None if nothing is."""
    found: Any = sys.modules.get(fn.__module__)
    for name in fn.__qualname__.split("."):
        found = getattr(found, name, None)
    return found


def _copy(self: _C.Entry) -> _C.Entry:
    fn = copy.copy(self.__wrapped__)
    return self if fn is self.__wrapped__ else compile_with(fn, self.__dict__["_glowplug_config"])


def _deepcopy(self: _C.Entry, memo: dict[int, Any]) -> _C.Entry:
    fn = copy.deepcopy(self.__wrapped__, memo)
    return self if fn is self.__wrapped__ else compile_with(fn, self.__dict__["_glowplug_config"])


def _of_original(name: str) -> property:
    def get(self: _C.Entry) -> Any:
        return getattr(self.__wrapped__, name)

    def put(self: _C.Entry, value: Any) -> None:
        setattr(self.__wrapped__, name, value)

    return property(get, put)


def _extend_entry() -> None:
    methods: dict[str, Any] = {
        "__repr__": lambda self: f"<compiled {self.__wrapped__!r}>",
        "__reduce_ex__": _reduce,
        "__copy__": _copy,
        "__deepcopy__": _deepcopy,
    }
    of_functions = ("__code__", "__defaults__", "__kwdefaults__", "__globals__", "__closure__")
    methods |= {name: _of_original(name) for name in (*of_functions, "__func__", "__self__")}
    # torch.compile and torch.export take the original of what another compiler has compiled.
    methods["_torchdynamo_orig_callable"] = property(lambda self: self.__wrapped__)
    methods["_torchdynamo_wrapper_id"] = property(id)
    for name, method in methods.items():
        setattr(_C.Entry, name, method)


_extend_entry()
