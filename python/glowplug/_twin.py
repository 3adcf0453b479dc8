"""Compiled modules, and other compiled objects that have state.

A compiled module must be a module in every respect: the same ``state_dict`` keys, hooks, class
checks, ``train()``/``eval()``. A wrapper module fails most of that. So the compiled module is a
twin: an instance of a subclass, made for it alone, of the module's own class, that shares the
module's ``__dict__``. The two objects are one module under two types, and differ only in the call.

The subclass in turn passes for the class: it is equal to it, makes instances of it, hands on
attributes set on it. Only ``is`` tells the two apart.
"""

import copy
import copyreg
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from . import _C

# Where the subclass keeps its facts; also how a twin is told from others.
_FACTS = "_glowplug_twin"


class Facts(NamedTuple):
    """What a twin's type knows: the original, what is called, and how to make a twin of a copy."""

    original: Any
    call: Callable[..., Any]
    again: Callable[..., Any]
    settings: tuple[Any, ...]


class _Seat:
    """What the subclass is made under, before it moves under the original's class."""


def can_have(thing: Any) -> bool:
    """Whether all state of `thing` is in its ``__dict__``, so that a twin can share it."""
    cls = type(thing)
    same = all(
        getattr(cls, name) == getattr(_Seat, name)
        for name in ("__basicsize__", "__itemsize__", "__dictoffset__", "__weakrefoffset__")
    )
    return same and all(_is_pythons(base) for base in cls.__mro__[:-1])


def _is_pythons(cls: type) -> bool:
    heap_type, immutable = 1 << 9, 1 << 8
    return bool(cls.__flags__ & heap_type) and not cls.__flags__ & immutable


def twin(thing: Any, call: Callable[..., Any], again: Callable[..., Any], *settings: Any) -> Any:
    """A second object for `thing`: same ``__dict__``, its class but for the call, which is `call`.

    ``again(copy, *settings)`` makes the twin of a copy. Raises TypeError for an object with state
    outside its ``__dict__``: what is in slots cannot be shared.
    """
    if not can_have(thing):
        _refuse(type(thing))
    made: Any = object.__new__(_subclass(type(thing), Facts(thing, call, again, settings)))
    object.__setattr__(made, "__dict__", thing.__dict__)
    return made


def entry_of(thing: Any) -> _C.Entry | None:
    """The entry of a compiled module or object; None for anything else."""
    facts = _facts(type(thing))
    return facts.call if facts is not None and isinstance(facts.call, _C.Entry) else None


def _refuse(cls: type) -> NoReturn:
    slots = {slot for base in cls.__mro__ for slot in _slots(base)}
    where = f"{', '.join(sorted(slots))} in __slots__" if slots else "state outside its __dict__"
    raise TypeError(
        f"{cls.__qualname__} keeps {where}, which a compiled module cannot share with its "
        "original; compile its forward method instead"
    )


def _slots(cls: type) -> set[str]:
    slots = vars(cls).get("__slots__", ())
    return {slots} if isinstance(slots, str) else {*slots} - {"__dict__", "__weakref__"}


def _facts(cls: type) -> Facts | None:
    # No class derives from a twin's type (see _new_class), so what is found is its own.
    found = getattr(cls, _FACTS, None)
    return found if isinstance(found, Facts) else None


def _plain(cls: Any) -> Any:
    """The class that `cls` passes for, or `cls`."""
    facts = _facts(cls) if isinstance(cls, type) else None
    return cls if facts is None else type(facts.original)


def _subclass(cls: type, facts: Facts) -> type:
    namespace = {
        # As a static method, the call reaches the entry without self and without a Python frame.
        "__call__": staticmethod(facts.call),
        "__new__": _new,
        "__reduce_ex__": _reduce,
        "__copy__": _copy,
        "__deepcopy__": _deepcopy,
        "__class__": property(lambda self: type(facts.original), _set_class),
        # torch.compile and torch.export take the original of what another compiler has compiled.
        "_torchdynamo_orig_callable": property(lambda self: facts.original),
        "_torchdynamo_wrapper_id": property(id),
        _FACTS: facts,
    }
    if all(getattr(cls, name) is getattr(object, name) for name in ("__eq__", "__hash__")):
        namespace["__eq__"] = lambda self, other: (
            _original(other) is facts.original or NotImplemented
        )
        namespace["__hash__"] = lambda self: object.__hash__(facts.original)
    # Made under a class of no one's and moved under `cls` afterwards: so the user's
    # __init_subclass__ and metaclass, which may keep a registry or want arguments, do not hear of a
    # class that is not theirs.
    made: type = type.__new__(_metaclass(type(cls)), cls.__name__, (_Seat,), namespace)
    _move_under(made, cls)
    return made


def _move_under(made: type, cls: type) -> None:
    """Let `made`, a twin's type, derive from `cls` and bear its name."""
    type.__dict__["__bases__"].__set__(made, (cls,))
    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        type.__setattr__(made, name, getattr(cls, name))


# The methods of a twin: it is copied and pickled as its original, and compiled again.


def _again(again: Callable[..., Any], original: Any, settings: tuple[Any, ...]) -> Any:
    return again(original, *settings)


def _new(cls: type, *args: Any, **kwargs: Any) -> Any:
    """``type(self).__new__(type(self))`` is an empty object of the original's class."""
    cls = _plain(cls)
    return cls.__new__(cls, *args, **kwargs)


def _reduce(self: Any, protocol: Any) -> tuple[Any, ...]:
    facts = _facts(type(self))
    assert facts is not None
    return _again, (facts.again, facts.original, facts.settings)


def _copy(self: Any) -> Any:
    facts = _facts(type(self))
    assert facts is not None
    return facts.again(copy.copy(facts.original), *facts.settings)


def _deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    facts = _facts(type(self))
    assert facts is not None
    made = facts.again(copy.deepcopy(facts.original, memo), *facts.settings)
    memo[id(self)] = made
    return made


def _set_class(self: Any, cls: type) -> None:
    """Another class for both, as torch.nn.utils.parametrize gives one to a module."""
    facts = _facts(type(self))
    assert facts is not None
    facts.original.__class__ = _plain(cls)
    _move_under(type(self), type(facts.original))


def _original(thing: Any) -> Any:
    facts = _facts(type(thing))
    return thing if facts is None else facts.original


# The methods of a twin's type.


@functools.cache
def _metaclass(meta: type) -> type:
    """The subclass of `meta` whose classes pass for the class that they were made for."""
    namespace = {
        "__new__": _new_class,
        "__call__": lambda cls, *args, **kwargs: _plain(cls)(*args, **kwargs),
        "__eq__": lambda cls, other: _plain(cls) is _plain(other) or NotImplemented,
        "__hash__": lambda cls: hash(_plain(cls)),
        "__setattr__": lambda cls, name, value: setattr(_plain(cls), name, value),
        "__delattr__": lambda cls, name: delattr(_plain(cls), name),
        "__instancecheck__": lambda cls, thing: isinstance(thing, _plain(cls)),
        # Not issubclass(): an abstract class asks all its subclasses, this one among them.
        "__subclasscheck__": lambda cls, other: type.__subclasscheck__(_plain(cls), other),
        "__dict__": property(lambda cls: vars(_plain(cls))),
        "__bases__": property(lambda cls: _plain(cls).__bases__),
        "__mro__": property(lambda cls: _plain(cls).__mro__),
        "__qualname__": meta.__qualname__,
        "__module__": meta.__module__,
    }
    made = type.__new__(type, meta.__name__, (meta,), namespace)
    copyreg.pickle(made, lambda cls: (_plain, (_plain(cls),)))
    return made


def _new_class(
    meta: type, name: str, bases: tuple[Any, ...], namespace: dict[str, Any], **kwargs: Any
) -> Any:
    """Who derives from a twin's type derives from the original's class."""
    bases = tuple(_plain(base) for base in bases)
    return type(bases[0])(name, bases, namespace, **kwargs)
