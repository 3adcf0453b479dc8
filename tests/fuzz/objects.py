"""Classes defined by the program, and the objects that it reads and changes."""

from .source import Block, Gen, statement

BASE: Block = [
    (
        "class Base:",
        [
            "scale = 2",
            "names = ['base']",
            ("def __init__(self, n=1):", ["self.n = n", "self._hidden = 3"]),
            ("def apply(self, v):", ["return v * self.scale"]),
            ("def describe(self):", ["return f'{type(self).__name__}:{self.n}'"]),
            "@property",
            ("def hidden(self):", ["return self._hidden"]),
            "@hidden.setter",
            ("def hidden(self, value):", ["self._hidden = value % 2"]),
            "@classmethod",
            ("def factor(cls):", ["return cls.scale + 1"]),
            "@staticmethod",
            ("def twice(v):", ["return v + v"]),
        ],
    )
]
BOX: Block = [
    (
        "class Box(Base):",
        [
            (
                "def __init__(self, n=1, t=None):",
                ["super().__init__(n)", "self.t = t", "self.items = []", "self.tag = 'box'"],
            ),
            ("def apply(self, v):", ["return super().apply(v) + self.n"]),
            (
                "def __getattr__(self, name):",
                [
                    ("if name.startswith('dyn'):", ["return len(name)"]),
                    "raise AttributeError(name)",
                ],
            ),
            ("def __call__(self, v):", ["return self.apply(v) - 1"]),
            ("def __len__(self):", ["return len(self.items)"]),
            ("def __bool__(self):", ["return self.n > 0"]),
            ("def __contains__(self, v):", ["return v in self.items"]),
            ("def __getitem__(self, i):", ["return self.items[i]"]),
            ("def __setitem__(self, i, v):", ["self.items[i] = v"]),
            ("def __eq__(self, o):", ["return isinstance(o, Box) and self.n == o.n"]),
            ("def __hash__(self):", ["return hash(self.n)"]),
        ],
    )
]
PAIR: Block = [
    (
        "class Pair:",
        [
            "__slots__ = ('left', 'right')",
            ("def __init__(self, left, right=0):", ["self.left = left", "self.right = right"]),
            ("def __add__(self, o):", ["return Pair(self.left + getattr(o, 'left', o), 1)"]),
            ("def __radd__(self, o):", ["return Pair(o + self.left, 2)"]),
            ("def __mul__(self, o):", ["return Pair(self.left * o, self.right)"]),
            ("def __iadd__(self, o):", ["self.left = self.left + o", "return self"]),
            ("def __iter__(self):", ["yield self.left", "yield self.right"]),
            ("def __lt__(self, o):", ["return self.right < o.right"]),
            ("def __repr__(self):", ["return f'Pair({self.right})'"]),
            ("def __neg__(self):", ["return Pair(-self.left, self.right)"]),
        ],
    )
]
MODE: Block = [("class Mode(enum.Enum):", ["FAST = 1", "SLOW = 2"])]
LISTLIKE: Block = [
    (
        "class Stack(list):",
        [
            ("def push(self, v):", ["self.append(v)", "return self"]),
            ("def __getitem__(self, i):", ["return super().__getitem__(i)"]),
        ],
    ),
    ("class Defaults(dict):", [("def __missing__(self, key):", ["return key + '?'"])]),
]
DESCRIPTOR: Block = [
    (
        "class Doubled:",
        [
            ("def __set_name__(self, owner, name):", ["self.name = '_' + name"]),
            (
                "def __get__(self, o, kind):",
                [("if o is None:", ["return self"]), "return o.__dict__.get(self.name, 1) * 2"],
            ),
            ("def __set__(self, o, v):", ["o.__dict__[self.name] = v"]),
        ],
    ),
    (
        "class Guarded:",
        [
            "level = Doubled()",
            (
                "def __setattr__(self, name, v):",
                ["object.__setattr__(self, name, v)", "Guarded.writes = 1"],
            ),
            (
                "def __getattribute__(self, name):",
                [
                    ("if name == 'magic':", ["return 42"]),
                    "return object.__getattribute__(self, name)",
                ],
            ),
        ],
    ),
]


def needs_box(g: Gen) -> None:
    if not g.once("BOX"):
        return
    g.top += BASE + BOX
    g.setup += ["BOX = Box(1)", "BOX2 = Box(2)"]
    g.resets.append(
        "BOX.n = 1; BOX.t = None; BOX.items = []; BOX.tag = 'box'; BOX._hidden = 3; "
        "Base.scale = 2; BOX.__dict__.pop('extra', None)"
    )
    g.mutations += [
        "BOX.n = 2",
        "Box.n = property(lambda self: 7, lambda self, v: None)",
        "Box.__len__ = lambda self: 2",
        "Box.__bool__ = lambda self: False",
        "Box.__call__ = lambda self, v: v * 5",
        "Box.__eq__ = lambda self, o: True",
        "Box.__getattr__ = lambda self, name: 6",
        "Box.__contains__ = lambda self, v: True",
        "Base.hidden = 5",
        "Base.factor = lambda *p: 9",
        "Base.twice = staticmethod(lambda v: v)",
        "Box.extra = 8",
        "Box.__getattribute__ = lambda s, n: 1 if n == 'tag' else object.__getattribute__(s, n)",
        "Box.__setattr__ = lambda self, n, v: object.__setattr__(self, n, 1)",
        "Box.describe = Base.describe",
        "Base.dynamic = 4",
        "Box.__bases__ = (type('Mid', (Base,), dict(scale=7)),)",
        "del Box.apply",
        "BOX.__dict__.clear()",
        "Base.scale = 3",
        "BOX.extra = 5",
        "BOX.items.append(1)",
        "Box.apply = lambda self, v: v - self.n",
        "BOX.apply = lambda v: v + 10",
        "Box.scale = 1",
        "BOX.__class__ = Base",
        "BOX.dyn = 9",
        "BOX.items = (1, 2)",
        "globals()['BOX'] = BOX2",
        "Base.describe = lambda self: 'new'",
        "delattr(BOX, 'tag')",
    ]


BOX_USES = (
    "{new:int} = BOX.n|{new:full} = BOX.apply({full})|{new:full} = BOX({full})|BOX.n = {int} % 2|"
    "BOX.n = (BOX.n + 1) % 2|BOX.t = {full}|BOX.items.append({any})|{new:int} = len(BOX)|"
    "{new:str} = BOX.describe()|{new:int} = BOX.hidden|BOX.hidden = {int}|{new:int} = BOX.dynamic|"
    "{new:int} = getattr(BOX, 'extra', 0)|{new:bool} = hasattr(BOX, 'extra')|BOX.extra = {any}|"
    "setattr(BOX, 'tag', {str})|{new:int} = Box.factor()|{new:full} = Base.twice({full})|"
    "{new:bool} = bool(BOX)|{new:bool} = {int} in BOX|{new:bool} = BOX == BOX2|{new:str} = BOX.tag|"
    "{new:bool} = BOX.t is None|{new:any} = BOX.t|{new:list} = BOX.items|Box.scale = {int} % 2|"
    "{new:object} = Box({int}, {full})|{new:object} = BOX|{new:dict} = dict(vars(BOX))|"
    "BOX.__dict__['tag'] = {str}|{new:any} = BOX.missing|{new:bool} = isinstance(BOX, Base)|"
    "{new:str} = type(BOX).__name__|del BOX.tag|{new:int} = BOX.scale|BOX.scale = {int} % 2|"
    "{new:object} = copy.copy(BOX)|BOX.items = [{any}]|{new:bool} = BOX.items == []|"
    "{new:int} = (lambda m: m(3))(BOX.apply)|{new:object} = BOX.apply|BOX2.n, BOX.n = BOX.n, 1|"
    "Base.names.append({int})|{new:int} = super(Box, BOX).apply({int})|"
    "BOX.t = BOX.t if BOX.t is not None else {full}|BOX.items += [{int}]"
).split("|")


@statement("objects", 5)
def box(g: Gen) -> Block:
    needs_box(g)
    text = g.fill(g.rng.choice(BOX_USES), 1)
    return [text] if text else []


PAIR_USES = (
    "{new:pair} = Pair({full}, {int})|{new:pair} = {var:pair} + {full}|{new:pair} = {full} + "
    "{var:pair}|{new:pair} = {var:pair} * {int}|{own:pair} += {int}|{new:full} = {var:pair}.left|"
    "{new:int} = {var:pair}.right|{var:pair}.right = {int}|{name:a}, {new:any} = {var:pair}|"
    "{new:bool} = {var:pair} < {var:pair}|{new:str} = repr({var:pair})|{new:pair} = -{var:pair}|"
    "{new:list} = sorted([{var:pair}, {var:pair}])|{new:pair} = OUTER_PAIR|"
    "OUTER_PAIR.right = {int}|"
    "{new:full} = OUTER_PAIR.left + {full}|{new:int} = OUTER_PAIR.right|{new:list} = [*{var:pair}]"
).split("|")


@statement("objects", 2)
def pair(g: Gen) -> Block:
    if g.once("PAIR"):
        g.top += PAIR
        g.setup.append("OUTER_PAIR = Pair(1.5, 1)")
        g.resets.append("OUTER_PAIR.right = 1")
        g.mutations += [
            "OUTER_PAIR.left = 2.5",
            "OUTER_PAIR.right = 0",
            "Pair.__add__ = lambda self, o: self",
            "Pair.__iter__ = lambda self: iter((1, 2))",
            "Pair.__repr__ = lambda self: 'P'",
            "Pair.__lt__ = lambda self, o: True",
            "del OUTER_PAIR.right",
        ]
    text = g.fill(g.rng.choice(PAIR_USES), 1)
    return [text] if text else []


@statement("objects", 0.6)
def mode(g: Gen) -> Block:
    if g.once("MODE"):
        g.top += MODE
        g.setup.append("MODE = Mode.FAST")
        g.mutations += ["globals()['MODE'] = Mode.SLOW"]
    text = g.pick(
        "{new:bool} = MODE is Mode.FAST",
        "{new:int} = MODE.value",
        "{new:str} = MODE.name",
        "{new:object} = Mode(2)",
        "{new:list} = [m.name for m in Mode]",
        "{new:object} = Mode['SLOW']",
    )
    return [g.fill(text, 1) or "pass"]


@statement("objects", 0.8)
def listlike(g: Gen) -> Block:
    if g.once("STACK"):
        g.top += LISTLIKE
        g.setup += ["STACK = Stack([1])", "NAMES = Defaults(a=1)"]
        g.resets.append("STACK[:] = [1]")
        g.mutations += [
            "STACK.push(4)",
            "NAMES['q'] = 2",
            "Stack.push = lambda self, v: self",
            "Stack.__getitem__ = lambda self, i: 3",
            "Stack.__len__ = lambda self: 5",
        ]
    text = g.pick(
        "STACK.push({any})",
        "{new:any} = STACK[0]",
        "{new:int} = len(STACK)",
        "{new:object} = Stack([{any}]).push({full})",
        "{new:any} = NAMES['q']",
        "NAMES['r'] = {any}",
        "{new:object} = Defaults(a={full})",
        "{new:list} = list(STACK)",
        "{new:any} = Defaults(a=1)[{str}]",
    )
    return [g.fill(text, 1) or "pass"]


@statement("objects", 0.8)
def descriptor(g: Gen) -> Block:
    if g.once("GUARDED"):
        g.top += DESCRIPTOR
        g.setup += ["GUARDED = Guarded()"]
        g.resets.append("GUARDED.level = 1")
        g.mutations += ["GUARDED.level = 2", "GUARDED.__dict__['_level'] = 0"]
    text = g.pick(
        "{new:int} = GUARDED.level",
        "GUARDED.level = {int} % 2",
        "{new:int} = GUARDED.magic",
        "GUARDED.other = {any}",
        "{new:full} = {full} * GUARDED.level",
        "{new:object} = Guarded()",
    )
    return [g.fill(text, 1) or "pass"]


@statement("objects", 0.6)
def local_class(g: Gen) -> Block:
    name, obj = g.fresh("Local"), g.fresh("o")
    value = g.expr("full", 0)
    body: Block = [
        f"k = {g.expr('int', 0)}",
        ("def get(self, v):", [f"return v + self.k + {value}"]),
    ]
    block: Block = [(f"class {name}:", body), f"{obj} = {name}()"]
    block.append(g.let("full", f"{obj}.get({g.expr('full', 0)})"))
    return block
