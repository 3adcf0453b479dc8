"""Glowplug: a just-in-time compiler for PyTorch programs.

``glowplug.compile(model_or_function)`` is used like ``torch.compile``. The first call runs at about
eager speed and is recorded while it runs; later calls replay the recording behind guards.

Nothing here holds semantics: what a program means is decided in the extension ``glowplug._C``.
"""

import atexit as _atexit

import torch as _torch  # noqa: F401  (the extension needs torch's libraries loaded)

from . import _C
from ._backends import list_backends, register_backend
from ._compile import compile
from ._control import disable, is_compiling, set_stance
from ._counters import CompileTimes, compile_times, counters, reset, wait
from ._explain import BreakReason, Explanation, GuardInfo, explain
from ._profile import Profile, profile
from ._torch_backend import register_if_loaded as _register_if_loaded

__version__ = "0.1.0"

_register_if_loaded()
_atexit.register(_C.stop_background)

__all__ = [
    "BreakReason",
    "CompileTimes",
    "Explanation",
    "GuardInfo",
    "Profile",
    "compile",
    "compile_times",
    "counters",
    "disable",
    "explain",
    "is_compiling",
    "list_backends",
    "profile",
    "register_backend",
    "reset",
    "set_stance",
    "wait",
]
