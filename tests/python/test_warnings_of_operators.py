"""What operators warn of comes once a call, whether it is recorded, replayed or started again."""

import warnings
from collections.abc import Callable

import pytest
import torch

import glowplug


def overlapping(x: torch.Tensor) -> torch.Tensor:
    row = torch.sign(x).narrow(0, 0, 1).expand(2, 3)
    return row.masked_fill_(row != x, 0.5)


def after_a_write(x: torch.Tensor) -> torch.Tensor:
    x.add_(0)
    return overlapping(x)


def before_a_branch(x: torch.Tensor) -> torch.Tensor:
    y = overlapping(x)
    return y + 1 if x.sum() > 0 else y - 1


def before_an_index(x: torch.Tensor) -> torch.Tensor:
    y = overlapping(x)
    at = x.sum().long()
    return torch.index_select(y, 0, at)  # raises for some x, which is not known before it runs


def before_an_output(x: torch.Tensor) -> torch.Tensor:
    y = overlapping(x)
    print("between")
    return y


PROGRAMS = [overlapping, after_a_write, before_a_branch, before_an_index, before_an_output]
INPUTS = [torch.full((2, 3), v) for v in (0.0, 0.1, -0.1, 5.0, 0.0, -0.1, 0.1)]


def warned(f: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, action: str) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(action)
        try:
            result = str(f(x.clone()))
        except (IndexError, UserWarning) as error:
            result = f"{type(error).__name__}: {error}"
    return [result, *(str(item.message) for item in caught)]


@pytest.mark.parametrize("action", ["always", "error", "ignore"])
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_warnings_come_once(f: Callable[[torch.Tensor], torch.Tensor], action: str) -> None:
    compiled = glowplug.compile(f)
    for x in INPUTS:
        assert warned(compiled, x, action) == warned(f, x, action)


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_what_the_filter_does_is_no_part_of_the_recording(
    f: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    compiled = glowplug.compile(f)
    for action in ("error", "always", "ignore", "error", "always"):
        for x in INPUTS[:4]:
            assert warned(compiled, x, action) == warned(f, x, action)


def grad_of_an_input(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.grad is None else x


def grad_of_a_result(x: torch.Tensor) -> bool:
    return (x * 2).grad is None


def grad_before_a_branch(x: torch.Tensor) -> torch.Tensor:
    x.requires_grad
    print(x.grad)
    return x + 1 if x.sum() > 0 else x - 1


@pytest.mark.parametrize("action", ["always", "error", "ignore"])
@pytest.mark.parametrize("f", [grad_of_an_input, grad_of_a_result, grad_before_a_branch])
def test_the_warning_about_grad_comes_once(
    f: Callable[[torch.Tensor], torch.Tensor], action: str
) -> None:
    compiled = glowplug.compile(f)

    def on_a_view(g: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
        return lambda x: g(x.requires_grad_()[:])

    for x in INPUTS:
        expected = warned(on_a_view(f), x, action)
        assert len(expected) == (2 if action == "always" else 1)
        assert warned(on_a_view(compiled), x, action) == expected
