"""Compiled modules.

A compiled module must be a module in every respect: the same ``state_dict`` keys, hooks, class
checks, ``train()``/``eval()``. A wrapper module fails most of that. So the compiled module is an
instance of a subclass, made for it alone, of the module's own class, and shares the module's
``__dict__``: the two objects are one module under two types, and differ only in ``__call__``.
"""

import copy
from typing import Any

import torch

from . import _C

# Where the subclass keeps its entry; also how a compiled module is told from others.
_ENTRY = "_glowplug_entry"


def compiled(module: torch.nn.Module, entry: _C.Entry) -> torch.nn.Module:
    """`module` under a type whose call is `entry`."""
    namespace = {
        # As a static method, the call reaches the entry without self and without a Python frame.
        "__call__": staticmethod(entry),
        "__reduce_ex__": _reduce,
        "__copy__": _copy,
        "__deepcopy__": _deepcopy,
        _ENTRY: entry,
    }
    return with_type(module, namespace)


def entry_of(module: Any) -> _C.Entry | None:
    """The entry of a compiled module; None for anything else."""
    entry = vars(type(module)).get(_ENTRY)
    return entry if isinstance(entry, _C.Entry) else None


def with_type(module: torch.nn.Module, namespace: dict[str, Any]) -> torch.nn.Module:
    """A second object for `module`: same ``__dict__``, a subclass of its class with `namespace`.

    Raises TypeError for a class with ``__slots__``: what is in slots cannot be shared.
    """
    cls = type(module)
    slots = sorted(_slots(cls))
    if slots:
        raise TypeError(
            f"{cls.__qualname__} keeps {', '.join(slots)} in __slots__, which a compiled module "
            "cannot share with its original; compile its forward method instead"
        )
    twin: torch.nn.Module = object.__new__(_subclass(cls, namespace))
    object.__setattr__(twin, "__dict__", module.__dict__)
    return twin


def _slots(cls: type) -> set[str]:
    found: set[str] = set()
    for base in cls.__mro__:
        slots = vars(base).get("__slots__", ())
        found.update([slots] if isinstance(slots, str) else slots)
    return found - {"__dict__", "__weakref__"}


def _subclass(cls: type, namespace: dict[str, Any]) -> type:
    namespace = {
        **namespace,
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
    }
    # Made under torch.nn.Module and moved under `cls` afterwards: so the user's __init_subclass__,
    # which may keep a registry or want arguments, does not hear of a class that is not theirs.
    meta = type(cls)
    made = meta.__new__(meta, cls.__name__, (torch.nn.Module,), namespace)
    if cls is not torch.nn.Module:
        made.__bases__ = (cls,)
    return made


def _reduce(self: torch.nn.Module, protocol: Any) -> tuple[Any, ...]:
    entry = vars(type(self))[_ENTRY]
    return _again, (entry.__wrapped__, entry.__dict__["_glowplug_config"])


def _copy(self: torch.nn.Module) -> torch.nn.Module:
    entry = vars(type(self))[_ENTRY]
    return _again(copy.copy(entry.__wrapped__), entry.__dict__["_glowplug_config"])


def _deepcopy(self: torch.nn.Module, memo: dict[int, Any]) -> torch.nn.Module:
    entry = vars(type(self))[_ENTRY]
    made = _again(copy.deepcopy(entry.__wrapped__, memo), entry.__dict__["_glowplug_config"])
    memo[id(self)] = made
    return made


def _again(module: torch.nn.Module, config: Any) -> torch.nn.Module:
    from ._compile import compile_with

    made: torch.nn.Module = compile_with(module, config)
    return made
