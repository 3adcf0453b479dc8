"""Verify mode: each compiled call beside the original, and the first difference between them.

The original runs in a forked copy of the process, so that it finds the very state that the compiled
call finds: arguments, attributes, globals, closures, random numbers. Both sides describe what they
leave behind as a flat table, path -> text, and the tables are compared. Tensors are described by
dtype, shape, strides, flags and a digest of their bytes, so equal means equal to the bit; which
paths lead to the same object or memory is a part of the description.

While a call is checked torch runs on one thread: OpenMP's threads do not survive a fork, and sums
depend on how many there are. Calls made while other Python threads are alive are made without the
check, which is said once: what those threads hold or wait for would stand still in the fork.

Where native code rounds otherwise, float32 tensors and Python floats need only be close: the forked
process is then asked for the contents behind the digests that differ. Before such a call the
background thread is waited for, so that what is checked is the code that later calls run.
"""

import contextlib
import functools
import hashlib
import io
import logging
import math
import multiprocessing
import os
import random
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from . import _C

log = logging.getLogger("glowplug")

_DEEPEST = 12  # levels of attributes and items that are described
_MOST = 20_000  # rows of one description


class DifferenceError(AssertionError):
    """A compiled call left something else behind than the original."""


class _Description:
    """What an object looks like, by the paths that lead into it."""

    def __init__(self) -> None:
        self.rows: dict[str, str] = {}
        self._seen: dict[int, str] = {}
        self.floats: dict[str, torch.Tensor | float] = {}  # what may be close instead of equal
        self._storages: dict[int, str] = {}
        self._alive: list[Any] = []  # an address must not come to mean another object

    def add(self, path: str, value: Any, depth: int = 0) -> None:
        """Describe `value` as what is found at `path`."""
        if len(self.rows) >= _MOST or depth > _DEEPEST:
            return
        if _is_value(value):
            self.rows[path] = f"{type(value).__name__} {value!r}"
            if type(value) is float:
                self.floats[path] = value
            return
        known = self._seen.setdefault(id(value), path)
        if known != path:
            self.rows[path] = f"the object at {known}"
            return
        self._alive.append(value)
        self.rows[path] = f"{type(value).__module__}.{type(value).__qualname__}"
        if isinstance(value, torch.Tensor):
            self._add_tensor(path, value, depth)
            return
        for name, part in _parts(value):
            self.add(path + name, part, depth + 1)

    def _add_tensor(self, path: str, tensor: torch.Tensor, depth: int) -> None:
        meta = f"{tensor.dtype} {tuple(tensor.shape)} {tensor.layout} grad={tensor.requires_grad}"
        self.rows[path] += " " + meta
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or not tensor.is_cpu:
            return
        if tensor.layout is torch.strided:
            memory = tensor.untyped_storage().data_ptr()
            if memory:
                self._storages.setdefault(memory, path)
                self.rows[path + ".memory"] = f"that of {self._storages[memory]}"
            self.rows[path + ".strides"] = f"{tensor.stride()} from {tensor.storage_offset()}"
            plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
            data = plain.reshape(-1).view(torch.uint8).numpy().tobytes()
            digest = hashlib.sha1(data).hexdigest()
            few = plain.reshape(-1)[:4].tolist()
            self.rows[path + ".data"] = f"{digest} {few}..."
            if plain.dtype is torch.float32:
                self.floats[path + ".data"] = plain
        if tensor.is_leaf and tensor.grad is not None:
            self.add(path + ".grad", tensor.grad, depth + 1)


def _is_value(value: Any) -> bool:
    """Whether it is nothing but what it says: which object it is does not count."""
    if type(value) in (tuple, torch.Size):
        return all(_is_value(item) for item in value)
    return value is None or isinstance(value, (bool, int, float, complex, str, bytes))


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for i, (key, item) in enumerate(value.items()):
            label = f"[{key!r}]" if isinstance(key, (str, int, float, bool)) else f"[key {i}]"
            yield label, item
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield f"[{i}]", item
    elif isinstance(value, (set, frozenset)):
        yield ".items", sorted(repr(item) for item in value)
    elif isinstance(value, types.MethodType):
        yield ".__self__", value.__self__
    elif isinstance(value, types.FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # an empty cell
                yield f".<{name}>", cell.cell_contents
    if isinstance(value, (types.ModuleType, type)):
        return  # the process's, not the call's
    if type(value).__module__.startswith("torch._dynamo."):
        return  # what another compiler notes of its work
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict):
        for name, item in attributes.items():
            yield f".{name}", item


def _describe(
    original: Any, args: tuple[Any, ...], kwargs: dict[str, Any], ended: Any
) -> _Description:
    description = _Description()
    description.add("result", ended)
    description.add("args", args)
    description.add("kwargs", kwargs)
    description.add("callee", original)
    function = getattr(original, "__func__", original)
    if isinstance(function, types.FunctionType):
        for name in function.__code__.co_names:
            value = function.__globals__.get(name)
            if not isinstance(value, (types.ModuleType, type)) and not callable(value):
                description.add(f"global {name}", value)
    description.rows["torch random numbers"] = hashlib.sha1(
        torch.get_rng_state().numpy().tobytes()
    ).hexdigest()
    description.rows["random numbers"] = hashlib.sha1(repr(random.getstate()).encode()).hexdigest()
    return description


def _run(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """What the call returns, or a text for what it raises and that."""
    try:
        return call(), None
    except BaseException as error:
        return f"raises {type(error).__name__}: {error}", error


class _Original:
    """The call of the original in a forked process, and what it leaves.

    With `stays` that process waits to be asked for contents until ``end``.
    """

    def __init__(
        self, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any], stays: bool
    ) -> None:
        self._stays = stays
        self._connection, theirs = multiprocessing.Pipe()
        numbers = random.getstate()
        self._child = os.fork()
        if self._child == 0:
            status = 1
            try:
                random.setstate(numbers)  # module random seeds itself anew after a fork
                _C.set_stance("force_eager")  # other entries are originals here, too
                self._connection.close()
                _answer(theirs, original, args, kwargs, stays)
                status = 0
            finally:
                os._exit(status)  # nothing of the parent's may run twice
        theirs.close()
        try:
            self.rows: dict[str, str] = self._connection.recv()
        except EOFError:
            self.rows = {}
        if not (stays and self.rows):
            self._wait()
        if not self.rows:
            raise DifferenceError(f"verify: the original {original!r} ended its process")

    def floats(self, paths: list[str]) -> dict[str, torch.Tensor | float]:
        """The floats at those paths."""
        self._connection.send(paths)
        found: dict[str, torch.Tensor | float] = self._connection.recv()
        return found

    def end(self) -> None:
        """Let the process go."""
        if self._stays:
            self._connection.send(None)
            self._wait()

    def _wait(self) -> None:
        self._connection.close()
        os.waitpid(self._child, 0)


def _answer(
    connection: Any, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any], stays: bool
) -> None:
    """What the forked process does."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        with warnings.catch_warnings():
            ended, _ = _run(lambda: original(*args, **kwargs))
        left = _describe(original, args, kwargs, ended)
    left.rows["output"] = out.getvalue()
    connection.send(left.rows)
    while stays and (paths := connection.recv()) is not None:
        # As numpy arrays: tensors would be sent as handles of shared memory.
        wanted = {path: left.floats[path] for path in paths if path in left.floats}
        connection.send(
            {p: v.numpy() if isinstance(v, torch.Tensor) else v for p, v in wanted.items()}
        )


def _is_close(expected: Any, found: Any, tolerance: float) -> bool:
    """Whether each element is that close to its counterpart, or to the size of a usual element."""
    if type(expected) is float and type(found) is float:
        both_nan = math.isnan(expected) and math.isnan(found)
        return both_nan or math.isclose(expected, found, rel_tol=tolerance)
    expected, found = torch.as_tensor(expected).double(), torch.as_tensor(found).double()
    if expected.shape != found.shape:
        return False
    finite = expected[expected.isfinite()]
    usual = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
    return torch.allclose(found, expected, rtol=tolerance, atol=tolerance * usual, equal_nan=True)


class _Tee(io.StringIO):
    """Keeps what is written and passes it on."""

    def __init__(self, onward: Any) -> None:
        super().__init__()
        self.onward = onward

    def write(self, text: str) -> int:
        self.onward.write(text)
        return super().write(text)


def check(entry: _C.Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make the call, compiled, and raise DifferenceError where it differs from the original.

    Called for entries with the option ``verify`` (or GLOWPLUG_VERIFY=1).
    """
    if len(sys._current_frames()) > 1:
        _say_unchecked()
        return _C.call_unverified(entry, args, kwargs)
    original = entry.callable
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    _C.wait()
    tolerance = entry.tolerance()
    beside = None
    try:
        sys.stdout.flush()
        beside = _Original(original, args, kwargs, stays=tolerance is not None)
        tee = _Tee(sys.stdout)
        with contextlib.redirect_stdout(tee):
            ended, error = _run(lambda: _C.call_unverified(entry, args, kwargs))
        found = _describe(original, args, kwargs, ended)
        found.rows["output"] = tee.getvalue()
        path = _first_difference(beside, found, tolerance)
    finally:
        torch.set_num_threads(threads)
        if beside is not None:
            beside.end()
    if error is not None and _is_refusal(error):
        raise error
    if path is not None:
        raise DifferenceError(_report(entry, path, beside.rows, found.rows, tolerance))
    if error is not None:
        raise error
    return ended


def _first_difference(
    beside: _Original, found: _Description, tolerance: float | None
) -> str | None:
    """The first path at which the two differ by more than they may."""
    paths = [p for p in beside.rows | found.rows if beside.rows.get(p) != found.rows.get(p)]
    if tolerance is None or not paths:
        return paths[0] if paths else None
    theirs = beside.floats([path for path in paths if path in found.floats])
    for path in paths:
        if path not in theirs or not _is_close(theirs[path], found.floats[path], tolerance):
            return path
    return None


@functools.cache
def _say_unchecked() -> None:
    log.warning("glowplug: verify: calls made while other threads are alive are not checked")


def _is_refusal(error: BaseException) -> bool:
    """Whether it is no exception of the program's: fullgraph=True or the stance asks for it."""
    return type(error) is RuntimeError and str(error).startswith("glowplug: ")


def _report(
    entry: _C.Entry,
    path: str,
    expected: dict[str, str],
    found: dict[str, str],
    tolerance: float | None,
) -> str:
    facts = entry.describe()
    beyond = "" if tolerance is None else f" by more than a relative {tolerance:g}"
    text = (
        f"verify: {facts['name']} differs from the original at {path}{beyond}\n"
        f"  original: {expected.get(path, 'nothing')}\n"
        f"  compiled: {found.get(path, 'nothing')}"
    )
    for trace in facts["traces"]:
        sites = trace["result_sites"]
        places = [place for place in sites if path.startswith(place)]
        if places:
            maker = sites[max(places, key=len)]
            return f"{text}\n  made by: {maker}{_by_native_code(trace['native'], maker)}"
    return text


def _by_native_code(native: dict[str, Any] | None, maker: str) -> str:
    """Which native code computes that operator, if any."""
    for fate in native["operators"] if native else ():
        if f"{fate['op']} at {fate['site']}" != maker:
            continue
        if fate["kernel"] >= 0:
            kernel = native["kernels"][fate["kernel"]] if native else ""
            return f", in kernel {fate['kernel']}:\n{kernel}"
        if fate["packed"]:
            return ", with a packed weight"
        if fate["attention"]:
            return ", in the kernel for attention"
    return ""
