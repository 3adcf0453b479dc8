"""Control flow: branches, loops, early returns, exceptions, context managers."""

from .effects import state
from .source import Block, Gen, lines, statement


def branch_condition(g: Gen) -> str:
    return g.expr("bool", 1)


@statement("branches", 4)
def if_else(g: Gen) -> Block:
    condition = branch_condition(g)
    shared = g.rng.choice(g.own("full") or ["unused"])
    block: Block = [(f"if {condition}:", [*g.body(g.rng.randint(0, 2)), assigned(g, shared)])]
    if g.chance(0.3):
        block.append((f"elif {g.expr('bool', 1)}:", g.body(1)))
    if g.chance(0.6):
        block.append(("else:", [*g.body(g.rng.randint(0, 1)), assigned(g, shared)]))
    return block


def assigned(g: Gen, name: str) -> str:
    return f"{name} = {g.expr('full', 1)}"


@statement("branches", 1.5)
def tensor_branch(g: Gen) -> Block:
    condition = g.fill(
        g.pick(
            "{full}.sum() > 0",
            "({mask}).any()",
            "{full}.sum().item() > {int}",
            "{full}.max() > {full}.min()",
            "{full}.abs().sum() > {float}",
        ),
        1,
    )
    return [(f"if {condition}:", g.body(g.rng.randint(1, 2))), ("else:", g.body(1))]


@statement("branches", 1)
def early_return(g: Gen) -> Block:
    return [(f"if {branch_condition(g)}:", [f"return {g.expr('any', 1)}"])]


@statement("branches", 1)
def match_statement(g: Gen) -> Block:
    value = g.expr(g.rng.choice(["int", "str", "ints"]), 1)
    name = g.fresh("q")
    cases: Block = [
        ("case 0 | 1:", g.body(1)),
        ("case 'a' | 'key':", g.body(1)),
        (f"case [1, *{name}]:", g.body(1)),
        (f"case int() as {name}" + g.pick("", f" if {g.expr('bool', 1)}") + ":", g.body(1)),
        ("case _:", g.body(1)),
    ]
    kept = [c for c in cases[:-1] if g.chance(0.6)] + cases[-1:]
    return [(f"match {value}:", kept)]


@statement("loops", 3)
def for_loop(g: Gen) -> Block:
    over = g.pick("range({int} % 4)", "{ints}[:3]", "range({full}.shape[0])", "range(2)", "(1, 2)")
    over = g.fill(over, 1)
    g.scopes.append({})
    name = g.declare("int")
    block = looped(g, f"for {name} in {over}:")
    g.scopes.pop()
    return block


def looped(g: Gen, header: str) -> Block:
    """A loop with a random body, perhaps with break, continue and else."""
    g.loops += 1
    body = g.body(g.rng.randint(1, 3))
    if g.chance(0.35):
        body.append((f"if {g.expr('bool', 1)}:", [g.pick("break", "continue")]))
        body += g.body(1)
    if g.own("full"):
        shared = g.rng.choice(g.own("full"))
        body.append(f"{shared} = {shared} {g.pick('+', '*')} {g.expr('small', 1)}")
    g.loops -= 1
    block: Block = [(header, body)]
    if g.chance(0.2):
        block.append(("else:", g.body(1)))
    return block


@statement("loops", 1)
def for_pairs(g: Gen) -> Block:
    over = g.fill(
        g.pick(
            "enumerate({tensors})",
            "zip({ints}, {tensors})",
            "zip(range(3), {tensors}, strict={bool})",
            "dict(zip({ints}, {tensors})).items()",
            "enumerate({tensors}, start={int})",
        ),
        1,
    )
    g.scopes.append({})
    first, second = g.declare("int"), g.declare("full")
    block = looped(g, f"for {first}, {second} in {over}:")
    g.scopes.pop()
    return block


@statement("loops", 1)
def for_rows(g: Gen) -> Block:
    g.scopes.append({})
    over = g.expr("full", 1)
    name = g.declare("small")
    block = looped(g, f"for {name} in {over}:")
    g.scopes.pop()
    return block


@statement("loops", 1.5)
def while_loop(g: Gen) -> Block:
    start = g.expr("int", 1)
    name = g.declare("int")
    test = g.fill(g.pick("", " and {bool}", " and {full}.sum() > {int}"), 1)
    loop = looped(g, f"while {name} > 0{test}:")
    head = loop[0]
    assert isinstance(head, tuple)
    head[1].insert(0, f"{name} -= 1")
    return [f"{name} = {start} % 4", *loop]


RAISING = (
    "raise ValueError({str})|raise KeyError({int})|{ints}[7]|dict(a=1)[{str}]|{int} / 0|"
    "{full} + torch.ones(7)|{full}.view(7, 7, 7)|{full} @ torch.ones(9, 9)|int({str})|"
    "assert {bool}, {str}|raise Fault({int}, {str})|raise StopIteration|next(iter([]))|"
    "torch.cat([{full}, torch.ones(1, 1, 1)])|None.missing|{full}.no_such_method()|"
    "a, b = {ints}|raise RuntimeError('r') from ValueError({str})|undefined_name|"
    "{full}[9]|{full}.reshape(5, 7)|torch.stack([])|{full}.to('no_such')|[].pop()|len({int})"
).split("|")
CAUGHT = (
    "ValueError|KeyError|(IndexError, TypeError)|Exception|RuntimeError|ZeroDivisionError|"
    "LookupError|Fault|AttributeError|BaseException|ArithmeticError"
).split("|")


def needs_fault(g: Gen) -> None:
    if g.once("Fault"):
        body: Block = [
            ("def __init__(self, code, text=''):", ["super().__init__(text)", "self.code = code"])
        ]
        g.top.append(("class Fault(Exception):", body))


def raising(g: Gen) -> str:
    needs_fault(g)
    return g.fill(g.rng.choice(RAISING), 1)


def guarded_raise(g: Gen) -> Block:
    text = raising(g)
    return [text] if g.chance(0.4) else [(f"if {g.expr('bool', 1)}:", [text])]


@statement("exceptions", 4)
def try_except(g: Gen) -> Block:
    error, text = g.fresh("e"), g.declare("str")
    needs_fault(g)
    handler: Block = [f"{text} = type({error}).__name__ + str({error})[:40]", *g.body(1)]
    if g.chance(0.15):
        handler.append(g.pick("raise", f"raise LookupError('again') from {error}", "return None"))
    body = g.body(g.rng.randint(0, 2)) + guarded_raise(g) + g.body(g.rng.randint(0, 1))
    kind = g.rng.choice(CAUGHT) if g.chance(0.5) else "Exception"
    block: Block = [
        f"{text} = ''",
        ("try:", body),
        (f"except {kind} as {error}:", handler),
    ]
    if g.chance(0.25):
        block.append(("else:", g.body(1)))
    if g.chance(0.4):
        block.append(("finally:", g.body(1)))
    return block


OUTSIDE = (
    "ITEMS:ITEMS.index({int})|ITEMS:ITEMS.remove({int})|TABLE:TABLE[{str}]|TABLE:del TABLE[{str}]|"
    "TABLE:TABLE.pop({str})|SEEN:SEEN.remove({int})|QUEUE:QUEUE[{int}]|QUEUE:QUEUE.remove({int})|"
    "ORDER:ORDER.move_to_end({str})|ITEMS:ITEMS[{int}] = 1|ITEMS:ITEMS[{int}]|BUF:BUF.add_({full})|"
    "BUF:BUF.missing|ITEMS:del ITEMS[{int}]|WEIGHT:WEIGHT.add_(1)|ROWS:ROWS[{int}].mul_(2)|"
    "ITEMS:a, b = ITEMS|TABLE:TABLE[[]] = 1|ITEMS:ITEMS.insert('a', 1)|BUF:BUF[{int}] = 0|"
    "ITEMS:sum(ITEMS)|TABLE:sorted(TABLE.values())|ITEMS:max(ITEMS)|ITEMS:ITEMS.extend({int})|"
    "BUF:BUF.view(7)|BUF:torch.add({full}, 1, out=BUF)|TABLE:int(TABLE['a'])|K:ITEMS_[K]|"
    "ITEMS:next(iter(ITEMS))|QUEUE:QUEUE.pop()|TABLE:TABLE.popitem()|TABLE:TABLE['l'].append(1)"
).split("|")


@statement("exceptions", 2)
def outside_raises(g: Gen) -> Block:
    """A read or a write of outside state that raises for some states, caught."""
    name, _, text = g.rng.choice(OUTSIDE).partition(":")
    state(g, name)
    seen = g.declare("int")
    body: Block = [g.fill(text, 1) or "pass", f"{seen} = 1"]
    if g.chance(0.3):
        body.insert(0, g.fill(g.pick("x.add_(1)", "BUF_ = {full}", "ITEMS_ = {int}"), 1) or "pass")
    return [("try:", body), ("except Exception:", [f"{seen} = 2"])]


@statement("exceptions", 1)
def try_finally(g: Gen) -> Block:
    last: Block = g.body(1)
    if g.loops == 0 and g.chance(0.15):
        last.append(f"return {g.expr('any', 1)}")
    return [("try:", g.body(2) + (guarded_raise(g) if g.chance(0.2) else [])), ("finally:", last)]


@statement("exceptions", 0.4)
def uncaught(g: Gen) -> Block:
    return [(f"if {g.expr('bool', 1)}:", [raising(g)])]


@statement("exceptions", 0.5)
def suppressed(g: Gen) -> Block:
    return [("with contextlib.suppress(Exception):", [*g.body(1), *guarded_raise(g), *g.body(1)])]


@statement("exceptions", 0.5)
def exception_group(g: Gen) -> Block:
    name, kind = g.fresh("e"), g.declare("int")
    group = f"raise ExceptionGroup('g', [ValueError({g.expr('int', 0)}), KeyError('k')])"
    return [
        f"{kind} = 0",
        ("try:", [group]),
        (f"except* ValueError as {name}:", [f"{kind} += len({name}.exceptions)"]),
        ("except* KeyError:", [f"{kind} += 2"]),
    ]


CONTEXT_CLASS: Block = [
    (
        "class Region:",
        [
            (
                "def __init__(self, swallow=False):",
                ["self.swallow = swallow", "self.seen = []"],
            ),
            ("def __enter__(self):", ["self.seen.append('in')", "return self"]),
            (
                "def __exit__(self, kind, error, trace):",
                ["self.seen.append(kind and kind.__name__)", "return self.swallow"],
            ),
        ],
    )
]
CONTEXT_GENERATOR: Block = [
    "@contextlib.contextmanager",
    (
        "def region(log, value):",
        [
            "log.append('enter')",
            ("try:", ["yield value * 2"]),
            ("except ValueError:", ["log.append('swallowed')"]),
            ("finally:", ["log.append('exit')"]),
        ],
    ),
]


@statement("contexts", 2)
def with_class(g: Gen) -> Block:
    if g.once("Region"):
        g.top += CONTEXT_CLASS
    name = g.fresh("c")
    body = g.body(2)
    if g.chance(0.4):
        body += guarded_raise(g)
    g.declare("object", name)
    maker = f"Region({g.pick('True', 'True', g.expr('bool', 0))})"
    return [(f"with {maker} as {name}:", body)]


@statement("contexts", 2)
def with_generator(g: Gen) -> Block:
    if g.once("region"):
        g.top += CONTEXT_GENERATOR
    name, log = g.fresh("t"), g.fresh("log")
    value = g.expr("full", 1)
    g.scopes.append({name: "full"})
    body = g.body(1)
    if g.chance(0.35):
        body.append("raise ValueError('inside')")
    g.scopes.pop()
    g.declare("list", log)
    return [f"{log} = []", (f"with region({log}, {value}) as {name}:", body)]


@statement("contexts", 0.7)
def exit_stack(g: Gen) -> Block:
    if g.once("Region"):
        g.top += CONTEXT_CLASS
    log = g.declare("list", g.fresh("log"))
    stack = g.fresh("st")
    return [
        f"{log} = []",
        (
            f"with contextlib.ExitStack() as {stack}:",
            [
                f"{stack}.enter_context(Region(True))",
                f"{stack}.callback({log}.append, {g.expr('int', 0)})",
                *g.body(1),
            ],
        ),
    ]


lines(
    "contexts",
    "with torch.autocast('cpu', torch.bfloat16):\n    {new:full} = {full} @ torch.eye({cols})",
    "with contextlib.nullcontext({int}) as {name:c}:\n    {new:full} = {full}",
    weight=0.4,
)
