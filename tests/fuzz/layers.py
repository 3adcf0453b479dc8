"""Operators of neural networks, and what autograd shows of itself to a program."""

from .source import Block, Gen, lines, statement, texts

texts(
    "full",
    "F.scaled_dot_product_attention({full}.float()[None], {full}.float()[None], "
    "{full}.float()[None])[0]",
    "F.conv1d({full}.float()[None], torch.ones(1, 1, 1).expand({full}.shape[0], 1, 1), "
    "groups={full}.shape[0])[0]",
    "F.batch_norm({full}.float(), None, None, training=True)",
    "F.embedding(torch.tensor([0] * {full}.shape[0]), {full})",
    "F.group_norm({full}.float()[None], 1)[0]",
    "F.interpolate({full}.float()[None], size={cols})[0]",
    "F.softplus({full}.float())",
    "F.one_hot({full}.argmax(1), {cols}).float()",
    "F.max_pool1d({full}.float(), 1)",
    "torch.bmm({full}[None], torch.eye({cols})[None].to({full}.dtype))[0]",
    "torch.addmm({full}.float(), {full}.float(), torch.eye({cols}))",
    "torch.baddbmm({full}.float()[None], {full}.float()[None], torch.eye({cols})[None])[0]",
    "torch.complex({full}.float(), {full}.float()).real",
    "torch.fft.ifft(torch.fft.fft({full}.float())).real",
    "torch.linalg.norm({full}.float(), dim=1, keepdim=True).expand_as({full})",
    "torch.quantile({full}.float(), 0.5, dim=1, keepdim=True).expand_as({full})",
    "torch.func.vmap(torch.sin)({full}.float())",
    "{full}.topk(1, dim=1).values.expand_as({full})",
    "{full}.as_strided({full}.shape, {full}.stride())",
    "{full}.masked_select({mask}).sum().expand_as({full})",
    "torch.nonzero({mask}).sum() + {full}",
    "{full}[{full}.argsort(0)[:, 0]]",
    "torch.unique({full}).sum() * {full}",
    "{full}[{mask}].sum() + {full}",
    "{full}.float().std(dim=1, keepdim=True) * {full}",
    "torch.cumprod({full}, 1)",
    "F.pad({full}, (0, 1), value={float})[:, :-1]",
    "torch.meshgrid(torch.arange(2), torch.arange({cols}), indexing='ij')[1][:1] + {full}",
    "torch.tensordot({full}.float(), torch.eye({cols}), 1)",
    "torch.utils.checkpoint.checkpoint(torch.sin, {full}.float(), use_reentrant=False)",
    weight=0.06,
)
lines(
    "autograd",
    "{new:full} = {full}.detach_()",
    "{new:any} = x.grad",
    "x.grad = {full}.detach()",
    "{new:bool} = {full}.grad_fn is None",
    "{new:str} = type({full}.grad_fn).__name__",
    "{new:int} = {full}.output_nr",
    "{new:bool} = torch.is_inference_mode_enabled()",
    "with torch.inference_mode():\n    {new:full} = {full} + 1",
    "{new:full} = torch.no_grad()(lambda v: v * 2)({full})",
    "{new:bool} = {full}._is_view()",
    "{new:any} = {full}._base",
    "{new:int} = {full}._version",
    weight=0.5,
)
lines(
    "grad inside",
    "{full}.sum().backward()",
    "(({full} * 2).sum()).backward()",
    "{new:full} = torch.func.grad(lambda v: (v * v).sum())({full}.detach().float())",
    "{new:full} = {full}.float().requires_grad_().retain_grad() or {full}",
    weight=0.6,
)


@statement("grad inside", 1)
def custom_function(g: Gen) -> Block:
    if g.once("Doubling"):
        forward: Block = ["ctx.k = 2", "return v * 2"]
        members: Block = [
            "@staticmethod",
            ("def forward(ctx, v):", forward),
            "@staticmethod",
            ("def backward(ctx, grad):", ["return grad * ctx.k"]),
        ]
        g.top.append(("class Doubling(torch.autograd.Function):", members))
    return [g.let("full", f"Doubling.apply({g.expr('full', 1)}.float())")]


@statement("numbers", 2)
def number_of_tensor(g: Gen) -> Block:
    """A Python number out of a tensor decides sizes, indices, keys, text."""
    name = g.fresh("n")
    kind = g.pick(
        "int({full}.sum().abs()) % 3", "{full}.argmax(1).tolist()[0]", "int({mask}.sum())"
    )
    value = g.fill(kind, 1)
    use = g.pick(
        "[i for i in range({n})]",
        "x[:{n} + 1]",
        "x * {n}",
        "'v' * {n}",
        "torch.zeros({n})",
        "dict([({n}, x)])",
        "(x, -x, x + 1)[{n} % 3]",
        "f'{{n}}'",
        "x[{n} % x.shape[0]]",
        "torch.arange({n})",
        "x.sum().item() + {n}",
        "sum([x] * {n}, x)",
        "[t.item() for t in x[0]]",
        "x[0].tolist()",
        "float(x[0, 0])",
        "round(x.sum().item(), 2)",
    ).replace("{n}", name)
    g.declare("int", name)
    return [f"{name} = {value}", g.let("any", use)]
