"""Programs whose arguments, attributes and globals change between calls."""

import collections
import dataclasses
import enum
import random

import numpy as np
import pytest
import torch
import torch.nn as nn

import glowplug
from state_programs import Program, X, assert_observed

PROGRAMS: list[tuple[str, Program, int]] = []


def p1(c):
    def f(x, acc=[]):
        acc.append(x.sum().item())
        return x * len(acc), list(acc)

    g = c(f)
    return lambda i: g(X(3) + i)


PROGRAMS.append(("mutable default", p1, 5))


def p2(c):
    st = {"n": 0, "l": []}

    def f(x):
        st["n"] += 1
        st["l"].append(st["n"])
        return x * st["n"]

    g = c(f)
    return lambda i: (g(X(2)), dict(st))


PROGRAMS.append(("closure dict counter", p2, 12))


def p3(c):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.w = nn.Parameter(torch.ones(3))
            s.register_buffer("b", torch.zeros(3))
            s.cache = {}

        def forward(s, x):
            s.b = s.b + x
            s.cache[x.shape[0]] = x
            return s.w * s.b

    m = M()
    g = c(m)
    return lambda i: (g(X(3) * i), m.b, list(m.cache), dict(m.named_buffers()))


PROGRAMS.append(("buffer reassigned", p3, 5))


def p4(c):
    def f(d):
        d["out"] = d["x"] * 2
        k = d.pop("tmp", None)
        d.setdefault("z", []).append(k)
        return d

    g = c(f)
    return lambda i: g({"x": X(2) + i, "tmp": i % 2} if i % 3 else {"x": X(2)})


PROGRAMS.append(("dict arg mutated", p4, 7))


def p5(c):
    class A:
        pass

    a = A()
    a.v = 1.0
    a.items = (1, 2)

    def f(x):
        return x * a.v + sum(a.items)

    g = c(f)

    def st(i):
        if i == 2:
            a.v = 5.0
        if i == 3:
            a.items = (4,)
        if i == 4:
            A.extra = 1
        if i == 5:
            del a.v
            A.v = 9.0
        return g(X(2))

    return st


PROGRAMS.append(("object attrs changed", p5, 8))


def p6(c):
    class P:
        __slots__ = ("a", "b")

        def __init__(s, a, b):
            s.a = a
            s.b = b

    def f(x, p):
        return P(x * p.a, p.b), x + p.a

    g = c(f)

    def st(i):
        o, y = g(X(2), P(2.0 + i // 2, "s"))
        return o.a, o.b, y

    return st


PROGRAMS.append(("slots", p6, 6))


def p7(c):
    class C(enum.Enum):
        A = 1
        B = 2

    def f(x, m):
        return x * 2 if m is C.A else x - m.value

    g = c(f)
    return lambda i: g(X(2), [C.A, C.B][i % 2])


PROGRAMS.append(("enum", p7, 6))


def p8(c):
    def f(x):
        return x + torch.from_numpy(np.ones(3, dtype=np.float32)), x.numpy().sum()

    g = c(f)
    return lambda i: g(X(3) * i)


PROGRAMS.append(("numpy", p8, 4))


def p9(c):
    def f(x):
        return x * random.random()

    g = c(f)
    return lambda i: g(X(3))


PROGRAMS.append(("python random", p9, 4))


def p10(c):
    def f(x, n):
        out = []
        for i in range(n):
            out.append(x[i])
        return torch.stack(out) if out else x

    g = c(f)
    return lambda i: g(X(5), i % 3)


PROGRAMS.append(("int arg", p10, 8))


def p11(c):
    def f(xs):
        xs[0] = xs[0] * 2
        xs.append(xs[0])
        del xs[1]
        xs.reverse()
        return xs, len(xs)

    g = c(f)
    return lambda i: g([X(2), X(2) + 1, X(2) + 2])


PROGRAMS.append(("list arg", p11, 4))


def p12(c):
    def f(x, y):
        x.add_(1)
        return x + y, x is y

    g = c(f)

    def st(i):
        a = X(2)
        b = a if i % 2 else X(2)
        return g(a, b), a, b

    return st


PROGRAMS.append(("aliased inputs inplace", p12, 6))


def p13(c):
    base = X(6).clone()

    def f(a, b):
        a.mul_(2)
        return b + 1

    g = c(f)

    def st(i):
        t = X(6).clone()
        return g(t[:3], t[3 - i % 2 * 2 : 6 - i % 2 * 2]), t

    return st


PROGRAMS.append(("overlapping views", p13, 6))


def p14(c):
    def f(x):
        y = x.detach()
        y.requires_grad_(True)
        z = (y * 2).sum()
        return z, y.is_leaf, z.requires_grad

    g = c(f)
    return lambda i: g(X(3))


PROGRAMS.append(("requires_grad_", p14, 4))


def p15(c):
    lin = nn.Linear(3, 3)
    nn.init.ones_(lin.weight)
    nn.init.zeros_(lin.bias)

    def f(x):
        return lin(x)

    g = c(f)

    def st(i):
        if i == 2:
            lin.weight.data = torch.full((3, 3), 2.0)
        if i == 3:
            lin.weight.requires_grad_(False)
        if i == 4:
            lin.half().float()
        if i == 5:
            lin.bias = None
        return g(X(2, 3))

    return st


PROGRAMS.append(("param changes", p15, 8))


def p16(c):
    def f(x):
        class L(list):
            pass

        l = L([x])
        l.tag = "t"
        d = collections.OrderedDict(b=x, a=x)
        d.move_to_end("b")
        return l, l.tag, d, collections.Counter("abca"), collections.defaultdict(int, a=1)

    g = c(f)
    return lambda i: g(X(2))


PROGRAMS.append(("class inside", p16, 3))


def p17(c):
    def f(x):
        k = 2.0

        def inner(y):
            return y * k

        k = 3.0
        return inner

    g = c(f)
    return lambda i: g(X(2))(torch.ones(2))


PROGRAMS.append(("returned closure", p17, 3))


def p18(c):
    def f(x, **kw):
        return {k: v * 2 for k, v in kw.items()}, sorted(kw)

    g = c(f)
    return lambda i: g(X(2), **({"a": X(1), "b": X(1)} if i % 2 else {"b": X(1), "a": X(1)}))


PROGRAMS.append(("kwargs order", p18, 6))


def p19(c):
    seen = set()

    def f(x):
        seen.add(x.shape[0])
        return x * len(seen)

    g = c(f)
    return lambda i: (g(X(i % 3 + 1)), set(seen))


PROGRAMS.append(("set grows", p19, 8))


def p20(c):
    def f(x):
        m = x > 0
        return x[m], x[m].shape[0], torch.nonzero(x).shape, x.masked_fill(m, 0)

    g = c(f)
    return lambda i: g(X(5) * (1 if i % 2 else -1))


PROGRAMS.append(("data sizes", p20, 6))


def p21(c):
    def f(x):
        v = x.sum().item()
        return [v, v * 2, int(v), str(v), x * v]

    g = c(f)
    return lambda i: g(X(3) + i % 2)


PROGRAMS.append(("item values", p21, 6))


def p22(c):
    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
        with torch.inference_mode():
            z = x * 2
        return y, z

    g = c(f)
    return lambda i: g(X(3, 3))


PROGRAMS.append(("autocast inside", p22, 4))


def p23(c):
    def gen(x):
        for i in range(3):
            yield x * i

    def f(it):
        return [v + 1 for v in it]

    g = c(f)
    return lambda i: g(gen(X(2)))


PROGRAMS.append(("generator arg", p23, 3))


def p24(c):
    g1 = {"s": 1.0}
    ns = {"torch": torch}
    exec("S=1.0\ndef f(x): return x*S", ns)
    g = c(ns["f"])

    def st(i):
        if i == 2:
            ns["S"] = 4.0
        if i == 4:
            ns["f"].__code__ = (lambda x: x - 1).__code__
        return g(X(2))

    return st


PROGRAMS.append(("globals and __code__", p24, 6))


def p25(c):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.d = nn.Dropout(0.5)
            s.bn = nn.BatchNorm1d(4)

        def forward(s, x):
            return s.bn(s.d(x))

    m = M()
    g = c(m)

    def st(i):
        torch.manual_seed(i)
        m.train(i % 2 == 0)
        return g(X(3, 4)), m.bn.running_mean.clone(), int(m.bn.num_batches_tracked)

    return st


PROGRAMS.append(("train eval", p25, 6))


def p26(c):
    def f(x, t):
        return t + (x,), t[0] * 2

    NT = collections.namedtuple("NT", "a b")
    g = c(f)
    return lambda i: g(X(2), NT(X(2), i % 2))


PROGRAMS.append(("namedtuple arg", p26, 5))


def p27(c):
    def f(a):
        return a.x.t() if a.x.dim() == 2 else a.x, a.meta["k"]

    @dataclasses.dataclass
    class D:
        x: torch.Tensor
        meta: dict

    g = c(f)
    return lambda i: g(D(X(2, 2) if i % 2 else X(2), {"k": i % 3}))


PROGRAMS.append(("dataclass arg", p27, 8))


def p28(c):
    o = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
    p = o.param_groups[0]["params"][0]

    def f(x):
        return (x * p).sum()

    g = c(f)

    def st(i):
        o.zero_grad()
        l = g(X(2))
        l.backward()
        o.step()
        return l, p

    return st


PROGRAMS.append(("sgd outside", p28, 4))


def p29(c):
    def f(x):
        try:
            if x.shape[0] == 2:
                raise ValueError("a")
            return x
        except ValueError as e:
            return str(e), x * 2
        finally:
            f.count = getattr(f, "count", 0) + 1

    f.count = 0
    g = c(f)
    return lambda i: (g(X(2 + i % 2)), f.count)


PROGRAMS.append(("try finally fn attr", p29, 6))


def p30(c):
    w = __import__("weakref")
    a = [1, 2, 3]

    def f(x):
        return x * a[-1] + a[0:2][1] + (3 in a) + a.index(2)

    g = c(f)

    def st(i):
        if i == 2:
            a.append(9)
        if i == 3:
            a[0] = 3
        return g(X(2))

    return st


PROGRAMS.append(("list reads", p30, 6))


@pytest.mark.parametrize(
    ("program", "steps"), [p[1:] for p in PROGRAMS], ids=[p[0] for p in PROGRAMS]
)
def test_each_change_is_noticed(program: Program, steps: int) -> None:
    assert_observed(program, glowplug.compile, steps)
