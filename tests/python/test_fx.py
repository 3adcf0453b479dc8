"""The FX bridge: recorded segments as graph modules, and backends that compile them."""

import pytest
import torch
from torch import nn

import glowplug
from glowplug import _fx


def capture(graphs):
    """A backend that runs what it gets and keeps it in `graphs`."""

    def backend(module, examples):
        graphs.append((module, examples))
        return module

    return backend


# The bridge alone, on hand-written segments


def op(target, args, results, lengths=(-1,), site=""):
    """An op as the engine gives it."""
    return {
        "target": target,
        "args": args,
        "kwargs": {},
        "results": results,
        "result_lengths": list(lengths),
        "site": site,
    }


def test_a_segment_becomes_a_graph_module(same):
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    graph = {
        "inputs": [(0, x), (1, y)],
        "ops": [
            op("aten::add.Tensor", [("v", 0), ("v", 1), 2], [2], site="model.py:12"),
            op("aten::cat", [[("v", 2), ("v", 0)], 1], [3]),
        ],
        "outputs": [3, 2],
    }
    module = _fx.to_graph_module(graph)
    same((torch.cat([x + 2 * y, x], 1), x + 2 * y), module(x, y))
    add, cat = (node for node in module.graph.nodes if node.op == "call_function")
    assert add.target is torch.ops.aten.add.Tensor
    assert add.kwargs == {"alpha": 2}
    assert cat.target is torch.ops.aten.cat.default
    assert "model.py:12" in add.meta["stack_trace"]


def test_several_results_and_lists_of_results(same):
    x = torch.randn(4, 2)
    graph = {
        "inputs": [(7, x)],
        "ops": [
            op("aten::max.dim", [("v", 7), 0, False], [8, 9], (-1, -1)),
            op("aten::chunk", [("v", 7), 2, 0], [-1, 11], (2,)),
            op("aten::aminmax", [("v", 7), 0, False], [-1, 12], (-1, -1)),
        ],
        "outputs": [8, 9, 11, 12],
    }
    values, indices = x.max(0)
    same((values, indices, x[2:], values), _fx.to_graph_module(graph)(x))


@pytest.mark.parametrize(
    ("target", "args", "expected"),
    [
        ("aten::to.dtype", [7, False, False, None], torch.float64),
        ("aten::to.dtype", [torch.float16, False, False, None], torch.float16),
        ("aten::zeros_like", [3, 0, None, None, 1], torch.int32),
    ],
)
def test_enumerations_as_numbers_become_objects(target, args, expected):
    x = torch.randn(2)
    cast = op(target, [("v", 0), *args], [1])
    module = _fx.to_graph_module({"inputs": [(0, x)], "ops": [cast], "outputs": [1]})
    assert module(x)[0].dtype is expected
    node = next(node for node in module.graph.nodes if node.op == "call_function")
    given = [*node.args[1:], *node.kwargs.values()]
    assert not any(type(value) is int for value in given)


def test_a_segment_without_all_examples_is_compiled_at_its_first_call(same):
    seen = []

    def backend(module, examples):
        seen.append(examples)
        return module

    graph = {
        "inputs": [(0, None), (1, torch.ones(2))],
        "ops": [op("aten::mul.Tensor", [("v", 0), ("v", 1)], [2])],
        "outputs": [2],
    }
    run = _fx.lower(backend, graph)
    assert seen == []
    x, y = torch.randn(2), torch.randn(2)
    for _ in range(2):
        same((x * y,), run(x, y))
    assert len(seen) == 1
    assert seen[0][0] is x


def test_a_backend_that_returns_nothing_is_named():
    def empty(module, examples):
        return None

    graph = {"inputs": [(0, torch.ones(1))], "ops": [], "outputs": [0]}
    with pytest.raises(TypeError, match=r"backend 'empty' returned NoneType"):
        _fx.lower(empty, graph)


# Through the engine


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        y = nn.functional.gelu(self.norm(self.lin(x)))
        a, b = y.chunk(2, dim=-1)
        return {"sum": a + b, "y": y}


def test_a_callable_backend_gets_the_whole_graph(same):
    graphs = []
    net, x = Net().eval(), torch.randn(2, 8)
    compiled = glowplug.compile(net, backend=capture(graphs))
    with torch.no_grad():
        expected = net(x)
        for _ in range(3):
            same(expected, compiled(x))
    assert len(graphs) == 1
    module, examples = graphs[0]
    assert isinstance(module, torch.fx.GraphModule)
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    assert len(placeholders) == len(examples)
    assert {id(p) for p in net.parameters()} <= {id(e) for e in examples} or len(examples) == 5
    for node in module.graph.nodes:
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            assert node.target.namespace == "aten"


def test_a_registered_backend_is_found_by_name(same):
    graphs = []
    glowplug.register_backend("capturing", capture(graphs))
    assert "capturing" in glowplug.list_backends()
    compiled = glowplug.compile(lambda x: x.relu() + 1, backend="capturing")
    same(torch.ones(2) + 1, compiled(torch.ones(2)))
    same(torch.ones(2) + 1, compiled(torch.ones(2)))
    assert len(graphs) == 1
    with pytest.raises(ValueError, match="own"):
        glowplug.register_backend("native", capture(graphs))
    with pytest.raises(TypeError, match="callable"):
        glowplug.register_backend("number", 3)


def test_backends_are_listed_own_first():
    listed = glowplug.list_backends()
    assert listed[:2] == ["native", "eager"]
    assert "inductor" in listed
    assert "glowplug" not in listed


@pytest.mark.unverified("the original has no backend that could raise")
def test_an_error_of_the_backend_comes_through(same):
    def failing(module, examples):
        raise RuntimeError("no such kernel")

    compiled = glowplug.compile(lambda x: x + 1, backend=failing)
    with pytest.raises(RuntimeError, match="no such kernel"):
        compiled(torch.ones(2))


def test_aot_eager_trains(same):
    net, x = Net(), torch.randn(2, 8)
    compiled = glowplug.compile(net, backend="aot_eager")
    for _ in range(2):
        net.zero_grad()
        net(x)["sum"].sum().backward()
        expected = [p.grad.clone() for p in net.parameters()]
        net.zero_grad()
        compiled(x)["sum"].sum().backward()
        for want, parameter in zip(expected, net.parameters(), strict=True):
            torch.testing.assert_close(parameter.grad, want)


@pytest.mark.slow
def test_inductor_compiles_segments():
    net, x = Net().eval(), torch.randn(2, 8)
    compiled = glowplug.compile(net, backend="inductor", options={"max_autotune": False})
    with torch.no_grad():
        expected = net(x)
        for _ in range(2):
            got = compiled(x)
            torch.testing.assert_close(got["sum"], expected["sum"])
            torch.testing.assert_close(got["y"], expected["y"])


@pytest.mark.slow
def test_inductor_writes_buffers_and_inputs():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x):
            self.seen.add_(1)
            x.mul_(2)
            return x + self.seen

    eager, net = Counting(), Counting()
    compiled = glowplug.compile(net, backend="inductor")
    for _ in range(3):
        x, y = torch.ones(3), torch.ones(3)
        torch.testing.assert_close(compiled(y), eager(x))
        torch.testing.assert_close(y, x)
    assert net.seen.item() == 3
