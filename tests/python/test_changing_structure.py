"""Programs whose modules, classes, containers and paths through the code change between calls."""

import collections
import copy
import functools

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import glowplug
from state_programs import Program, X, assert_observed

PROGRAMS: list[tuple[str, Program, int]] = []


def q1(c):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.ls = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
            [nn.init.eye_(l.weight) for l in s.ls]
            [nn.init.zeros_(l.bias) for l in s.ls]

        def forward(s, x):
            for l in s.ls:
                x = l(x)
            return x

    m = M()
    g = c(m)

    def st(i):
        if i == 2:
            m.ls.append(nn.Linear(2, 2))
            nn.init.ones_(m.ls[3].weight)
            nn.init.zeros_(m.ls[3].bias)
        if i == 4:
            m.ls[0] = nn.Identity()
        if i == 5:
            m.ls = m.ls[:1]
        return g(X(1, 2))

    return st


PROGRAMS.append(("modulelist", q1, 8))


def q2(c):
    log = []
    m = nn.Sequential(nn.Linear(2, 2))
    nn.init.eye_(m[0].weight)
    nn.init.zeros_(m[0].bias)
    h = m[0].register_forward_pre_hook(lambda mod, a: (log.append(1), (a[0] * 2,))[1])
    g = c(m)

    def st(i):
        if i == 3:
            h.remove()
        return g(X(1, 2)), len(log)

    return st


PROGRAMS.append(("pre hook", q2, 6))


def q3(c):
    class Base:
        k = 2

        def scale(s):
            return s.k

        @property
        def prop(s):
            return s._p

        @classmethod
        def cm(cls):
            return cls.k * 10

        @staticmethod
        def sm(v):
            return v + 1

    class D(Base):
        def scale(s):
            return super().scale() + 1

        def __getattr__(s, n):
            if n == "dyn":
                return 7
            raise AttributeError(n)

    d = D()
    d._p = 1

    def f(x):
        return (
            x * d.scale()
            + d.prop
            + d.cm()
            + D.sm(2)
            + d.dyn
            + getattr(d, "nope", 3)
            + hasattr(d, "zzz")
        )

    g = c(f)

    def st(i):
        if i == 1:
            Base.k = 5
        if i == 2:
            d._p = 9
        if i == 3:
            D.k = 1
        if i == 4:
            Base.scale = lambda s: 100
        if i == 5:
            d.dyn = 0
        if i == 6:
            d.zzz = 1
        if i == 7:
            D.scale = lambda s: 3
        return g(X(2))

    return st


PROGRAMS.append(("classes", q3, 9))


def q4(c):
    def f(x, y=None, *, z=1):
        return x if y is None else x + y * z

    g = c(f)
    ins = [(X(2),), (X(2), X(2)), (X(2), None)]
    return lambda i: g(*ins[i % 3], **({"z": 2} if i % 2 else {}))


PROGRAMS.append(("optional args", q4, 12))


def q5(c):
    d = {"a": X(2), "b": X(2) + 1}

    def f(x):
        return sum(d.values()) + x, list(d), [k for k, v in d.items() if v is not None], "c" in d

    g = c(f)

    def st(i):
        if i == 2:
            d["c"] = X(2)
        if i == 3:
            d["a"] = d.pop("a")
        if i == 4:
            d["b"] = None
            d["b"] = X(2)
        return g(X(2))

    return st


PROGRAMS.append(("dict order", q5, 7))


def q6(c):
    t = X(3)

    def f(x):
        return x + t

    g = c(f)

    def st(i):
        if i == 2:
            t.mul_(2)
        if i == 3:
            t.resize_(3).unsqueeze_(0)
        return g(X(3))

    return st


PROGRAMS.append(("closure tensor changes", q6, 6))


def q7(c):
    def f(x):
        a = x[0]
        b = x.view(-1)
        x = x.clone()
        b2 = x[1:]
        x.zero_()
        return a, b, b2, x

    g = c(f)
    return lambda i: g(X(3, 2) * i)


PROGRAMS.append(("views", q7, 4))


def q8(c):
    def f(x):
        out = torch.empty(3)
        torch.add(x, 1, out=out)
        y = torch.zeros(2, 3)
        y[0] = x
        y[:, 1] += 5
        y[y > 4] = -1
        return out, y

    g = c(f)
    return lambda i: g(X(3) * i)


PROGRAMS.append(("out= and setitem", q8, 4))


def q9(c):
    def f(x):
        r = torch.topk(x, 2)
        s = x.sort()
        u, inv = torch.unique(x.round(), return_inverse=True)
        return r, r.values, s[1], u, x.max(), torch.max(x.view(1, -1), 1)

    g = c(f)
    return lambda i: g(X(6) * (i + 1))


PROGRAMS.append(("return types", q9, 4))


def q10(c):
    def f(x):
        return (
            F.embedding(torch.tensor([0, 1]), x),
            torch.arange(x.shape[0]),
            torch.full((2,), x.shape[1]),
            torch.tensor(2.5) * x,
            x.new_zeros(2),
            torch.ones_like(x, dtype=torch.int),
        )

    g = c(f)
    return lambda i: g(X(3, 2))


PROGRAMS.append(("factories", q10, 3))


def q11(c):
    def inner(x):
        return x * 2

    ci = c(inner)

    def f(x):
        return ci(x) + inner(x)

    g = c(f)
    return lambda i: g(X(3))


PROGRAMS.append(("nested compile", q11, 3))


def q12(c):
    fs = [torch.relu, torch.tanh, nn.GELU()]

    def f(x, k):
        return functools.partial(torch.add, alpha=2)(fs[k](x), x)

    g = c(f)

    def st(i):
        if i == 4:
            fs[0] = torch.abs
        return g(X(3), i % 3)

    return st


PROGRAMS.append(("functions in list, partial", q12, 9))


def q13(c):
    class Ctx:
        def __init__(s):
            s.n = 0

        def __enter__(s):
            s.n += 1
            return s

        def __exit__(s, *a):
            s.n += 10
            return a[0] is ZeroDivisionError

    cx = Ctx()

    def f(x):
        with cx as k:
            y = x * k.n
            1 / 0
        return x + cx.n

    g = c(f)
    return lambda i: (g(X(2)), cx.n)


PROGRAMS.append(("ctx manager state", q13, 4))


def q14(c):
    state = collections.OrderedDict(a=1, b=2)

    def f(x):
        return [x * v for v in state.values()], next(iter(state))

    g = c(f)

    def st(i):
        if i == 2:
            state.move_to_end("a")
        return g(X(1))

    return st


PROGRAMS.append(("odict reorder", q14, 4))


def q15(c):
    q = collections.deque(maxlen=2)

    def f(x):
        q.append(x)
        return sum(q)

    g = c(f)
    return lambda i: (g(X(2) + i), len(q))


PROGRAMS.append(("deque", q15, 6))


def q16(c):
    def f(x, s):
        a, (b, *r) = s
        return x * a + b + len(r), f"{a}-{b:>3}|{x.shape}", "%d" % a, s[::-1], str(x.dtype)

    g = c(f)
    return lambda i: g(X(2), (i % 2, (2, 3, 4)))


PROGRAMS.append(("unpack format", q16, 5))


def q17(c):
    def f(x):
        x = x.requires_grad_()
        return x * 3

    g = c(f)

    def st(i):
        a = X(2)
        y = g(a)
        y.sum().backward()
        return y, a.grad, a.requires_grad

    return st


PROGRAMS.append(("requires_grad_ on input", q17, 3))


def q18(c):
    def f(x):
        x.foo = x.sum()
        y = x * 2
        y.bar = "b"
        return y

    g = c(f)

    def st(i):
        a = X(2)
        y = g(a)
        return y, y.bar, a.foo

    return st


PROGRAMS.append(("tensor attrs", q18, 3))


def q19(c):
    def f(x, ids):
        return torch.stack([x[i] for i in ids]), max(ids), sorted(ids)[0], set(ids)

    g = c(f)
    return lambda i: g(X(5), [0, i % 3, 2])


PROGRAMS.append(("list of ints", q19, 7))


def q20(c):
    a = {"k": [1, {"z": X(2)}]}

    def f(x):
        b = copy.copy(a)
        c2 = copy.deepcopy(a["k"][0])
        b["n"] = x
        return b, c2, a is b, b["k"] is a["k"]

    g = c(f)
    return lambda i: g(X(2))


PROGRAMS.append(("copy", q20, 3))


def q21(c):
    def f(x):
        if x.sum() > 0:
            if x.max() > 2:
                return x * 2
            return x * 3
        return x - 1

    g = c(f)
    return lambda i: g([X(3).abs(), X(3).abs() * 5, -X(3).abs()][i % 3])


PROGRAMS.append(("nested forks", q21, 9))


def q22(c):
    def f(x):
        r = torch.rand(1)
        if r > 0.5:
            return x + torch.rand(2)
        return x - r

    g = c(f)
    return lambda i: (g(X(2)), torch.rand(1))


PROGRAMS.append(("random fork", q22, 12))


def q23(c):
    n = [0]

    def f(x):
        n[0] += 1
        if x.sum() > 0:
            n.append("p")
            return x * 2
        n.append("m")
        return x

    g = c(f)
    return lambda i: (g(X(2) * (1 if i % 2 else -1)), list(n))


PROGRAMS.append(("effects around fork", q23, 6))


def q24(c):
    def f(x):
        x.add_(1)
        return x * 2 if x.sum() > 0 else x

    g = c(f)

    def st(i):
        a = X(2) * (1 if i % 2 else -5)
        return g(a), a

    return st


PROGRAMS.append(("fork after inplace", q24, 5))


@pytest.mark.parametrize(
    ("program", "steps"), [p[1:] for p in PROGRAMS], ids=[p[0] for p in PROGRAMS]
)
def test_each_change_is_noticed(program: Program, steps: int) -> None:
    assert_observed(program, glowplug.compile, steps)
