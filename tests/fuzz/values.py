"""Expressions of Python values."""

from .source import Gen, rule, texts

texts(
    "int",
    "({int} + {int})",
    "({int} * {int})",
    "({int} - {int})",
    "({int} // 2)",
    "({int} % 3)",
    "(-{int})",
    "max({int}, {int})",
    "min({int}, {int}, 2)",
    "abs({int})",
    "({int} if {bool} else {int})",
    "int({bool})",
    "int({float})",
    "divmod({int}, 2)[1]",
    "({int} & 3)",
    "({bool} and {int})",
    "({int} or {int})",
)
texts(
    "int",
    "len({ints})",
    "len({str})",
    "sum({ints})",
    "sum(i * i for i in {ints})",
    "max([*{ints}, 0])",
    "{ints}.count(1)",
    "sum(map(lambda i: i + 1, {ints}))",
    "len(set({ints}))",
    "len([*filter(None, {ints})])",
    "functools.reduce(lambda p, q: p + q, {ints}, 1)",
    "next(iter({ints}), 7)",
    "next((i for i in {ints} if i > 1), 0)",
    "len(dict([('a', {int}), ({str}, 1)]))",
    "dict(a={int}, b=2).get({str}, {int})",
    "(lambda p, *q, r=1: p + len(q) + r)(*[{int}, *{ints}])",
)
texts(
    "int",
    "{full}.shape[0]",
    "{full}.size(-1)",
    "{full}.dim()",
    "{full}.numel()",
    "len({full})",
    "{full}.shape[-1]",
    "{full}.stride(0)",
    "{small}.dim()",
    weight=0.7,
)
texts("int", "int({mask}.sum())", "{full}.argmax().item()", weight=0.25)

texts(
    "float",
    "({float} + {int})",
    "({float} * {float})",
    "({float} / 4)",
    "float({int})",
    "round({float}, 1)",
    "({float} if {bool} else 1.0)",
    "math.sqrt(abs({float}))",
    "math.floor({float}) * 0.5",
    "abs({float})",
    "max({float}, {int})",
)
texts("float", "{full}.sum().item()", "float({full}.mean())", "{full}.max().item()", weight=0.25)

texts(
    "bool",
    "({int} > {int})",
    "({int} == {int})",
    "({float} <= {float})",
    "(not {bool})",
    "({bool} and {bool})",
    "({bool} or {bool})",
    "({str} in {str})",
    "({int} in {ints})",
    "any(i > 1 for i in {ints})",
    "all(i > 0 for i in {ints})",
    "bool({ints})",
    "({str} == {str})",
    "(0 <= {int} < 3)",
    "isinstance({any}, int)",
    "({any} is None)",
    "{str}.startswith('a')",
)
texts(
    "bool",
    "({full}.shape[0] > 2)",
    "({full}.dtype == torch.float32)",
    "({full}.dtype.is_floating_point)",
    "({full}.shape == {full}.shape)",
    "{full}.is_contiguous()",
    "{full}.requires_grad",
    "torch.is_grad_enabled()",
    "({full} is {full})",
    "torch.is_tensor({any})",
    "(hasattr({any}, 'dtype'))",
    weight=0.6,
)
texts("bool", "bool({full}.sum() > 0)", "bool({mask}.any())", weight=0.5)

texts(
    "str",
    "({str} + {str})",
    "str({int})",
    "repr({float})",
    "'%s-%d' % ({str}, {int})",
    "{str}.upper()",
    "({str} * 2)",
    "'-'.join(map(str, {ints}))",
    "({str} if {bool} else {str})",
    "{str}.replace('a', 'b')",
    "str(sorted({ints}))",
    "type({any}).__name__",
)


@rule("str", 2)
def format_string(g: Gen, depth: int) -> str:
    kind = g.rng.choice(["int", "float", "bool", "str", "ints"])
    value = g.expr(kind, 0)
    suffix = {"int": ":>3", "float": ":.2f", "str": "!r"}.get(kind, "")
    if "{" in value or '"' in value:
        return "'plain'"
    return 'f"{' + value + g.rng.choice(["", suffix]) + '}|"'


@rule("str", 1)
def format_method(g: Gen, depth: int) -> str:
    return f"'{{}}:{{b}}'.format(type({g.expr('any', 0)}).__name__, b={g.expr('int', 0)})"


@rule("str", 0.6)
def format_shape(g: Gen, depth: int) -> str:
    value = g.expr("full", 0)
    return 'f"{' + f"tuple({value}.shape)" + "}{" + f"{value}.dtype" + '}"'


texts(
    "ints",
    "[{int}, {int}]",
    "[*{ints}, {int}]",
    "({ints} + {ints})[:4]",
    "sorted({ints})",
    "sorted({ints}, reverse=True)",
    "sorted({ints}, key=lambda i: -i)",
    "[i + 1 for i in {ints}]",
    "[i for i in {ints} if i > 0]",
    "[i * j for i in {ints} for j in range(2)][:5]",
    "list(range(abs({int}) % 4))",
    "[i + j for i, j in zip({ints}, {ints})]",
    "[i * v for i, v in enumerate({ints})]",
    "list(map(lambda i: i - 1, {ints}))",
    "{ints}[::-1]",
    "{ints}[1:]",
    "list(dict.fromkeys({ints}))",
    "sorted(set({ints}))",
    "list(reversed({ints}))",
    "list(itertools.chain({ints}, {ints}))[:4]",
    "list(itertools.accumulate({ints}))",
    "list({full}.shape)",
    "(lambda *p: list(p))(*{ints})",
    "([{int}] * 2)",
    "list(collections.Counter({ints}).values())",
    "list(collections.deque({ints}, maxlen=2))",
)
texts("ints", "{full}.sum(1).int().tolist()", weight=0.08)
