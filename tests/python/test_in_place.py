"""Compiled modules are changed in place, as ``nn.Module`` and ``torch.nn.utils`` allow it."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

from copied_modules import Holder, hold, twice


def ones(module: nn.Module) -> None:
    if type(module) == nn.Linear:  # noqa: E721
        nn.init.ones_(module.weight)


def test_compiled_over_a_submodule(same: Any) -> None:
    def program(wrap: Callable[[Any], Any]) -> Any:
        model, x = hold(wrap), torch.randn(3, 4)
        names = [n for n, _ in model.named_modules()], [n for n, _ in model.named_parameters()]
        results = [names, list(model.state_dict()), model(x), model(x)]
        model.eval()
        results += [model.layer.training, model.layer.norm.training, model(x), model(x)]
        model.requires_grad_(False)
        results += [model(x).requires_grad, model(x).requires_grad]
        model.double()
        results += [model(x.double()), model(x.double())]
        model.layer.register_buffer("late", torch.ones(4))
        results += [list(model.state_dict()), model(x.double())]
        model.share_memory()
        results += [model.layer.lin.weight.is_shared(), model(x.double())]
        model.apply(ones)
        model.layer.zero_grad()
        results += [model(x.double()), model.layer.calls]
        model.layer.add_module("more", nn.Linear(1, 1))
        del model.layer.norm
        model.layer.norm = nn.Identity()
        return [*results, model(x.double()), model(x.double()), str(model)]

    twice(program, same)


def test_hooks_of_every_kind(same: Any) -> None:
    def program(wrap: Callable[[Any], Any]) -> Any:
        model, x, seen = hold(wrap), torch.randn(3, 4, requires_grad=True), []
        layer = model.layer
        handles = [
            layer.register_forward_pre_hook(lambda m, args: (args[0] * 2,)),
            layer.register_forward_hook(lambda m, args, result: result + 1),
            layer.register_full_backward_hook(lambda m, gi, go: seen.append(go[0].clone())),
            layer.register_state_dict_pre_hook(lambda *args: seen.append("state")),
            layer.register_forward_hook(
                lambda m, args, kwargs, result: seen.append(len(kwargs)), with_kwargs=True
            ),
        ]
        results = []
        for _ in range(2):
            y = model(x)
            y.sum().backward()
            results.append([y, x.grad.clone(), len(model.state_dict())])
        for handle in handles:
            handle.remove()
        return [results, seen, model(x)]

    twice(program, same)


REPARAMETRIZED: dict[str, Callable[[nn.Module], Any]] = {
    "parametrize": lambda m: parametrize.register_parametrization(m, "weight", nn.Tanh()),
    "weight_norm": parametrizations.weight_norm,
    "spectral_norm": parametrizations.spectral_norm,
    "orthogonal": parametrizations.orthogonal,
    "spectral_norm by hooks": nn.utils.spectral_norm,
    "prune": lambda m: prune.l1_unstructured(m, "weight", 0.5),
}


@pytest.mark.parametrize("when", ["before", "after", "after calls"])
@pytest.mark.parametrize("kind", REPARAMETRIZED)
def test_reparametrized(kind: str, when: str, same: Any) -> None:
    def program(wrap: Callable[[Any], Any]) -> Any:
        module, x = nn.Linear(4, 4), torch.randn(3, 4)
        if when == "before":
            REPARAMETRIZED[kind](module)
            module = wrap(module)
        else:
            module = wrap(module)
            if when == "after calls":
                module(x), module(x)
            REPARAMETRIZED[kind](module)
        results = [module(x) for _ in range(3)]
        module(x).sum().backward()
        results += [[p.grad for p in module.parameters()], list(module.state_dict())]
        twin = copy.deepcopy(module) if "hooks" not in kind and kind != "prune" else module
        results += [twin(x), type(twin).__name__, module.weight.shape]
        if parametrize.is_parametrized(module):
            parametrize.remove_parametrizations(module, "weight")
        return [*results, module(x), module(x), list(module.state_dict()), type(module).__name__]

    twice(program, same)


def test_a_graph_module_is_rewritten(same: Any) -> None:
    def program(wrap: Callable[[Any], Any]) -> Any:
        module, x = wrap(torch.fx.symbolic_trace(Holder())), torch.randn(3, 4)
        results = [module(x), module(x)]
        for node in module.graph.nodes:
            if node.target == "relu":
                node.target = "sigmoid"
        module.recompile()
        twins = [copy.deepcopy(module), pickle.loads(pickle.dumps(module))]
        return [*results, module(x), module(x), module.code, [twin(x) for twin in twins]]

    twice(program, same)


def test_a_script_module(same: Any) -> None:
    def program(wrap: Callable[[Any], Any]) -> Any:
        module, x = wrap(torch.jit.script(nn.Linear(4, 4))), torch.randn(3, 4)
        results = [module(x), module(x), list(module.state_dict()), module.code]
        return [*results, copy.deepcopy(module)(x), type(module).__name__]

    twice(program, same)
