"""Checkpointing, gradient modes, functional transforms, saved-tensor hooks and training loops."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import glowplug
from autograd_programs import Compile, Programs, check, check_no_break, data, leaf, outcome

programs = Programs()


def gradients(compile: Compile, f: Any, *more: Any, calls: int = 4) -> Any:
    c, log = compile(f), []
    for n in range(calls):
        x = leaf(4, seed=n)
        y = c(x, *more)
        y.sum().backward()
        log += [y, x.grad]
    return log


def block(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x.sin(), 0.5) * x.cos()


@programs
def checkpoint_plain(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> Any:
        return checkpoint(block, x * 2, use_reentrant=False) + 1

    return gradients(compile, f), torch.rand(2)


@programs
def checkpoint_reentrant(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> Any:
        return checkpoint(block, x * 2, use_reentrant=True) + 1

    return gradients(compile, f), torch.rand(2)


@programs
def checkpoint_no_rng(compile: Compile) -> Any:
    def f(x: torch.Tensor, reentrant: bool) -> Any:
        y = checkpoint(torch.sin, x * 2, use_reentrant=reentrant, preserve_rng_state=False)
        return y + torch.rand(4)

    return gradients(compile, f, True), gradients(compile, f, False)


@programs
def checkpoint_modules(compile: Compile) -> Any:
    class Net(nn.Module):
        def __init__(self, reentrant: bool) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.reentrant = reentrant
            self.blocks = nn.ModuleList(
                nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.3)) for _ in range(3)
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for part in self.blocks:
                x = checkpoint(part, x, use_reentrant=self.reentrant)
            return x * 2

    log: list[Any] = []
    for reentrant in (False, True):
        net = Net(reentrant)
        c = compile(net)
        for n in range(4):
            net.zero_grad()
            x = leaf(2, 4, seed=n)
            y = c(x)
            y.sum().backward()
            log += [y, x.grad, [p.grad for p in net.parameters()]]
        net.eval()
        with torch.no_grad():
            log += [c(data(2, 4)), c(data(2, 4, seed=5))]
    return log


@programs
def checkpoint_sequence(compile: Compile) -> Any:
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh())
    c = compile(lambda x: checkpoint_sequential(net, 2, x, use_reentrant=False) * 2)
    log: list[Any] = []
    for n in range(3):
        net.zero_grad()
        c(leaf(2, 4, seed=n)).sum().backward()
        log.append([p.grad.clone() for p in net.parameters()])
    return log


@programs
def checkpoint_with_backward_inside(compile: Compile) -> Any:
    w = leaf(4)

    def f(x: torch.Tensor, reentrant: bool) -> Any:
        w.grad = None
        loss = checkpoint(block, w * x, use_reentrant=reentrant).sum()
        loss.backward()
        return loss.detach() * 2, w.grad * 2

    c = compile(f)
    return [c(data(4, seed=n), n % 2 == 0) for n in range(6)]


@programs
def checkpoint_keeps_count(compile: Compile) -> Any:
    seen: list[Any] = []

    def body(x: torch.Tensor, k: int) -> torch.Tensor:
        seen.append((k, torch.is_grad_enabled()))
        return x.sin() * k

    def f(x: torch.Tensor) -> Any:
        return checkpoint(body, x + 1, 2, use_reentrant=False) * 2

    return gradients(compile, f), seen


@programs
def checkpoint_above(compile: Compile) -> Any:
    c, log = compile(lambda x: F.dropout(x.sin(), 0.5) * 2), []
    for reentrant in (False, True):
        for n in range(3):
            x = leaf(4, seed=n)
            y = checkpoint(c, x, use_reentrant=reentrant)
            y.sum().backward()
            log += [y, x.grad]
    return log


@programs
def grad_inside(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        y = (x.sin() * x).sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        (gg,) = torch.autograd.grad((g**2).sum(), x, retain_graph=True)
        (none,) = torch.autograd.grad(y, torch.ones(2, requires_grad=True), allow_unused=True)
        return g.detach() * 2, gg * 2, none

    c = compile(f)
    return [c(data(4, seed=n)) for n in range(4)]


@programs
def double_backward_through(compile: Compile) -> Any:
    c, log = compile(lambda x: (x.sin() * x**3).sum()), []
    for n in range(4):
        x = leaf(4, seed=n)
        (g,) = torch.autograd.grad(c(x), x, create_graph=True)
        (gg,) = torch.autograd.grad(g.sum(), x, create_graph=True)
        gg.sum().backward()
        log += [g, gg, x.grad]
    return log


@programs
def gradient_penalty(compile: Compile) -> Any:
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

    def f(x: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        (g,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        return ((g.norm(dim=1) - 1) ** 2).mean()

    c, log = compile(f), []
    for n in range(4):
        net.zero_grad()
        loss = c(data(3, 4, seed=n))
        loss.backward()
        log += [loss, [p.grad for p in net.parameters()]]
    return log


@programs
def modes(compile: Compile) -> Any:
    @torch.no_grad()
    def without(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    @torch.enable_grad()
    def with_(x: torch.Tensor) -> torch.Tensor:
        return x.cos()

    @torch.inference_mode()
    def inference(x: torch.Tensor) -> torch.Tensor:
        return x.exp()

    def f(x: torch.Tensor, flag: bool) -> Any:
        a = without(x)
        with torch.set_grad_enabled(flag):
            b = x * a
            with torch.enable_grad():
                d = x * 3
            with torch.no_grad():
                e = with_(x) + d
        g = inference(x)
        h = torch.autograd.grad_mode.no_grad
        with h():
            i = x + 1
        return a, b, d, e, g, g.is_inference(), i, torch.is_grad_enabled()

    c, log = compile(f), []
    for n, flag in enumerate((True, False, True, False, True)):
        log.append(c(leaf(4, seed=n), flag))
    with torch.no_grad():
        log += [c(leaf(4), True), c(leaf(4), False)]
    with torch.inference_mode():
        log.append([t for t in c(data(4), True) if isinstance(t, bool)])
    return log


@programs
def mode_left_by_exception(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> Any:
        try:
            with torch.no_grad():
                y = x * 2
                raise ValueError
        except ValueError:
            return y, x * 3, torch.is_grad_enabled()

    c = compile(f)
    return [c(leaf(4, seed=n)) for n in range(3)]


@programs
def mode_left_changed(compile: Compile) -> Any:
    def f(x: torch.Tensor, on: bool) -> Any:
        torch.set_grad_enabled(on)
        return x * 2

    c, log = compile(f), []
    for on in (False, False, True, False, True):
        log += [c(leaf(3), on), torch.is_grad_enabled()]
        torch.set_grad_enabled(True)
    return log


@programs
def autocast(compile: Compile) -> Any:
    torch.manual_seed(1)
    linear = nn.Linear(4, 4)

    @torch.autocast("cpu", dtype=torch.bfloat16)
    def decorated(x: torch.Tensor) -> torch.Tensor:
        return linear(x)

    def f(x: torch.Tensor, on: bool) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=on):
            a = linear(x) @ x.t()
            with torch.autocast("cpu", enabled=False):
                b = linear(a.float() @ x)
        return a, b, decorated(x), linear(x)

    c, log = compile(f), []
    for n, on in enumerate((True, True, False, True, False)):
        linear.zero_grad()
        out = c(leaf(4, 4, seed=n), on)
        sum(t.float().sum() for t in out).backward()
        log += [out, linear.weight.grad]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        log += [c(leaf(4, 4), True), c(leaf(4, 4), False)]
    return log


@programs
def custom_casts(compile: Compile) -> Any:
    class Cast(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
        def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu")
        def backward(ctx: Any, g: torch.Tensor) -> Any:
            x, w = ctx.saved_tensors
            return g @ w.t(), x.t() @ g

    def f(x: torch.Tensor, w: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return Cast.apply(x @ w, w).float() * 2

    c, log = compile(f), []
    for n in range(3):
        x, w = leaf(4, 4, seed=n), leaf(4, 4, seed=n + 5)
        y = c(x, w)
        y.sum().backward()
        log += [y, x.grad, w.grad]
    return log


def energy(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * x**2).sum()


@programs
def functional_inside(compile: Compile) -> Any:
    func = torch.func

    def f(x: torch.Tensor, v: torch.Tensor) -> Any:
        value, pull = func.vjp(torch.sin, x)
        return (
            func.grad(energy)(x),
            func.vmap(lambda r: r * r.sum())(x.reshape(2, 2)),
            func.jvp(torch.cos, (x,), (v,)),
            value,
            pull(v),
            func.jacrev(lambda t: t.sin() * t.sum())(x),
            func.hessian(energy)(x),
        )

    c = compile(f)
    return [c(data(4, seed=n), data(4, seed=n + 7)) for n in range(3)]


@programs
def functional_above(compile: Compile) -> Any:
    func = torch.func
    c, log = compile(energy), []
    for n in range(3):
        x = data(4, seed=n)
        log += [c(x), func.grad(c)(x), func.jacrev(c)(x), func.vmap(c)(data(3, 4, seed=n))]
        log += [func.jvp(c, (x,), (x,)), func.vjp(c, x)[1](torch.tensor(2.0)), c(x)]
    return log


@programs
def functional_calls(compile: Compile) -> Any:
    torch.manual_seed(1)
    net = nn.Linear(4, 2)

    def f(params: dict[str, torch.Tensor], x: torch.Tensor) -> Any:
        return torch.func.functional_call(net, params, (x,)).sum()

    c, g, log = compile(f), compile(torch.func.grad(f)), []
    for n in range(4):
        params = {"weight": leaf(2, 4, seed=n), "bias": leaf(2, seed=n)}
        loss = c(params, data(3, 4, seed=n))
        loss.backward()
        log += [loss, [p.grad for p in params.values()], net.weight.grad]
        plain = {name: p.detach() for name, p in params.items()}
        log.append(g(plain, data(3, 4, seed=n)))
    return log


@programs
def forward_mode(compile: Compile) -> Any:
    fw = torch.autograd.forward_ad

    def inside(x: torch.Tensor, t: torch.Tensor) -> Any:
        with fw.dual_level():
            y = fw.make_dual(x, t).sin() * 2
            primal, tangent = fw.unpack_dual(y)
            return primal + 0, tangent + 0

    c, d, log = compile(inside), compile(lambda x: x.sin() * x), []
    for n in range(3):
        x, t = data(4, seed=n), data(4, seed=n + 5)
        log.append(c(x, t))
        with fw.dual_level():
            primal, tangent = fw.unpack_dual(d(fw.make_dual(x, t)))
            log += [primal + 0, tangent + 0]
        log.append(d(x))
    return log


@programs
def saved_tensor_hooks_inside(compile: Compile) -> Any:
    seen: list[Any] = []

    def pack(t: torch.Tensor) -> Any:
        seen.append("pack")
        return t.detach().clone()

    def unpack(t: torch.Tensor) -> Any:
        seen.append("unpack")
        return t

    def f(x: torch.Tensor) -> Any:
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            y = x.sin() * x
        return y.cos()

    return gradients(compile, f), seen


@programs
def saved_tensor_hooks_outside(compile: Compile) -> Any:
    seen: list[Any] = []
    c, log = compile(lambda x: (x.sin() * x).sum()), []
    for n in range(5):
        x = leaf(4, seed=n)
        hooks = torch.autograd.graph.saved_tensors_hooks(
            lambda t: seen.append("pack") or t, lambda t: seen.append("unpack") or t
        )
        if n in (1, 2):
            with hooks:
                y = c(x)
        else:
            y = c(x)
        y.backward()
        log += [y, x.grad, list(seen)]
    return log


@programs
def save_on_cpu(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> Any:
        with torch.autograd.graph.save_on_cpu():
            return (x.sin() * x).exp()

    return gradients(compile, f)


@programs
def anomaly(compile: Compile) -> Any:
    def bad(x: torch.Tensor) -> torch.Tensor:
        return (x * 0).sqrt().sum() * 0

    c, log = compile(bad), []

    def run() -> Any:
        x = torch.zeros(3, requires_grad=True)
        c(x).backward()
        return x.grad.isnan()

    log.append(outcome(run))
    with pytest.warns(UserWarning, match="Anomaly"), torch.autograd.detect_anomaly():
        log.append(outcome(run))
    log.append(outcome(run))
    return log


@programs
def anomaly_inside(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        with torch.autograd.set_detect_anomaly(True):
            (x.clamp(min=0).sqrt().sum() * 0).backward()
        return x.grad

    c = compile(f)
    return [outcome(lambda n=n: c(data(4, seed=n))) for n in range(3)]


OPTIMIZERS = {
    "sgd": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9),
    "nesterov": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda ps: torch.optim.Adam(ps, lr=0.1),
    "adamw": lambda ps: torch.optim.AdamW(ps, lr=0.1, foreach=True),
    "rmsprop": lambda ps: torch.optim.RMSprop(ps, lr=0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("to_none", [True, False])
def test_training_step(name: str, to_none: bool) -> None:
    def program(compile: Compile) -> Any:
        torch.manual_seed(1)
        net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1))
        opt = OPTIMIZERS[name](net.parameters())

        def step(x: torch.Tensor) -> Any:
            opt.zero_grad(set_to_none=to_none)
            loss = ((net(x) - 1) ** 2).mean()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            return loss.detach(), norm

        c, log = compile(step), []
        for n in range(5):
            log.append(c(data(3, 4, seed=n)))
            log.append([p.detach().clone() for p in net.parameters()])
        state = opt.state_dict()["state"]
        return log, [[v for v in s.values() if isinstance(v, torch.Tensor)] for s in state.values()]

    check(program)


@programs
def accumulation(compile: Compile) -> Any:
    torch.manual_seed(1)
    net = nn.Linear(4, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(x: torch.Tensor, n: int) -> Any:
        loss = net(x).square().mean() / 2
        loss.backward()
        if n % 2:
            opt.step()
            opt.zero_grad()
        return loss.detach()

    c, log = compile(step), []
    for n in range(6):
        log += [c(data(3, 4, seed=n), n), net.weight.detach().clone(), net.weight.grad]
    return log


@programs.parametrize()
def test_program(program: Any, compile: Any) -> None:
    check(program, compile)


def test_gradcheck() -> None:
    c = glowplug.compile(lambda x, w: (x @ w).sin() * x.sum(), backend="eager")
    x = data(3, 3).double().requires_grad_()
    w = data(3, 3, seed=4).double().requires_grad_()
    assert torch.autograd.gradcheck(c, (x, w))
    assert torch.autograd.gradgradcheck(c, (x, w))


WHOLE = [
    checkpoint_plain,
    checkpoint_reentrant,
    checkpoint_modules,
    checkpoint_sequence,
    grad_inside,
    gradient_penalty,
    modes,
    autocast,
    custom_casts,
]


@pytest.mark.parametrize("program", WHOLE, ids=lambda p: p.__name__)
def test_no_break(program: Any) -> None:
    check_no_break(program)
