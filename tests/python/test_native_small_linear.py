"""Linear layers so small that a kernel computes them, with what is around them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import glowplug

torch.manual_seed(0)


def native(model: Callable[..., Any]) -> Callable[..., Any]:
    return glowplug.compile(model, options={"native": True})


def check(model: Callable[..., Any], *args: Any) -> list[Any]:
    """Compares three calls with eager; gives the fates of the linear layers."""
    with torch.no_grad():
        compiled = native(model)
        compiled(*args)
        glowplug.wait()
        for _ in range(2):
            torch.testing.assert_close(compiled(*args), model(*args), rtol=1e-5, atol=1e-5)
        explained = glowplug.explain(compiled)(*args)
    assert glowplug.counters()["stats"]["recordings"] >= 1
    return [fate for fate in explained.native if fate.op.startswith("aten::linear")]


@pytest.mark.parametrize("shape", [(4, 32), (2, 3, 16), (7, 5), (1, 130)])
@pytest.mark.parametrize("out", [2, 3, 4, 17, 64])
@pytest.mark.parametrize("bias", [True, False])
def test_shapes(shape: tuple[int, ...], out: int, bias: bool) -> None:
    layer = nn.Linear(shape[-1], out, bias=bias)
    fates = check(lambda x: functional.gelu(layer(x)), torch.randn(shape))
    assert [fate.kernel >= 0 for fate in fates] == [True]


def test_rows_of_several_lengths_in_one_kernel() -> None:
    wide, norm = nn.Linear(8, 24), nn.LayerNorm(8)

    def model(x: Tensor) -> Tensor:
        return torch.softmax(wide(norm(x)).relu() + 1, -1) * x.mean(-1, keepdim=True)

    assert [fate.kernel for fate in check(model, torch.randn(5, 8))] == [0]


def test_layers_of_one_input() -> None:
    layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))

    def model(x: Tensor) -> list[Tensor]:
        h = x * 2
        return [torch.tanh(layer(h)) for layer in layers]

    assert all(fate.kernel >= 0 for fate in check(model, torch.randn(3, 16)))


def test_a_result_that_is_needed_itself() -> None:
    layer = nn.Linear(8, 12)

    def model(x: Tensor) -> tuple[Tensor, Tensor]:
        y = layer(x)
        return y, y.relu()

    check(model, torch.randn(4, 8))


def test_a_matrix_that_is_also_a_tensor_of_rows() -> None:
    def model(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return functional.linear(x, w).relu() + w, functional.linear(w, w).exp()

    check(model, torch.randn(4, 4), torch.randn(4, 4))


def test_a_matrix_made_in_the_call() -> None:
    layer = nn.Linear(8, 8)

    def model(x: Tensor) -> Tensor:
        return functional.linear(x * 2, layer.weight * 3, layer.bias * 2).relu() + 1

    check(model, torch.randn(8, 8))


def test_a_matrix_that_changes() -> None:
    layer = nn.Linear(8, 8)
    compiled = native(lambda x: layer(x).sigmoid())
    x = torch.randn(4, 8)
    with torch.no_grad():
        for _ in range(3):
            compiled(x)
            glowplug.wait()
            layer.weight.mul_(0.5)
            layer.weight.data.add_(0.1)
            torch.testing.assert_close(compiled(x), layer(x).sigmoid())


def test_what_no_kernel_computes() -> None:
    one, large = nn.Linear(8, 1), nn.Linear(256, 512)
    assert [f.kernel for f in check(lambda x: one(x).relu() + 1, torch.randn(4, 8))] == [-1]
    assert [f.kernel for f in check(lambda x: large(x).relu() + 1, torch.randn(64, 256))] == [-1]


def test_results_do_not_depend_on_threads() -> None:
    layer, norm = nn.Linear(64, 32), nn.LayerNorm(64)
    compiled = native(lambda x: layer(norm(x)).relu())
    x = torch.randn(40, 64)
    threads = torch.get_num_threads()
    with torch.no_grad():
        compiled(x)
        glowplug.wait()
        results = []
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            results.append(compiled(x))
        torch.set_num_threads(threads)
    assert all(torch.equal(results[0], other) for other in results)


@pytest.mark.parametrize("size", [1, 6])
def test_a_mean_over_a_dimension_that_is_broadcast(size: int) -> None:
    def model(x: Tensor) -> tuple[Tensor, Tensor]:
        return (x + 1).mean(-1) * 2, x.sum(-1, keepdim=True).exp()

    with torch.no_grad():
        compiled = native(model)
        x = torch.randn(5, 1).expand(5, size)
        compiled(x)
        glowplug.wait()
        torch.testing.assert_close(compiled(x), model(x))
