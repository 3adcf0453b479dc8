"""What ``glowplug bench`` measures of one model."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

import glowplug
from glowplug._profile import break_even

from .models import Built

Thunk = Callable[[], Any]
Step = Callable[[str], None]

WARM_CALLS = 2
OVERHEAD_CALLS = 300


@dataclass
class Timing:
    """Figures of one way to run a model; seconds."""

    how: str
    first_s: float
    steady_s: float
    overhead_s: float | None = None
    break_even_calls: int | None = None
    equal: bool = True


@dataclass
class Result:
    """All figures of one model."""

    model: str
    eager: Timing
    compiled: list[Timing] = field(default_factory=list)
    explanation: glowplug.Explanation | None = None
    profile: glowplug.Profile | None = None


def measure(name: str, built: Built, calls: int, compare: Sequence[str], step: Step) -> Result:
    """Measure eager, Glowplug and torch.compile's backends `compare`, in turn.

    Each steady figure is the median of `calls` calls, taken in rounds of one call of each way, so
    that all of them meet the same state of the machine.
    """
    module, args, kwargs = built
    ways: dict[str, Thunk] = {"eager": lambda: module(*args, **kwargs)}
    with torch.no_grad():
        step("eager")
        first_eager = seconds(ways["eager"])
        expected = ways["eager"]()
        compiled = []
        makers = {"glowplug": lambda: glowplug.compile(module)}
        makers |= {f"torch ({b})": _torch_compile(module, b) for b in compare}
        for how, make in makers.items():
            step(f"{how}: first call")
            run = make()
            ways[how] = lambda run=run: run(*args, **kwargs)  # type: ignore[misc]
            first = seconds(ways[how])
            equal = _equal(expected, ways[how]())
            compiled.append(Timing(how, first, 0.0, equal=equal))
        step("native code, in the background")
        glowplug.wait()
        step(f"steady state: {calls} calls of each")
        steady = in_turn(ways, calls)
        eager = Timing("eager", first_eager, steady["eager"])
        for timing in compiled:
            timing.steady_s = steady[timing.how]
            timing.break_even_calls = break_even(
                timing.first_s - eager.steady_s, eager.steady_s, timing.steady_s
            )
        step("overhead of a call")
        for timing in compiled:
            timing.overhead_s = overhead(_computing_nothing(module, timing.how), args, kwargs)
        result = Result(name, eager, compiled)
        step("explanation")
        result.explanation = glowplug.explain(module)(*args, **kwargs)
        step("the four costs")
        result.profile = profiled(module, args, kwargs, calls)
    return result


def seconds(thunk: Thunk) -> float:
    """Wall clock of one call."""
    start = time.perf_counter()
    thunk()
    return time.perf_counter() - start


def in_turn(ways: dict[str, Thunk], rounds: int) -> dict[str, float]:
    """The median time of each way over `rounds` rounds, after a few unmeasured ones."""
    times: dict[str, list[float]] = {how: [] for how in ways}
    for number in range(WARM_CALLS + rounds):
        for how, thunk in ways.items():
            spent = seconds(thunk)
            if number >= WARM_CALLS:
                times[how].append(spent)
    return {how: statistics.median(each) for how, each in times.items()}


def overhead(run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """The median cost of a call of `run`, compiled with a backend that computes nothing."""
    for _ in range(WARM_CALLS):
        run(*args, **kwargs)
    return statistics.median(seconds(lambda: run(*args, **kwargs)) for _ in range(OVERHEAD_CALLS))


def profiled(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], calls: int
) -> glowplug.Profile:
    """A profile of a fresh compilation: the recorded call and `calls` replays, with a baseline."""
    run = glowplug.compile(module)
    profile = glowplug.profile()
    profile.baseline(module, *args, **kwargs)
    with profile:
        for _ in range(1 + calls):
            run(*args, **kwargs)
    return profile


def _torch_compile(module: torch.nn.Module, backend: str) -> Callable[[], Any]:
    import torch._dynamo  # its import is not part of the first call that is measured

    return lambda: torch.compile(module, backend=backend)


def _computing_nothing(module: torch.nn.Module, how: str) -> Callable[..., Any]:
    def backend(graph: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Any:
        results = graph(*example_inputs)
        return lambda *tensors: results

    if how == "glowplug":
        return glowplug.compile(module, backend=backend)
    torch._dynamo.reset()
    return torch.compile(module, backend=backend)


def _equal(expected: Any, got: Any) -> bool:
    """Whether two results hold equal tensors, up to rounding, in the same places."""
    left, right = _tensors(expected), _tensors(got)
    return len(left) == len(right) and all(
        a.shape == b.shape and torch.allclose(a, b, rtol=1e-3, atol=1e-4)
        for a, b in zip(left, right, strict=True)
    )


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _tensors(item)]
    return []
