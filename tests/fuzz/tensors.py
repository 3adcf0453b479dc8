"""Tensor expressions and statements: arithmetic, views, reductions, in-place operators."""

import re

from .source import Block, Gen, lines, rule, statement, texts

UNARY = (
    "torch.relu({full})|torch.tanh({full})|{full}.sigmoid()|{full}.abs()|(-{full})|{full}.sin()|"
    "{full}.clone()|{full}.contiguous()|F.gelu({full})|F.silu({full})|{full}.square()|"
    "{full}.clamp(-1, 1)|{full}.cumsum(-1)|{full}.flip(0)|{full}.roll(1, 0)|{full}.round()|"
    "{full}.sort(-1).values|torch.softmax({full}, -1)|F.layer_norm({full}, ({cols},))|"
    "F.normalize({full}, dim=-1)|torch.nan_to_num({full})|{full}.exp().clamp(max=3)|"
    "{full}.detach()|torch.sign({full})|F.log_softmax({full}, 1)|F.leaky_relu({full}, 0.1)"
)
BINARY = (
    "({full} + {small})|({full} * {full})|({full} - {small})|({full} / ({full}.abs() + 1))|"
    "({small} + {full})|({full} ** 2)|torch.maximum({full}, {full})|torch.add({full}, {full}, "
    "alpha=2)|({full} * {float})|({int} - {full})|({full} + {int})|torch.addcmul({full}, {full}, "
    "{small})|torch.lerp({full}, {full}, 0.5)|torch.where({mask}, {full}, {full})|"
    "torch.where({mask}, {full}, {float})|{full}.masked_fill({mask}, {float})|"
    "({full} @ torch.ones({cols}, {cols}))|torch.einsum('ij,kj->ik', {full}, torch.eye({cols}))|"
    "F.linear({full}, torch.eye({cols}))|torch.atan2({full}, {full})|({full} % 2)|({full} // 2)"
)
VIEWS = (
    "{full}.t().t()|{full}.view({full}.shape)|{full}.reshape(-1).view(-1, {cols})|"
    "{full}.unsqueeze(0).squeeze(0)|{full}.transpose(0, 1).transpose(-1, -2)|"
    "{full}[:]|{full}[..., :]|{full}[None][0]|{full}.expand(-1, -1)|{small}.expand_as({full})|"
    "{full}.view_as({full})|{full}.permute(1, 0).permute(1, 0)|{full}.narrow(0, 0, 1)."
    "expand_as({full})|{full}[:1].expand_as({full})|{full}.unflatten(1, (1, -1)).squeeze(1)|"
    "{full}.flatten().unflatten(0, (-1, {cols}))|{full}[::1]|{full}.T.T"
)
SHUFFLES = (
    "torch.cat([{full}, {full}])[:{full}.shape[0]]|torch.stack([{full}, {full}]).sum(0)|"
    "torch.stack([{full}, {full}], 1)[:, 0]|{full}.gather(1, torch.zeros_like({full}, "
    "dtype=torch.long))|{full}.index_select(1, torch.arange({cols}))|{full}.repeat(2, 1)"
    "[:{full}.shape[0]]|torch.cat({full}.chunk(2, 1), 1)|torch.stack({full}.unbind(1), 1)|"
    "torch.cat({full}.split(1, 1), 1)|F.pad({full}, (1, 0))[:, 1:]|{full}[:, torch.arange({cols})]|"
    "torch.tril({full})|{full}.scatter(1, torch.zeros_like({full}, dtype=torch.long), 0)|"
    "torch.stack([{full}[i] for i in range({full}.shape[0])])|sum([{full}, {full}])|"
    "torch.zeros_like({full})|(torch.ones_like({full}) * {int})|torch.full_like({full}, {float})|"
    "{full}.new_zeros({full}.shape)|torch.empty_like({full}).fill_({int})|"
    "{full}.new_tensor([1] * {cols}).expand_as({full})"
)
DTYPES = (
    "{full}.float()|{full}.double()|{full}.to(torch.bfloat16)|{full}.to(torch.float16).float()|"
    "{full}.int()|{full}.long().float()|{full}.to({full}.dtype)|{full}.type_as({full})|"
    "{mask}.to({full}.dtype)|{mask}.float()|({full} > 0).long()"
)
RANDOM = (
    "torch.rand_like({full}.float())|torch.randn({full}.shape[0], {cols})|"
    "F.dropout({full}.float(), 0.5, training={bool})|torch.bernoulli(torch.full_like({full}.float()"
    ", 0.5))|({full} + torch.rand(1))|({full} * torch.rand({cols}))|"
    "{full}[torch.randperm({full}.shape[0])]"
)
SMALL = (
    "{full}.sum()|{full}.sum(1, keepdim=True)|{full}.float().mean(0)|{full}.max()|"
    "{full}.amax(-1, keepdim=True)|{full}[:1]|{full}[0]|{full}[:, :1]|{full}[-1]|"
    "{full}.max(1, keepdim=True)[0]|{full}.float().norm()|{full}.float().var(1, keepdim=True)|"
    "torch.tensor({float})|torch.tensor([1.0] * {cols})|torch.arange({cols})|"
    "({small} + {small})|({small} * {float})|torch.full((1, {cols}), {int})|"
    "{full}.float().logsumexp(0)|{full}.argmax(1, keepdim=True)|{full}.select(0, 0)|"
    "{full}[0].clone()|{small}.neg()|{full}.diagonal().sum()|torch.linspace(0, 1, {cols})"
)
MASK = (
    "({full} > 0)|({full} <= {small})|({full} != {full})|(~{mask})|({mask} & {mask})|"
    "({mask} | {mask})|({full} > {float})|torch.isfinite({full})|{full}.bool()|"
    "{mask}.logical_not()|torch.eq({full}, {full})|({full} >= {int})"
)


def _register(kind: str, table: str, weight: float) -> None:
    options = re.split(r"\|(?! )", table)
    texts(kind, *options, weight=weight / len(options))


for _kind, _table, _weight in (
    ("full", UNARY, 5),
    ("full", BINARY, 5),
    ("full", VIEWS, 4),
    ("full", SHUFFLES, 3),
    ("full", DTYPES, 0.6),
    ("full", RANDOM, 0.25),
    ("small", SMALL, 1),
    ("mask", MASK, 1),
):
    _register(_kind, _table, _weight)

texts("tensors", "[{full}, {full}]", "[*{tensors}, {full}]", "[{full}]")
texts("tensors", "[t * i for i, t in enumerate({tensors})]", "[t for t in {tensors} if t.dim()]")
texts("full", "({tensors} + [{full}])[0]", "sum({tensors}, {full})", weight=0.3)

lines("tensor", "{new:full} = {full}", weight=6)
lines("tensor", "{new:small} = {small}", "{new:mask} = {mask}", "{new:int} = {int}", weight=1)

# In-place operators, on copies made in the call and on views of them.
INPLACE = (
    ".add_({small})|.mul_(2)|.sub_({full})|.copy_({full})|.zero_()|.fill_({int})|.clamp_(-1, 1)|"
    ".relu_()|.masked_fill_({mask}, {float})|.neg_()|.div_(2)|.add_({full}, alpha=2)|.abs_()|"
    ".t_().t_()|.index_fill_(1, torch.tensor([0]), 1)|.addcmul_({full}, {full})|.unsqueeze_(0)."
    "squeeze_(0)|.uniform_()|.normal_()|.bernoulli_(0.5)|.clamp_(min=0)|.tanh_()|.exp_()|"
    ".index_add_(0, torch.tensor([0]), {full}[:1])|.scatter_(1, torch.zeros(1, 1, "
    "dtype=torch.long), 2)|.lerp_({full}, 0.5)|.cumsum_(0)|.squeeze_(-1)|.requires_grad_()"
).split("|")
ITEMS = (
    "[0] = {float}|[:, 0] = {int}|[0] += 1|[:, 1] *= {float}|[{mask}] = {float}|"
    "[{mask}] += 1|[:1] = {full}[:1]|[..., -1] = 0|[0, 0] = {int}|[:] = {full}|"
    "[torch.tensor([0])] = {float}|[:, ::2] -= 1|[-1:].mul_(3)|[0].zero_()|.t()[0] = 2|"
    ".view(-1)[0] = {float}|.reshape(-1)[1:].neg_()|.transpose(0, 1).add_(1)|.diagonal().fill_(5)|"
    ".select(1, 0).copy_({full}[:, 0])|[None, 0, :1] = 1|.data.mul_(2)"
).split("|")


@statement("inplace", 4)
def on_copy(g: Gen) -> Block:
    value = g.expr("full")
    name = g.declare("full")
    block: Block = [f"{name} = {value}{g.pick('.clone()', ' * 1', ' + 0', '.detach().clone()')}"]
    for _ in range(g.rng.randint(1, 3)):
        block += write_of(g, name)
    return block


def write_of(g: Gen, name: str) -> Block:
    """An in-place write to the tensor `name`, or to a view of it."""
    text = g.fill(name + g.rng.choice(INPLACE if g.chance(0.5) else ITEMS), 1)
    return [text] if text else []


@statement("inplace", 2)
def view_then_write(g: Gen) -> Block:
    value = g.expr("full", 1)
    base = g.declare("full")
    view = g.fresh("w")
    form = g.pick("[:1]", ".t()", ".view(-1)", "[0]", "[:, 1:]", ".reshape(-1)", ".detach()", "")
    block: Block = [f"{base} = {value}.clone()", f"{view} = {base}{form}"]
    block += [f"{view}.{g.pick('add_(1)', 'mul_(2)', 'zero_()', 'neg_()', 'fill_(3)')}"]
    if g.chance(0.5):
        block += write_of(g, base)
    g.declare("loose", view)
    return block


@statement("inplace", 2)
def on_variable(g: Gen) -> Block:
    known = g.variables("full")
    return write_of(g, g.rng.choice(known)) if known else []


@statement("inplace", 0.7)
def out_argument(g: Gen) -> Block:
    call = g.fill(g.pick("torch.add({full}, 1", "torch.mul({full}, {full}"), 1)
    other = g.expr("full", 0)
    name = g.declare("full")
    return [f"{name} = torch.empty_like({other})", f"{call}, out={name})"]


@statement("inplace", 0.7)
def augmented(g: Gen) -> Block:
    if not g.own("full"):
        return []
    name = g.rng.choice(g.own("full"))
    return [g.fill(f"{name} {g.pick('+=', '*=', '-=')} {g.pick('{small}', '{int}', '{full}')}", 1)]


# Autograd.
lines(
    "autograd",
    "with torch.no_grad():\n    {new:full} = {full}",
    "with torch.enable_grad():\n    {new:full} = {full}",
    "{new:full} = {full}.detach()",
    "{new:full} = {full}.detach().requires_grad_({bool})",
    "{new:full} = {full}.detach().clone().requires_grad_()\n{new:full} = ({same} * 2)",
    "torch.set_grad_enabled({bool})\n{new:full} = {full}\ntorch.set_grad_enabled(True)",
    "with torch.inference_mode():\n    {new:int} = int({full}.shape[0])",
    "with torch.set_grad_enabled({bool}):\n    {new:full} = {full}",
    "{new:bool} = {full}.requires_grad",
    "{new:full} = {full}.data",
    "{new:bool} = {full}.is_leaf",
)


@statement("grad inside", 2)
def grad_inside(g: Gen) -> Block:
    leaf = g.fresh("p")
    value = g.expr("full", 1)
    name = g.declare("full")
    return [
        f"{leaf} = {value}.detach().float().requires_grad_()",
        f"{name}, = torch.autograd.grad(({leaf} * {leaf}).sum(), {leaf})",
    ]


@statement("random", 3)
def draws(g: Gen) -> Block:
    value = g.fill(g.rng.choice(RANDOM.split("|")), 1)
    return [g.let("full", value or "x")]


@statement("random", 0.4)
def python_random(g: Gen) -> Block:
    value = g.pick("random.random()", "random.uniform(0, 1)", "random.gauss(0, 1)")
    return [g.let("float", value)]


@statement("random", 0.4)
def seeds(g: Gen) -> Block:
    return [f"torch.manual_seed({g.rng.randint(0, 3)})"]


@rule("full", 0.3)
def helper_call(g: Gen, depth: int) -> str:
    fitting = [h for h in g.helpers if h.kind == "full"]
    return g.fill(g.rng.choice(fitting).call, depth - 1) if fitting else g.expr("full", 0)
