"""Functions of the program's own: helpers, closures, generators, decorators."""

from .source import Block, Gen, Helper, lines, statement

SIGNATURES = [
    ("a, b=2", "{h}({full}, {int})"),
    ("a, b=2", "{h}({full})"),
    ("a, b=1, *rest", "{h}({full}, {int}, *{tensors})"),
    ("a, *, b=3", "{h}({full}, b={int})"),
    ("a, b=0, **kw", "{h}({full}, c={any}, b={int})"),
    ("a, /, b", "{h}({full}, b={int})"),
    ("a, b=1, *rest, flag=False, **kw", "{h}(*[{full}, {int}], **dict(flag={bool}, z={any}))"),
    ("b, a", "{h}(a={full}, b={int})"),
]


def define_helper(g: Gen) -> None:
    """A function at the program's top, with a random body, that returns a full tensor."""
    name = g.fresh("h")
    signature, call = g.rng.choice(SIGNATURES)
    outer, g.scopes = g.scopes, [{"a": "full", "b": "int"}]
    frame, g.frame = g.frame, 0
    if "*rest" in signature:
        g.scopes[0]["rest"] = "tuple"
    if "kw" in signature:
        g.scopes[0]["kw"] = "dict"
    if "flag" in signature:
        g.scopes[0]["flag"] = "bool"
    before, g.budget = g.budget, 3
    loops, g.loops = g.loops, 0
    assigned, g.globals = g.globals, set()
    g.scopes.append({})
    block: Block = []
    for _ in range(g.rng.randint(0, 2)):
        g.budget -= 1
        block += g.statement()
    block.append(f"return {g.expr('full', 1)}")
    head: Block = [f"global {', '.join(sorted(g.globals))}"] if g.globals else []
    if "K" in g.done and not head:
        head = ["global K"]
    g.globals = assigned | g.globals
    g.scopes, g.budget, g.loops, g.frame = outer, before, loops, frame
    g.top.append((f"def {name}({signature}):", head + block))
    g.mutations += [
        f"globals()['{name}'] = lambda *p, **q: p[0] if p else q['a']",
        f"{name}.__code__ = (lambda *p, **q: p[0] if p else q['a']).__code__",
    ]
    if "b=2" in signature:
        g.mutations.append(f"{name}.__defaults__ = (5,)")
    if "*, b=3" in signature:
        g.mutations.append(f"{name}.__kwdefaults__ = dict(b=0)")
    g.helpers.append(Helper("full", call.replace("{h}", name)))


@statement("calls", 3)
def call_helper(g: Gen) -> Block:
    if len(g.helpers) < 2:
        define_helper(g)
    text = g.fill(g.rng.choice(g.helpers).call, 1)
    return [f"{g.declare('full')} = {text}"]


lines(
    "calls",
    "{new:full} = {var:callable}({full}.float())",
    "{new:list} = [{var:callable}(t.float()) for t in {tensors}]",
    "{new:full} = {var:maybe} if isinstance({var:maybe}, torch.Tensor) else {full}",
    "{new:bool} = {var:maybe} is None",
    "{new:any} = {var:maybe} or {int}",
    weight=2,
)
lines("tensor", "{new:full} = {var:callable}({full}.float())", weight=2)
lines("branches", "if {var:maybe} is not None:\n    x = {full} + {var:maybe}", weight=3)


@statement("calls", 0.8)
def compiled_helper(g: Gen) -> Block:
    """A function that is compiled on its own, and called inside and outside of the target."""
    if g.once("inner"):
        body: Block = [f"v = {g.pick('v * k', 'v + k', 'torch.relu(v) - k', 'v.t().t() * k')}"]
        if g.chance(0.4):
            body.append(("if v.sum() > 0:", ["return v * 2"]))
        g.top += ["@COMPILED", ("def inner(v, k=2):", [*body, "return v"])]
        g.mutations += ["SPARE.append(inner(T(1, 2)))", "SPARE.append(inner(T(1, 2), 3))"]
        g.setup.append("SPARE = []")
    return [g.let("full", f"inner({g.expr('full', 1)}, {g.expr('int', 0)})")]


@statement("calls", 0.6)
def recursion(g: Gen) -> Block:
    if g.once("deep"):
        body: Block = [("if n <= 0:", ["return v"]), "return deep(v * 0.5 + 1, n - 1)"]
        g.top.append(("def deep(v, n):", body))
    return [g.let("full", f"deep({g.expr('full', 1)}, {g.expr('int', 1)} % 4)")]


@statement("calls", 0.6)
def decorated(g: Gen) -> Block:
    if g.once("logged"):
        inner: Block = ["out = fn(*args, **kwargs)", "CALLS[:] = [fn.__name__]", "return out"]
        g.setup.insert(0, "CALLS = []")
        g.top += [
            (
                "def logged(fn):",
                [
                    "@functools.wraps(fn)",
                    ("def wrapper(*args, **kwargs):", inner),
                    "return wrapper",
                ],
            ),
            "@logged",
            ("def scaled(v, k=2):", ["return v * k"]),
        ]
    return [g.let("full", f"scaled({g.expr('full', 1)}, k={g.expr('int', 1)})")]


lines(
    "calls",
    "{new:full} = functools.partial(torch.add, alpha=2)({full}, {full})",
    "{new:full} = (lambda v, k=2: v * k)({full})",
    "{new:full} = operator.add({full}, {int})",
    "{new:full} = getattr(torch, {relu})({full})".replace("{relu}", "'relu'"),
    "{new:full} = torch.Tensor.abs({full})",
    "{new:full} = [torch.relu, torch.tanh][{int} % 2]({full})",
    "{new:full} = operator.methodcaller('abs')({full})",
    "{new:any} = operator.itemgetter(0)([{any}, {int}])",
)


@statement("closures", 2)
def closure(g: Gen) -> Block:
    """A function made in the call that reads and writes the call's variables."""
    name, cell = g.fresh("fn"), g.fresh("cell")
    inner: Block = [f"nonlocal {cell}", f"{cell} = {g.pick(f'{cell} + 1', g.expr('int', 1))}"]
    before, g.frame = g.frame, len(g.scopes)
    g.scopes.append({cell: "int", "v": "full"})
    if g.chance(0.5):
        inner += g.statement()
    inner.append(f"return {g.expr('full', 1)} * {cell}")
    g.scopes.pop()
    g.frame = before
    block: Block = [f"{cell} = {g.expr('int', 1)}", (f"def {name}(v):", inner)]
    for _ in range(g.rng.randint(1, 2)):
        value = g.expr("full", 1)
        block.append(f"{g.declare('full')} = {name}({value})")
    g.declare("int", cell)
    if g.chance(0.2):
        g.declare("object", name)
    return block


@statement("closures", 0.7)
def late_binding(g: Gen) -> Block:
    default = g.pick("", ", i=i")
    name = g.declare("list", g.fresh("fs"))
    return [
        f"{name} = [lambda v{default}: v * i for i in range(3)]",
        g.let("full", f"{name}[{g.expr('int', 0)}]({g.expr('full', 0)})"),
    ]


@statement("closures", 0.6)
def accumulator(g: Gen) -> Block:
    name, total = g.fresh("add"), g.fresh("total")
    value = g.expr("full", 1)
    made: Block = [f"nonlocal {total}", f"{total} = {total} + v", f"return {total}"]
    over = g.expr("tensors", 1)
    g.declare("full", total)
    return [
        f"{total} = {value}",
        (f"def {name}(v):", made),
        f"list(map({name}, {over}))",
    ]


COUNTING: Block = [
    (
        "def counting(v, n):",
        [
            ("for i in range(n):", ["got = yield v * i", ("if got:", ["v = v + got"])]),
            "return n",
        ],
    ),
    (
        "def chained(v, n):",
        ["last = yield from counting(v, n)", "yield v + last", "yield from [v, v * 2]"],
    ),
    (
        "def closing(log, v):",
        [
            ("try:", [("while True:", ["yield v", "v = v * 2"])]),
            ("except KeyError as e:", ["log.append(e.args)", "yield v - 1"]),
            ("finally:", ["log.append('closed')"]),
        ],
    ),
]


def needs_generators(g: Gen) -> None:
    if g.once("counting"):
        g.top += COUNTING


@statement("generators", 2)
def drained(g: Gen) -> Block:
    needs_generators(g)
    call = g.fill(
        g.pick(
            "list(counting({full}, {int} % 3))",
            "[t + 1 for t in chained({full}, 2)]",
            "[*chained({full}, {int} % 3)]",
            "list(zip(counting({full}, 2), {ints}))",
            "tuple(itertools.islice(chained({full}, 2), {int} % 3))",
            "list(map(lambda t: t * 2, counting({full}, 2)))",
        ),
        1,
    )
    return [f"{g.declare('list', g.fresh('l'))} = {call}"]


@statement("generators", 2)
def driven(g: Gen) -> Block:
    needs_generators(g)
    name, log = g.fresh("gen"), g.declare("list", g.fresh("log"))
    block: Block = [f"{log} = []"]
    if g.chance(0.5):
        block += [
            f"{name} = closing({log}, {g.expr('full', 1)})",
            f"{log}.append(next({name}))",
            f"{log}.append({name}.{g.pick('send(1)', 'send(None)', 'throw(KeyError(3))')})",
            g.pick(f"{name}.close()", f"del {name}", f"{log}.append(next({name}))"),
        ]
    else:
        block += [
            f"{name} = counting({g.expr('full', 1)}, 2)",
            f"{log}.append(next({name}))",
            f"{log}.append({name}.send({g.expr('int', 0)}))",
            f"{log}.append(next({name}, None))",
        ]
    return block


@statement("generators", 0.5)
def returned_generator(g: Gen) -> Block:
    value = g.expr("full", 1)
    name = g.declare("object", g.fresh("gen"))
    return [f"{name} = (t * 2 for t in [{value}])"]
