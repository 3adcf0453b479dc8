"""Program text under construction: scopes, names, rules, rendering.

A program is grown from rules. An expression rule gives text for a value of a kind; a statement rule
gives a block. Every statement rule belongs to a theme, and each program has only a few themes
("swarm testing"): programs that use everything at once would all fail, or all be left eager, for
the same few reasons.

Kinds of values:
  full   tensor of shape (R, COLS), any dtype; R is the number of rows of the call's first argument
  small  tensor that broadcasts against full ones: (1, COLS), (R, 1), (COLS,) or ()
  mask   boolean tensor of shape (R, COLS)
  int, float, bool, str   Python values; ints are small
  ints, tensors           lists of ints and of full tensors
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

# A line, or a header with its indented block.
Block = list["str | tuple[str, Block]"]
Expression = Callable[["Gen", int], str]
Statement = Callable[["Gen"], Block]

EXPRESSIONS: dict[str, list[tuple[float, Expression]]] = {}
STATEMENTS: dict[str, list[tuple[float, Statement]]] = {}


def rule(kind: str, weight: float = 1.0) -> Callable[[Expression], Expression]:
    """Register an expression rule for values of `kind`."""

    def register(fn: Expression) -> Expression:
        EXPRESSIONS.setdefault(kind, []).append((weight, fn))
        return fn

    return register


def texts(kind: str, *templates: str, weight: float = 1.0) -> None:
    """Expression rules from templates: ``{full}`` stands for an expression of that kind."""
    for template in templates:
        EXPRESSIONS.setdefault(kind, []).append((weight, _from_template(template)))


def _from_template(template: str) -> Expression:
    return lambda g, depth: g.fill(template, depth - 1)


def statement(theme: str, weight: float = 1.0) -> Callable[[Statement], Statement]:
    """Register a statement rule under a theme."""

    def register(fn: Statement) -> Statement:
        STATEMENTS.setdefault(theme, []).append((weight, fn))
        return fn

    return register


def lines(theme: str, *templates: str, weight: float = 1.0) -> None:
    """Statement rules from templates of one or more lines.

    ``{int}`` stands for an expression, ``{new:int}`` for the name of a new variable of that kind,
    ``{var:full}`` for a variable that exists, ``{own:full}`` for one that the function may assign
    to (the rule does not apply where there is none).
    """
    for template in templates:
        STATEMENTS.setdefault(theme, []).append((weight, _block_from_template(template)))


def _block_from_template(template: str) -> Statement:
    def make(g: "Gen") -> Block:
        text = g.fill(template, g.depth)
        return [] if text is None else list(text.split("\n"))

    return make


@dataclass
class Helper:
    """A function that the program defines at its top: what it returns and how to call it."""

    kind: str
    call: str  # a template


class Gen:
    """One program under construction."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cols = self.rng.choice([3, 3, 4])
        self.depth = 2
        self.scopes: list[dict[str, str]] = [{}]
        self.themes: list[str] = ["tensor"]
        self.top: Block = []  # definitions before the target
        self.setup: Block = []  # after the definitions: outside state
        self.resets: list[str] = []  # bring outside state back to what it was at first
        self.mutations: list[str] = []  # change outside state between calls
        self.globals: set[str] = set()  # names that the target assigns as globals
        self.helpers: list[Helper] = []
        self.init_lines: dict[str, None] = {}  # of the target, where it is a module; in order
        self.layers: list[tuple[str, str]] = []  # name and constructor of its submodules
        self.done: set[str] = set()
        self.count = 0
        self.loops = 0
        self.frame = 0  # the first scope of the function that is being written
        self.budget = 0

    # Names and scopes.
    def fresh(self, prefix: str = "v") -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def declare(self, kind: str, name: str | None = None) -> str:
        name = name or self.fresh({"full": "t", "small": "u", "mask": "m"}.get(kind, kind[0]))
        self.scopes[-1][name] = kind
        return name

    def let(self, kind: str, value: str) -> str:
        """The line that gives `value` to a new variable."""
        return f"{self.declare(kind)} = {value}"

    def variables(self, kind: str) -> list[str]:
        return [name for scope in self.scopes for name, k in scope.items() if k == kind]

    def own(self, kind: str) -> list[str]:
        """Variables of the function that is being written: it may assign to them."""
        return [n for scope in self.scopes[self.frame :] for n, k in scope.items() if k == kind]

    def once(self, what: str) -> bool:
        """True the first time it is asked for `what`."""
        if what in self.done:
            return False
        self.done.add(what)
        return True

    # Choices.
    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pick(self, *options: str) -> str:
        return self.rng.choice(options)

    # Expressions.
    def expr(self, kind: str, depth: int | None = None) -> str:
        depth = self.depth if depth is None else depth
        known = self.variables(kind)
        if depth <= 0 or (known and self.chance(0.35)):
            return self.rng.choice(known) if known else self.leaf(kind)
        if kind == "any":
            kind = self.pick("full", "full", "small", "int", "float", "bool", "str", "ints")
        rules = EXPRESSIONS[kind]
        _, chosen = self.rng.choices(rules, [w for w, _ in rules])[0]
        return chosen(self, depth)

    def leaf(self, kind: str) -> str:
        rng = self.rng
        match kind:
            case "int":
                return str(rng.choice([0, 1, 1, 2, 2, 3, -1]))
            case "float":
                return rng.choice(["0.5", "2.0", "-1.5", "0.25", "1e-3", "3.0"])
            case "bool":
                return rng.choice(["True", "False"])
            case "str":
                return rng.choice(["'a'", "'bc'", "'key'", "''"])
            case "ints":
                return rng.choice(["[1, 2]", "[3, 1, 2]", "[0]", "[]"])
            case "tensors":
                return f"[{self.expr('full', 0)}]"
            case "any":
                return self.expr(rng.choice(["int", "full", "str"]), 0)
            case "mask":
                return f"({self.expr('full', 0)} > 0)"
            case "small":
                return f"{self.expr('full', 0)}.sum()"
        return f"torch.ones(2, {self.cols})"

    def fill(self, template: str, depth: int) -> str | None:
        """The template with its holes filled; None where a variable that it needs is missing."""
        text, rest = "", template
        new: list[tuple[str, str]] = []
        while "{" in rest:
            before, _, rest = rest.partition("{")
            hole, _, rest = rest.partition("}")
            text += before
            what, _, kind = hole.partition(":")
            if what == "new":
                name = self.fresh({"full": "t", "small": "u", "mask": "m"}.get(kind, kind[0]))
                new.append((name, kind))
                text += name
            elif what == "same":  # the name that {new:...} gave last
                text += new[-1][0]
            elif what in ("var", "own"):
                known = self.variables(kind) if what == "var" else self.own(kind)
                if not known:
                    return None
                text += self.rng.choice(known)
            elif what == "cols":
                text += str(self.cols)
            elif what == "name":
                text += self.fresh(kind or "n")
            else:
                text += self.expr(what, depth)
        for name, kind in new:
            self.declare(kind, name)
        return text + rest

    # Statements.
    def statement(self) -> Block:
        """One statement of the program's themes."""
        for _ in range(8):
            theme = self.rng.choice(self.themes)
            rules = STATEMENTS[theme]
            _, chosen = self.rng.choices(rules, [w for w, _ in rules])[0]
            block = chosen(self)
            if block:
                return block
        return ["pass"]

    def body(self, size: int) -> Block:
        """A block with a scope of its own."""
        self.scopes.append({})
        block: Block = []
        for _ in range(size):
            if self.budget <= 0:
                break
            self.budget -= 1
            block += self.statement()
        self.scopes.pop()
        return block or ["pass"]


def render(block: Block, indent: int = 0) -> str:
    """The block as program text."""
    text = ""
    for item in block:
        if isinstance(item, str):
            text += "    " * indent + item + "\n"
        else:
            text += "    " * indent + item[0] + "\n" + render(item[1] or ["pass"], indent + 1)
    return text
