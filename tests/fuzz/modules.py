"""Modules: the target as an nn.Module, with layers, buffers and hooks that change."""

from collections.abc import Callable

from .source import Block, Gen, statement

LAYERS = (
    "nn.Linear({c}, {c})|nn.LayerNorm({c})|nn.Sequential(nn.Linear({c}, {c}), nn.ReLU())|"
    "nn.Dropout(0.5)|nn.BatchNorm1d({c})|nn.Identity()|nn.GELU()|"
    "nn.ModuleList([nn.Linear({c}, {c}), nn.Tanh()])|nn.ModuleDict(dict(a=nn.Tanh(), b=nn.ReLU()))|"
    "nn.Softmax(-1)|nn.PReLU()|Inner({c})"
).split("|")

INNER: Block = [
    (
        "class Inner(nn.Module):",
        [
            (
                "def __init__(self, n):",
                [
                    "super().__init__()",
                    "self.w = nn.Parameter(T(80, n, n))",
                    "self.gain = 2.0",
                    "self.last = None",
                ],
            ),
            (
                "def forward(self, v, gain=None):",
                [
                    "self.last = v.shape",
                    ("if gain is not None:", ["return v @ self.w * gain"]),
                    "return v @ self.w * self.gain",
                ],
            ),
        ],
    )
]

# Uses of a module's own state: statement, what it needs in __init__, changes between calls.
BUFFER = "self.register_buffer('buf', T(81, 1, {c}))"
PARAMETER = "self.p = nn.Parameter(T(83, {c}))"
NOTHING = "pass"
USES: list[tuple[str, str, list[str]]] = [
    (
        "{new:full} = {full} + self.buf",
        BUFFER,
        [
            "target.buf.add_(1)",
            "target.buf = T(82, 1, {c})",
            "target.register_buffer('b2', T(1, 1))",
        ],
    ),
    ("self.buf.add_(1)", BUFFER, ["target.buf.zero_()"]),
    ("self.buf = {full}[:1].detach()", BUFFER, []),
    ("self.buf.copy_({full}[:1])", BUFFER, []),
    (
        "{new:full} = {full} * self.p",
        PARAMETER,
        [
            "target.p.requires_grad_(False)",
            "target.p = nn.Parameter(T(84, {c}))",
            "target.p.data = T(85, {c})",
            "target.p.data.mul_(2)",
            "target.double()",
            "target.float()",
        ],
    ),
    ("self.steps = (self.steps + 1) % 2", "self.steps = 0", ["target.steps = 0"]),
    ("{new:int} = self.steps", "self.steps = 0", ["target.steps = 1"]),
    ("self.last = {full}", "self.last = None", ["target.last = None"]),
    ("{new:bool} = self.last is None", "self.last = None", ["target.last = None"]),
    ("self.cache['k'] = {any}", "self.cache = {}", ["target.cache.clear()"]),
    ("{new:any} = self.cache.get('k')", "self.cache = {}", ["target.cache['k'] = 3"]),
    ("self.history.append({int})", "self.history = []", ["target.history.clear()"]),
    (
        "{new:bool} = self.training",
        NOTHING,
        ["target.train(not target.training)", "target.eval()"],
    ),
    ("{new:full} = F.dropout({full}.float(), 0.5, self.training)", NOTHING, ["target.eval()"]),
    ("{new:ints} = [p.numel() for p in self.parameters()]", NOTHING, []),
    ("{new:list} = [n for n, _ in self.named_parameters()]", NOTHING, []),
    ("{new:list} = list(self.state_dict())", NOTHING, []),
    ("self.requires_grad_({bool})", PARAMETER, []),
    (
        "{new:full} = {full} * self.level",
        "self.level = 2",
        [
            "target.level = torch.tensor(2.0)",
            "target.level = 3",
            "Target.level = 5",
            "del target.level; Target.level = 4",
            "target.level = nn.Parameter(T(86, 1))",
        ],
    ),
    ("self.made = nn.Parameter({full}[:1].detach().float())", NOTHING, []),
    ("self.register_buffer('b3', {full}[:1].detach())", NOTHING, []),
    ("self.seen = getattr(self, 'seen', 0) % 2 + 1", NOTHING, ["target.seen = 4"]),
    ("{new:bool} = hasattr(self, 'b3')", NOTHING, ["target.b3 = T(87, 1)"]),
    ("{new:int} = len(list(self.children()))", NOTHING, ["target.more = nn.ReLU()"]),
    ("{new:list} = [n for n, b in self.named_buffers()]", BUFFER, ["del target.buf"]),
    ("self.buf = None", BUFFER, ["target.buf = T(88, 1, {c})"]),
    ("{new:bool} = self.buf is None", BUFFER, ["target._buffers['buf'] = T(88, 1, {c})"]),
    ("self.__dict__['raw'] = {int}", NOTHING, []),
    ("{new:any} = self.__dict__.get('raw')", NOTHING, ["target.raw = 2"]),
    ("self.train({bool})", NOTHING, []),
    ("{new:str} = self._get_name()", NOTHING, []),
    ("{new:any} = self.state_dict().get('buf')", BUFFER, []),
    ("{new:full} = self.get_buffer('buf') + {full}", BUFFER, []),
    ("{new:list} = [type(m).__name__ for m in self.children()]", NOTHING, []),
    ("for p in self.parameters():\n    p.grad = None", PARAMETER, []),
    ("with torch.no_grad():\n    self.p.add_(1)", PARAMETER, []),
    ("{new:full} = self.helper({full}, {int})", NOTHING, ["target.helper = lambda v, n: v"]),
]


def rule_for(text: str, init: str, mutations: list[str]) -> Callable[[Gen], Block]:
    def make(g: Gen) -> Block:
        c = str(g.cols)
        g.init_lines.setdefault(init.replace("{c}", c))
        g.mutations += [m.replace("{c}", c) for m in mutations if g.once(m)]
        filled = g.fill(text, 1)
        return list(filled.split("\n")) if filled else []

    return make


for _use in USES:
    statement("module")(rule_for(*_use))


@statement("module", 9)
def layer(g: Gen) -> Block:
    """A call of a submodule, which is made when it is first used."""
    c = str(g.cols)
    if not g.layers or (len(g.layers) < 3 and g.chance(0.4)):
        add_layer(g, g.rng.choice(LAYERS).replace("{c}", c))
    name, maker = g.rng.choice(g.layers)
    value = g.expr("full", 1) + ".float()"
    if "ModuleList" in maker:
        out = g.declare("full")
        loop: Block = [f"{out} = m({out})"]
        return [f"{out} = {value}", (f"for m in self.{name}:", loop)]
    if "ModuleDict" in maker:
        key = g.pick("'a'", "'b'", "'ab'[" + g.expr("int", 0) + "]")
        return [g.let("full", f"self.{name}[{key}]({value})")]
    return [g.let("full", f"self.{name}({value})")]


def add_layer(g: Gen, maker: str) -> None:
    if "Inner" in maker and g.once("Inner"):
        g.top += INNER
    name = g.fresh("layer")
    g.layers.append((name, maker))
    g.init_lines.setdefault(f"self.{name} = {maker}")
    path = f"target.{name}"
    g.mutations += [
        f"{path} = nn.Identity()",
        f"HANDLES.append({path}.register_forward_hook(lambda m, a, out: out * 2))",
        f"HANDLES.append({path}.register_forward_pre_hook(lambda m, a: (a[0] + 1,)))",
        "HANDLES and HANDLES.pop().remove()",
        f"{path}.eval()",
        f"{path}.requires_grad_(False)",
        f"{path}.forward = lambda v: v - 1",
        "HANDLES.append(target.register_forward_hook(lambda m, a, out: SPY.append(1)))",
    ]
    if "Linear(" in maker and "List" not in maker and "Seq" not in maker:
        g.mutations += [
            f"{path}.weight.data.mul_(2)",
            f"{path}.weight = nn.Parameter({path}.weight.detach() + 1)",
            f"{path}.bias = None",
        ]
    if "ModuleList" in maker:
        g.mutations += [f"{path}.append(nn.ReLU())", f"{path}[0] = nn.Identity()", f"del {path}[1]"]
    if "Sequential" in maker:
        g.mutations += [f"{path}.append(nn.Tanh())", f"{path}[1] = nn.Identity()"]
    if "Inner" in maker:
        g.mutations += [f"{path}.gain = 3.0", f"{path}.last = None"]


def module_class(g: Gen, signature: str, body: Block) -> Block:
    """The class of the target, and the target."""
    init: Block = ["super().__init__()", *g.init_lines]
    helper: Block = ["return v + n"]
    members: Block = [
        ("def __init__(self):", init),
        ("def helper(self, v, n):", helper),
        (f"def forward(self, {signature}):", body),
    ]
    return [
        ("class Target(nn.Module):", members),
        "torch.manual_seed(7)",
        "target = Target()",
        "HANDLES, SPY = [], []",
    ]
