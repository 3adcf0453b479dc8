"""Switches: leave a function alone, ask whether a recording is under way, change the stance."""

import functools
import inspect
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch

from . import _C, _twin

# Meaning of each stance, as torch.compiler.set_stance has them.
STANCES = {
    "default": "record, replay, record again when no trace fits",
    "force_eager": "run every compiled callable as if it had not been compiled",
    "eager_on_recompile": "replay where a trace fits, run eagerly where none does",
    "fail_on_recompile": "replay where a trace fits, raise where none does",
}

_stance = "default"
_stance_lock = threading.Lock()


def disable(fn: Any = None) -> Any:
    """Leave `fn` out of every recording: a call of it is run for real, again at each replay.

    Takes a function or another callable, or a module; also works as a decorator with empty
    parentheses. The result is called like the original.
    """
    if fn is None:
        return disable
    if not callable(fn):
        raise TypeError(f"glowplug.disable takes a callable; got {type(fn).__name__}")

    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    # Only a function's attributes are its wrapper's too; an object's are its state.
    updated = functools.WRAPPER_UPDATES if inspect.isfunction(fn) else ()
    wrapper = functools.update_wrapper(call, fn, updated=updated)
    wrapper._glowplug_disabled = True  # type: ignore[attr-defined]
    if isinstance(fn, torch.nn.Module):
        return _twin.twin(fn, wrapper, disable)
    return wrapper


def is_compiling() -> bool:
    """Whether the calling code runs inside a recording."""
    return _C.is_recording()


class set_stance:  # noqa: N801  (a function to its users, as in torch.compiler)
    """Set what compiled callables do, at once and for all threads.

    Used as a function it stays; as a context manager or a decorator it ends with the block::

        glowplug.set_stance("force_eager")
        with glowplug.set_stance("fail_on_recompile"): ...

    The stances are default, force_eager, eager_on_recompile and fail_on_recompile. Raises
    ValueError for another one.
    """

    def __init__(self, stance: str = "default") -> None:
        if stance not in STANCES:
            raise ValueError(f"stance {stance!r} is unknown; known: {', '.join(STANCES)}")
        self.stance = stance
        self.before = _set(stance)

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """As a decorator: the stance holds while `fn` runs, and not before."""
        _set(self.before)

        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with set_stance(self.stance):
                return fn(*args, **kwargs)

        return wrapper

    def __enter__(self) -> "set_stance":
        _set(self.stance)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _set(self.before)


def _set(stance: str) -> str:
    global _stance
    with _stance_lock:
        _C.set_stance(stance)
        before, _stance = _stance, stance
    return before
