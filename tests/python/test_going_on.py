"""Replays that stop after they changed something go on as the program, nothing done twice."""

import contextlib
import dataclasses
import io
import json
import random

import pytest
import torch

import glowplug


def build_cases():
    """Programs by name: each takes (x, log, state) and looks at x after it has changed things."""

    def after_effects(x, log, state):
        state["n"] = state.get("n", 0) + 1
        log.append("start")
        print("working", state["n"])
        y = x * 2
        if y.sum() > 0:
            log.append("up")
            return y + state["n"]
        log.append("down")
        return y - state["n"]

    def after_in_place(x, log, state):
        x.mul_(3)
        y = x[0].add_(1)
        if y.sum() > 2:
            return x * y
        log.append(tuple(x.shape))
        return x - y

    def after_random(x, log, state):
        noise = torch.rand(3)
        log.append(random.random())
        if (x[0] + noise).sum() > 1.5:
            return noise + torch.rand(3), random.random()
        return noise - torch.rand(3), random.randint(1, 6)

    def in_a_generator(x, log, state):
        def steps():
            for i in range(3):
                print("step", i)
                got = yield x * i
                log.append(got)
                if (x * i).sum() > 1:
                    yield x + 10
                    return

        g = steps()
        out = [next(g)]
        with contextlib.suppress(StopIteration):
            for i in range(4):
                out.append(g.send(i))
        return out

    def in_with_and_try(x, log, state):
        @contextlib.contextmanager
        def scope(name):
            log.append("enter " + name)
            try:
                yield name
            except ValueError as error:
                log.append(f"caught {error}")
            finally:
                print("leave", name)

        with scope("a"), torch.no_grad():
            print("inside")
            if x.sum() > 0:
                raise ValueError("positive")
            y = x * 2
        try:
            print("try")
            return x[int(x.abs().sum()) % 7].sum() + (0 if x.sum() > 0 else y.sum())
        except IndexError:
            log.append("index")
            return x - 1
        finally:
            state["last"] = "done"

    def nested_frames(x, log, state):
        @dataclasses.dataclass
        class Result:
            value: torch.Tensor
            notes: list

        def inner(t, depth):
            print("depth", depth)
            state.setdefault("depths", []).append(depth)
            if depth == 0:
                return t
            if t.sum() > depth:
                return inner(t - 1, depth - 1) * 2
            return inner(t + 1, depth - 1) * 3

        result = Result(inner(x, 3), list(log))
        return result.value, result.notes

    def opaque_raises(x, log, state):
        text = json.dumps({"k": 1 if x.sum() > 0 else 2}) if x.sum() > 0 else "{"
        print("parse")
        log.append(text)
        try:
            return x * json.loads(text)["k"]
        except json.JSONDecodeError as error:
            log.append(str(error))
            return x - 5

    def loop_over_data(x, log, state):
        n = 0
        while x.abs().sum() > 1:
            print("halve", n)
            x = x / 2
            n += 1
        log.append(n)
        return x, n

    def deleted_and_alive(x, log, state):
        a = x + 1
        b = a * 2
        del a
        kept = b.exp()
        print("now")
        if b.sum() > 3:
            return b
        return kept.log() + b

    return {name: value for name, value in locals().items() if callable(value)}


CASES = build_cases()
INPUTS = [
    lambda: torch.tensor([[0.5, 1.0, 0.25], [0.1, 0.2, 0.3]]),
    lambda: torch.tensor([[-0.5, -1.0, -0.25], [0.1, -0.2, 0.3]]),
    lambda: torch.tensor([[5.0, 1.0, 4.0], [2.0, 2.0, 3.0]]),
    lambda: torch.tensor([[-7.0, 1.0, 0.25], [0.1, 9.0, 0.3]]),
    lambda: torch.tensor([[0.0, 0.0, 0.1], [0.0, 0.0, 0.0]]),
]


def observed(function, order):
    log, state, seen = [], {}, []
    torch.manual_seed(3)
    random.seed(3)
    for index in order:
        x = INPUTS[index]()
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            result = function(x, log, state)
        seen.append((repr(result), repr(x), out.getvalue(), repr(log), repr(state)))
    return seen, torch.rand(2).tolist(), random.random()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("order", [(0, 1, 2, 0, 3, 1, 4, 2, 3, 0), (3, 0, 4, 4, 1, 2, 0, 0)])
def test_like_eager(name, order):
    expected = observed(CASES[name], order)
    glowplug.reset()
    compiled = glowplug.compile(build_cases()[name])
    assert observed(compiled, order) == expected


def test_replays_did_go_on():
    glowplug.reset()
    compiled = glowplug.compile(build_cases()["in_a_generator"])
    observed(compiled, (0, 1, 0, 1, 2))
    stats = glowplug.counters()["stats"]
    assert stats["reruns"] == 1  # for the second branch; after that both are known
    assert stats["recordings"] == 2
    assert stats["replays"] == 3


def test_an_operator_that_raises_shows_the_programs_lines():
    def f(table, index):
        print("look up")
        return torch.nn.functional.embedding(index, table) * 2

    compiled = glowplug.compile(f)
    table = torch.randn(4, 2)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        compiled(table, torch.tensor([1, 2]))
        compiled(table, torch.tensor([0, 2]))
        with pytest.raises(IndexError) as raised:
            compiled(table, torch.tensor([1, 9]))
    assert out.getvalue() == "look up\n" * 3
    lines = [entry.name for entry in raised.traceback]
    assert "f" in lines


def test_past_the_limit_the_call_still_ends_right():
    def f(x):
        print("go")
        return x * 2 if x.sum() > 3 else x - float(x.sum())

    def run(function):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            results = [function(torch.tensor([float(i)])).item() for i in range(-6, 9)]
        return results, out.getvalue()

    glowplug.reset()
    assert run(glowplug.compile(f, options={"max_traces": 3})) == run(f)


def unused_argument(x, other):
    return x.unflatten(1, (-1,)).squeeze().argmax(1).tolist()[0]


def own_tensor_from_a_factory(x, other):
    noise = torch.rand_like(x)
    middle = torch.quantile(noise.float(), 0.5, dim=1, keepdim=True)
    return noise.view(x.shape).argmax(1).tolist()[0], middle


@pytest.mark.parametrize("f", [unused_argument, own_tensor_from_a_factory])
def test_tensors_are_counted_as_the_replay_did(f):
    """Whether two arguments are one tensor, and an operator gives back its own operand."""

    def run(function):
        results = []
        for number in range(6):
            torch.manual_seed(number)
            x = torch.randn(3, 4)
            results.append(function(x, x if number % 2 else torch.randn(3, 4)))
        return results

    assert str(run(glowplug.compile(f, backend="eager"))) == str(run(f))


@pytest.mark.parametrize("where", ["keywords", "list", "attributes"])
def test_two_tensors_that_are_one_the_next_time(where, same):
    """A replay that is followed counted two inputs where the program now has one."""

    class Holder:
        pass

    def inputs(x, y):
        if where == "keywords":
            return (x,), {"y": y}
        if where == "list":
            return ([x, y],), {}
        holder = Holder()
        holder.x, holder.y = x, y
        return (holder,), {}

    def tensors(first, y=None):
        if where == "keywords":
            return first, y
        return tuple(first) if where == "list" else (first.x, first.y)

    def f(first, y=None):
        x, y = tensors(first, y)
        z = y.sigmoid() + x
        return z.argmax(1).tolist()[0], z.sum()

    compiled = glowplug.compile(f)
    for seed in range(8):
        torch.manual_seed(seed)
        x, y = torch.randn(2, 3), torch.randn(2, 3)
        args, kwargs = inputs(x, x if seed % 2 else y)
        same(f(*args, **kwargs), compiled(*args, **kwargs))
    assert glowplug.counters()["stats"]["side_exits"] > 0
