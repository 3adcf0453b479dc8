"""numpy's random numbers: the same stream as eager, from its global state and from generators."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import glowplug

Make = Callable[[], Callable[[torch.Tensor], Any]]


def seeds_inside() -> Callable[[torch.Tensor], Any]:
    def target(x: torch.Tensor) -> Any:
        np.random.seed(3)
        return x.sin() * float(np.random.rand()), np.random.randint(5)

    return target


def puts_the_state_back() -> Callable[[torch.Tensor], Any]:
    def target(x: torch.Tensor) -> Any:
        state = np.random.get_state()
        first = np.random.rand(3)
        np.random.set_state(state)
        return x + torch.from_numpy(first), torch.as_tensor(np.random.rand(3)) * 2

    return target


def arrays() -> Callable[[torch.Tensor], Any]:
    return lambda x: x.sin() * torch.from_numpy(np.random.randn(3)) + 1


def indexes_by_arrays() -> Callable[[torch.Tensor], Any]:
    generator = np.random.default_rng(1)
    return lambda x: x.sin()[generator.permutation(3)].cumsum(0)


def generator_of_the_call() -> Callable[[torch.Tensor], Any]:
    def target(x: torch.Tensor) -> Any:
        generator = np.random.default_rng(1)
        return x.sin() * float(generator.random()) + generator.normal()

    return target


def generator_on_a_module() -> Callable[[torch.Tensor], Any]:
    class Noisy(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.generator = np.random.default_rng(5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.cos() + torch.as_tensor(self.generator.normal(size=3))

    return Noisy()


def branch() -> Callable[[torch.Tensor], Any]:
    def target(x: torch.Tensor) -> torch.Tensor:
        if np.random.rand() < 0.5:
            return x.sin()
        return x.cos() * 2

    return target


def old_state_object() -> Callable[[torch.Tensor], Any]:
    state = np.random.RandomState(7)
    return lambda x: (x.sin()[state.randint(0, 3)], state.permutation(3))


def draws_that_decide_everything() -> Callable[[torch.Tensor], Any]:
    return lambda x: x * np.random.rand()


def shuffles_a_list() -> Callable[[torch.Tensor], Any]:
    def target(x: torch.Tensor) -> Any:
        items = [1, 2, 3, 4]
        np.random.shuffle(items)
        return items, x.sin()

    return target


def shuffles_an_array() -> Callable[[torch.Tensor], Any]:
    generator = np.random.default_rng(2)

    def target(x: torch.Tensor) -> Any:
        items = np.arange(4)
        generator.shuffle(items)
        return items, x.sin() + torch.as_tensor(items[:3])

    return target


def state_leaves() -> Callable[[torch.Tensor], Any]:
    return lambda x: (x.sin(), np.random.get_state()[1][:3], np.random.get_state()[2])


REPLAYED = [
    seeds_inside, puts_the_state_back, arrays, indexes_by_arrays, generator_of_the_call,
    generator_on_a_module, branch, old_state_object, shuffles_a_list, shuffles_an_array,
    state_leaves,
]  # fmt: skip


def plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return (str(value.dtype), value.tolist())
    return value


def observe(run: Callable[[torch.Tensor], Any], times: int) -> list[Any]:
    np.random.seed(11)
    seen = []
    for number in range(times):
        seen.append((plain(run(torch.arange(3.0) + number)), np.random.get_state()[1].tolist()))
    return seen


@pytest.mark.parametrize("make", [*REPLAYED, draws_that_decide_everything])
def test_the_same_stream_as_eager(make: Make) -> None:
    expected = observe(make(), 12)
    assert observe(glowplug.compile(make(), backend="eager"), 12) == expected


@pytest.mark.parametrize("make", REPLAYED)
def test_draws_are_replayed(make: Make) -> None:
    observe(glowplug.compile(make(), backend="eager"), 12)
    counted = glowplug.counters()
    assert counted["stats"]["replays"] >= 4
    assert not counted["refusals"]
