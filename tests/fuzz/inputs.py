"""The calls of a program: arguments, and changes of outside state between the calls."""

from .source import Block, Gen

# Parameters beside the first: their kind in the body, and texts of values.
PARAMETERS: dict[str, tuple[str, list[str]]] = {
    "y": (
        "full",
        [
            "T({seed}, {rows}, {cols})",
            "T({seed}, {rows}, {cols})",
            "first",
            "first[:]",
            "first.detach()",
            "first.flip(0)",
            "T({seed}, {rows}, {cols}, grad=True)",
            "T({seed}, {rows}, {cols}).double()",
            "first.data.view({rows}, {cols})",
        ],
    ),
    "n": ("int", ["1", "2", "0", "3", "True", "2.0", "10 ** 20", "-1"]),
    "thing": (
        "any",
        [
            "None",
            "1",
            "'s'",
            "first",
            "(1, first)",
            "1.0",
            "True",
            "float('nan')",
            "-0.0",
            "0.0",
            "torch.float32",
            "len",
            "T",
            "[1]",
            "range(3)",
            "first.shape",
            "b'x'",
            "1j",
            "dict(k=1)",
            "frozenset([1])",
            "slice(0, 1)",
            "int",
            "nn.ReLU()",
            "lambda v: v",
            "Ellipsis",
        ],
    ),
    "fn": (
        "callable",
        [
            "torch.relu",
            "torch.tanh",
            "lambda v: v * 2",
            "nn.ReLU()",
            "torch.Tensor.abs",
            "functools.partial(torch.mul, other=2)",
            "nn.Linear({cols}, {cols})",
            "first.add",
            "nn.Dropout(0.5)",
            "operator.neg",
        ],
    ),
    "maybe": ("maybe", ["None", "T({seed}, {rows}, {cols})", "first", "0"]),
    "pairs": ("dict", ["dict(a=first, b=dict(c=[first]))", "collections.OrderedDict(b=1, a=2)"]),
    "flag": ("bool", ["True", "False"]),
    "factor": ("float", ["0.5", "2.0", "1"]),
    "items": ("tensors", ["[first, T({seed}, {rows}, {cols})]", "[T({seed}, {rows}, {cols})]"]),
    "nums": ("ints", ["[1, 2]", "[2]", "[3, 1, 2]", "(1, 2)"]),
    "config": ("dict", ["dict(a=1, b=first)", "dict(b=2, a=T({seed}, {rows}, {cols}))", "dict()"]),
    "name": ("str", ["'a'", "'key'"]),
    "data": ("list", ["[1, first]", "[first, first, 2]", "[[1], 'a']", "collections.deque([1])"]),
    "mask": ("mask", ["T({seed}, {rows}, {cols}) > 0"]),
}
FIRST = (
    "T({seed}, {rows}, {cols})|T({seed}, {rows}, {cols})|T({seed}, {rows}, {cols})|"
    "T({seed}, {rows}, {cols}, grad=True)|T({seed}, {rows}, {cols}, dtype=torch.float64)|"
    "T({seed}, {cols}, {rows}).t()|T({seed}, {rows}, {cols}, dtype=torch.int64)|"
    "T({seed}, {rows}, 2 * {cols})[:, ::2]|T({seed}, {rows}, {cols}, dtype=torch.bfloat16)|"
    "T({seed}, 1, {cols}).expand({rows}, {cols})|-T({seed}, {rows}, {cols}).abs()|"
    "T({seed}, 5, {cols})[1:{rows} + 1]|T({seed}, 0, {cols})|T({seed}, {rows}, {cols}) / 0|"
    "T({seed}, {rows}, {cols}, grad=True) * 1|"
    "nn.Parameter(T({seed}, {rows}, {cols}))|T({seed}, {rows}, {cols}).requires_grad_()[:]"
).split("|")
FIRST_WEIGHTS = [6, 6, 6, 4, 1, 1, 1, 1, 0.5, 0.5, 3, 1, 0.4, 0.4, 1, 0.5, 0.5]


def parameters(g: Gen) -> list[str]:
    count = g.rng.choice([0, 1, 1, 2, 2, 3])
    return g.rng.sample(sorted(PARAMETERS), count)


def signature(g: Gen, names: list[str]) -> str:
    """The parameters as they stand in the definition; some have defaults."""
    parts = ["x"]
    starred = False
    defaults = False
    for i, name in enumerate(names):
        kind = PARAMETERS[name][0]
        default = {"int": "1", "bool": "False", "float": "2.0", "str": "'a'"}.get(kind)
        has_default = default is not None and (defaults or g.chance(0.3))
        last = i == len(names) - 1
        if not starred and ((defaults and not has_default) or (last and g.chance(0.15))):
            parts.append("*")
            starred = True
        defaults = defaults or has_default
        parts.append(f"{name}={default}" if has_default else name)
    return ", ".join(parts)


def call_variants(g: Gen, names: list[str], sig: str) -> list[str]:
    """Two or three sets of arguments; calls take turns with them."""
    keyword_only = {part.partition("=")[0] for part in sig.partition("*, ")[2].split(", ")}
    variants = []
    for _ in range(g.rng.choice([1, 2, 2, 3])):
        rows = g.rng.choice(["2", "2", "2", "3", "1"])
        first = fill(g, g.rng.choices(FIRST, FIRST_WEIGHTS)[0], rows)
        args, kwargs = ["first"], []
        for name in names:
            value = fill(g, g.rng.choice(PARAMETERS[name][1]), rows)
            by_name = name in keyword_only or kwargs or g.chance(0.2)
            (kwargs if by_name else args).append(f"{name}={value}" if by_name else value)
        variants.append(f"first = {first}\nyield ({', '.join(args)},), dict({', '.join(kwargs)})")
    return variants


def fill(g: Gen, text: str, rows: str) -> str:
    seed = str(g.rng.randint(1, 9))
    return text.replace("{seed}", seed).replace("{rows}", rows).replace("{cols}", str(g.cols))


def calls(g: Gen, names: list[str], sig: str) -> Block:
    """The function that yields the arguments of one call after another."""
    variants = call_variants(g, names, sig)
    body: Block = []
    count = g.rng.randint(5, 8)
    changed = g.rng.randint(2, count - 1)
    for i in range(count):
        if i == changed and g.mutations:
            body += g.rng.sample(g.mutations, min(len(g.mutations), g.rng.choice([1, 1, 2])))
        elif i and g.resets and g.chance(0.75):
            body.append("reset()")
        # The same arguments twice in a row are what a replay is for.
        variant = variants[(i // 2) % len(variants)] if g.chance(0.8) else g.rng.choice(variants)
        body += variant.split("\n")
    block: Block = []
    if g.resets:
        block.append(("def reset():", [*(["global K"] if "K" in g.done else []), *g.resets]))
    block.append(("def calls():", body))
    return block
