"""Programs for many threads: each gives what eager gives, whoever else calls it meanwhile.

Each program has one entry that all threads call. What it writes to belongs to a thread, which runs
the original beside it on a second set of the same.
"""

import contextlib
import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

import glowplug
from conftest import equal

SHAPES = [(1, 8), (2, 8), (3, 8), (5, 8)]

Run = Callable[[torch.Tensor], Any]


def inputs() -> list[torch.Tensor]:
    """More kinds of tensors than an entry has recordings by default."""
    plain = [torch.randn(shape) for shape in SHAPES]
    return plain + [-t for t in plain] + [t.double() for t in plain[:2]]


# Without state


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, t: torch.Tensor) -> Any:
        y = torch.relu(self.linear(t.float())) + self.norm(t.float())
        return {"y": y, "parts": (t, [y * 2])}


def branch(t: torch.Tensor) -> torch.Tensor:
    if t.sum() > 0:
        return t.cos() * 2
    return t.sin() - 1


def fail(t: torch.Tensor) -> torch.Tensor:
    if t.shape[0] == 2:
        raise ValueError("two rows")
    return t @ t.T


def fail_at_an_operator(t: torch.Tensor) -> torch.Tensor:
    # For some contents, which no guard looks at, the index is out of range.
    return t.flatten()[(t.sum(dtype=torch.float64) * 10).long().abs() % 16]


def in_place(t: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        u = t.clone()
        u.add_(1)
    return u * t


# With state of the calling thread


class Statistics(nn.Module):
    """Buffers that each call writes to, and names that it sets."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8, momentum=0.3)
        self.register_buffer("total", torch.zeros(8, dtype=torch.float64))

    def forward(self, t: torch.Tensor) -> torch.Tensor:
        self.total.mul_(0.5).add_(t.detach().sum(0))
        y = self.norm(torch.cat([t, t + 1]).float())
        self.last = y.detach()
        return y + self.total.float()

    def state(self) -> Any:
        return dict(self.state_dict()), self.last


class Box:
    """What a thread has for itself."""

    def __init__(self) -> None:
        self.last: Any = None
        self.results: list[Any] = []
        self.seen = 0

    def state(self) -> Any:
        results, self.results = self.results, []
        return self.last, self.seen, results, [result is self.last for result in results]


def note(t: torch.Tensor, box: Box) -> torch.Tensor:
    result = t * 2 + 1
    box.last = result
    box.results.append(result)
    return result


@glowplug.disable
def look(box: Box) -> None:
    box.seen += len(box.results)


def note_and_branch(t: torch.Tensor, box: Box) -> torch.Tensor:
    """What it has written is seen by others before it turns out which way it goes on."""
    result = t * 2
    box.results.append(result)
    look(box)
    if result.sum() > 0:
        box.last = result.cos()
    else:
        box.last = result
    return box.last + 1


class Weight:
    def __init__(self) -> None:
        self.weight = torch.ones(8, requires_grad=True)

    def state(self) -> Any:
        return self.weight.grad


def descend(t: torch.Tensor, own: Weight) -> torch.Tensor:
    """Reads a gradient that no Python object stands for yet: backward() has made it."""
    before = own.weight.grad
    own.weight.grad = None
    (t.detach().float() * own.weight).sum().backward()
    return t if before is None else t + before


class Place(threading.local):
    """What each thread finds at the same names."""

    def __init__(self) -> None:
        self.total = torch.zeros((), dtype=torch.float64)
        self.shapes: list[Any] = []


HERE, THERE = Place(), Place()  # of compiled calls, and of eager ones


def of_the_thread(t: torch.Tensor, place: Place) -> torch.Tensor:
    place.total = place.total * 0.5 + t.detach().sum()
    place.shapes.append(t.shape)
    return t + place.total


def part_of_thread(place: Place) -> Any:
    shapes, place.shapes = place.shapes, []
    return place.total, shapes


class Program:
    """A function of a tensor and of what a thread has for it.

    `make` makes that, twice alike; `state` tells what has become of it.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        make: Callable[[], tuple[Any, Any]] | None = None,
        state: Callable[[Any], Any] = lambda own: own.state(),
        **options: Any,
    ) -> None:
        self.function, self.make, self.state = function, make, state
        self.compiled: Any = glowplug.compile(function, options={"max_traces": 32} | options)

    @property
    def entry(self) -> Any:
        return glowplug._compile.entry_of(self.compiled)

    def part(self) -> Callable[[torch.Tensor, bool], str]:
        """For one thread: runs a call both ways and says where they differ, or nothing."""
        if self.make is None:
            return lambda t, grad: compare(self.function, self.compiled, t, grad)
        own, other = self.make()

        def run(t: torch.Tensor, grad: bool) -> str:
            left, right = (lambda x: self.function(x, own)), (lambda x: self.compiled(x, other))
            text = compare(left, right, t, grad)
            return text or difference(self.state(own), self.state(other), "state")

        return run


@contextlib.contextmanager
def frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def run_all(works: list[Callable[[], None]]) -> None:
    """Each work in a thread; the first exception of any is raised here."""
    errors: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    with frequent_switches():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


def outcome(f: Run, t: torch.Tensor, grad: bool) -> Any:
    with torch.set_grad_enabled(grad):
        try:
            return f(t)
        except (ValueError, RuntimeError, IndexError) as error:
            return type(error), str(error)


def compare(eager: Run, compiled: Run, t: torch.Tensor, grad: bool) -> str:
    return difference(outcome(eager, t, grad), outcome(compiled, t, grad), "result")


def difference(expected: Any, got: Any, path: str) -> str:
    """Where the two differ first, or nothing."""
    if type(expected) is not type(got):
        return f"{path}: {expected!r} is not {got!r}"
    if isinstance(expected, torch.Tensor):
        same = expected.dtype is got.dtype and expected.stride() == got.stride()
        same = same and expected.requires_grad is got.requires_grad
        same = same and equal(expected, got)
    elif isinstance(expected, dict):
        if list(expected) != list(got):
            return f"{path}: {list(expected)} is not {list(got)}"
        return "".join(difference(expected[key], got[key], f"{path}[{key!r}]") for key in expected)
    elif isinstance(expected, (list, tuple)) and len(expected) == len(got):
        pairs = enumerate(zip(expected, got, strict=True))
        return "".join(difference(e, g, f"{path}[{n}]") for n, (e, g) in pairs)
    else:
        same = expected == got
    return "" if same else f"{path}: {expected!r} is not {got!r}; "


def statistics() -> tuple[Statistics, Statistics]:
    return Statistics(), Statistics()


def update(t: torch.Tensor, module: Statistics) -> torch.Tensor:
    return module(t)


def programs() -> list[Program]:
    blocks = [Program(Block().eval()), Program(Block().eval())]
    plain = [Program(f) for f in (branch, fail, fail_at_an_operator, in_place)]
    boxes = [Program(f, lambda: (Box(), Box())) for f in (note, note_and_branch)]
    return [
        *blocks,
        *plain,
        *boxes,
        Program(branch, max_traces=2),  # stays eager after that, until the next reset
        Program(update, statistics),
        Program(descend, lambda: (Weight(), Weight())),
        Program(of_the_thread, lambda: (THERE, HERE), part_of_thread),
    ]


class Crowd:
    """Programs that many threads call at once while others reset their entries."""

    def __init__(self) -> None:
        self.programs = programs()
        self.inputs = inputs()

    def work(self, seed: int, calls: int) -> None:
        """The calls of one thread; half of them are compiled, half are eager beside them."""
        generator = random.Random(seed)
        parts = [program.part() for program in self.programs]
        for number in range(calls):
            n = generator.randrange(len(parts))
            m = generator.randrange(len(self.inputs))
            grad = generator.random() < 0.3
            if text := parts[n](self.inputs[m], grad):
                name = self.programs[n].entry.describe()["name"]
                raise AssertionError(f"{seed=} {number=} {name} {m=} {grad=}: {text}")

    def reset(self, seed: int, done: threading.Event) -> None:
        generator = random.Random(seed)
        while not done.wait(generator.random() * 0.02):
            if generator.random() < 0.3:
                glowplug.reset()
            else:
                generator.choice(self.programs).entry.reset()
            glowplug.counters(), glowplug.compile_times()
            generator.choice(self.programs).entry.describe()

    def run(self, callers: int, calls: int, resetters: int) -> None:
        done = threading.Event()
        with contextlib.ExitStack() as stack:
            for n in range(resetters):
                thread = threading.Thread(target=self.reset, args=(n, done))
                thread.start()
                stack.callback(thread.join)
            stack.callback(done.set)
            run_all([lambda n=n: self.work(n, calls) for n in range(callers)])
