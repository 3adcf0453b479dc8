"""A random program as text, from a seed.

What a program defines: ``target``, the function, method or module that is compiled; ``calls()``, a
generator that yields ``(args, kwargs)`` of one call after another and may change outside state in
between. Everything else at its top level is outside state, and is compared after each call.
"""

import itertools

from . import (  # noqa: F401  (their rules)
    containers,
    control,
    effects,
    functions,
    layers,
    lifetimes,
    objects,
    tensors,
    values,
)
from .inputs import PARAMETERS, calls, parameters, signature
from .known import runs_into_known
from .modules import module_class
from .source import Block, Gen, render

COMMON = ["tensor", "tensor", "inplace", "branches"]
THEMES = [
    "inplace", "branches", "loops", "containers", "comprehensions", "objects", "objects", "calls",
    "closures", "generators", "contexts", "exceptions", "globals", "outer lists", "outer dicts",
    "outer sets", "outer deques", "outer tensors", "output", "cells", "inputs", "autograd",
    "random", "branches", "containers", "lifetimes", "numbers",
]  # fmt: skip
# Themes that leave an entry eager often; in few programs.
RARE = ["grad inside"]


def program(seed: int) -> str:
    """The text of program `seed`; of its versions the first that meets no known difference."""
    for version in itertools.count():
        text = candidate(seed * 1000 + version)
        if not runs_into_known(text):
            return text
    raise AssertionError("not reached")


def candidate(seed: int) -> str:
    """A random program."""
    g = Gen(seed)
    kind = g.rng.choices(["function", "module", "method"], [5, 3, 1])[0]
    g.themes = ["tensor", *g.rng.sample(THEMES, g.rng.randint(1, 4))]
    if g.chance(0.03):
        g.themes += RARE
    if kind == "module":
        g.themes += ["module", "module"]
    names = parameters(g)
    g.scopes = [{"x": "full"}, {name: PARAMETERS[name][0] for name in names}]
    g.budget = g.rng.randint(3, 10)
    body = target_body(g)
    sig = signature(g, names)
    if "Point(" in render(body + g.top):
        g.top.insert(0, "Point = collections.namedtuple('Point', 'p q')")
    if kind == "module":
        definition = module_class(g, sig, body)
    elif kind == "method":
        method: Block = [(f"def run(self, {sig}):", body)]
        definition = [("class Target:", method), "target = Target().run"]
    else:
        definition = [(f"def target({sig}):", body)]
    return render([*g.top, *g.setup, *definition, *calls(g, names, sig)])


def target_body(g: Gen) -> Block:
    g.scopes.append({})
    body: Block = []
    while g.budget > 0:
        g.budget -= 1
        body += g.statement()
    body += result(g)
    g.scopes.pop()
    head = [f"global {', '.join(sorted(g.globals))}"] if g.globals else []
    return head + body


def result(g: Gen) -> Block:
    """The return statement: variables of the body in some structure, some of them twice."""
    names = [name for scope in g.scopes[1:] for name in scope]
    chosen = g.rng.sample(names, min(len(names), g.rng.randint(0, 5)))
    chosen += [g.expr("any", 1) for _ in range(g.rng.randint(0, 1))]
    if chosen and g.chance(0.2):
        chosen.append(g.rng.choice(chosen))
    form = g.rng.choice(["one", "tuple", "tuple", "tuple", "dict", "list", "nested", "none"])
    if form == "one" or len(chosen) < 2:
        return [f"return {chosen[0] if chosen else g.expr('full')}"]
    inside = ", ".join(chosen)
    if form == "dict":
        return ["return {" + ", ".join(f"'k{i}': {v}" for i, v in enumerate(chosen)) + "}"]
    if form == "list":
        return [f"return [{inside}]"]
    if form == "nested":
        return [f"return {chosen[0]}, [{inside}], {{'k': ({chosen[-1]},)}}"]
    return ["return None"] if form == "none" and g.chance(0.3) else [f"return {inside}"]
