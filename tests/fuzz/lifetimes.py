"""When objects die: finalizers, weak references, variables that are deleted."""

from .source import Block, Gen, statement

MORTAL: Block = [
    (
        "class Mortal:",
        [
            ("def __init__(self, v=None):", ["self.v = v"]),
            ("def __del__(self):", ["DEATHS.append(type(self.v).__name__)"]),
        ],
    )
]


def needs_mortal(g: Gen) -> None:
    if g.once("Mortal"):
        g.setup.insert(0, "DEATHS = []")
        g.top += MORTAL
        g.setup += ["HELD = Mortal(1)", "REFS = []"]
        g.resets.append("DEATHS.clear()")
        g.mutations += ["HELD.v = 's'", "globals().update(HELD=Mortal('s'))"]


@statement("lifetimes", 2)
def mortal(g: Gen) -> Block:
    needs_mortal(g)
    text = g.pick(
        "Mortal({any})",
        "{new:object} = Mortal({full})",
        "{new:object} = HELD",
        "{new:bool} = HELD is None",
        "{new:list} = [Mortal({int}), {full}]",
        "{new:int} = len(DEATHS)",
        "x.owner = Mortal({int})",
        "globals()['HELD'] = Mortal({full})",
        "HELD.v = {full}",
        "{new:any} = Mortal({any}).v",
    )
    return [g.fill(text, 1) or "pass"]


@statement("lifetimes", 1)
def watched(g: Gen) -> Block:
    """A weak reference whose object is gone after the call, or stays."""
    needs_mortal(g)
    value = g.expr("full", 1)
    name = g.declare("full")
    return [
        f"{name} = {value} + 1",
        f"REFS[:] = [weakref.ref({name}, lambda r: DEATHS.append('tensor'))]",
    ]


@statement("lifetimes", 1)
def deleted(g: Gen) -> Block:
    needs_mortal(g)
    name, count = g.fresh("o"), g.declare("int")
    made = g.fill(g.pick("Mortal({full})", "[Mortal(1)]", "(Mortal(2), {full})"), 1)
    return [f"{name} = {made}", f"del {name}", f"{count} = len(DEATHS)"]
