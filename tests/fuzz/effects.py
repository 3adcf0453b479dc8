"""Reads and writes of what is outside the call: globals, attributes, containers, output."""

from collections.abc import Callable

from .source import Block, Gen, lines, statement

# Each kind of outside state: how it is made, how it is brought back, how it changes between calls.
# Values that the program reads stay within a few, or each call would need a recording of its own.
STATE: dict[str, tuple[list[str], str, list[str]]] = {
    "K": (["K = 1"], "K = 1", ["globals()['K'] = 2", "globals()['K'] = 1.0"]),
    "ITEMS": (["ITEMS = [1, 2]"], "ITEMS[:] = [1, 2]", ["ITEMS.append(3)", "ITEMS[0] = 5"]),
    "TABLE": (
        ["TABLE = {'a': 1, 'n': 2}"],
        "TABLE.clear(); TABLE.update(a=1, n=2)",
        ["TABLE['a'] = 4", "TABLE['new'] = None", "TABLE.pop('n', None)"],
    ),
    "SEEN": (["SEEN = {1}"], "SEEN.clear(); SEEN.add(1)", ["SEEN.add(2)", "SEEN.discard(1)"]),
    "QUEUE": (
        ["QUEUE = collections.deque([1, 2], maxlen=4)"],
        "QUEUE.clear(); QUEUE.extend([1, 2])",
        ["QUEUE.append(7)", "QUEUE.rotate(1)"],
    ),
    "ORDER": (
        ["ORDER = collections.OrderedDict(a=1, b=2)"],
        "ORDER.clear(); ORDER.update(a=1, b=2)",
        ["ORDER.move_to_end('a')", "ORDER['c'] = 3"],
    ),
    "GROUPS": (
        ["GROUPS = collections.defaultdict(list)"],
        "GROUPS.clear()",
        ["GROUPS[1].append(0)"],
    ),
    "BUF": (
        ["BUF = T(90, 1, {cols})"],
        "BUF.data = T(90, 1, {cols})",
        ["BUF.data.add_(1)", "globals()['BUF'] = T(91, 1, {cols})", "BUF.data = BUF.data.double()"],
    ),
    "WEIGHT": (
        ["WEIGHT = T(92, {cols}, {cols}, grad=True)"],
        "WEIGHT.grad = None",
        [
            "WEIGHT.requires_grad_(False)",
            "WEIGHT.requires_grad_(True)",
            "WEIGHT.data.mul_(2)",
            "globals()['WEIGHT'] = T(93, {cols}, {cols})",
        ],
    ),
    "ROWS": (["ROWS = [T(94, 1, {cols}), T(95, {cols})]"], "del ROWS[2:]", ["ROWS.reverse()"]),
}


def state(g: Gen, name: str) -> str:
    """The state's name; it becomes part of the program when it is first asked for."""
    if g.once(name):
        setup, reset, mutations = STATE[name]
        cols = str(g.cols)
        g.setup += [line.replace("{cols}", cols) for line in setup]
        g.resets.append(reset.replace("{cols}", cols))
        g.mutations += [line.replace("{cols}", cols) for line in mutations]
        if name == "K":
            g.globals.add("K")
    return name


def on(theme: str, name: str, *templates: str, weight: float = 1.0) -> None:
    """Statement rules that use the outside state `name`."""

    def rule_for(template: str) -> Callable[[Gen], Block]:
        def make(g: Gen) -> Block:
            state(g, name)
            text = g.fill(template, 1)
            return list(text.split("\n")) if text else []

        return make

    for template in templates:
        statement(theme, weight)(rule_for(template))


on(
    "globals",
    "K",
    "{new:int} = K",
    "{new:full} = {full} * K",
    "K = {int} % 2",
    "K = (K + 1) % 2",
    "K += 0",
    "{new:int} = globals()['K']",
    weight=1.5,
)
on(
    "outer lists",
    "ITEMS",
    "ITEMS.append({int})",
    "ITEMS.append({full})",
    "ITEMS[0] = {int} % 2",
    "{new:int} = ITEMS[0]",
    "{new:int} = len(ITEMS)",
    "ITEMS.extend({ints})",
    "ITEMS.insert(0, {int})",
    "{new:any} = ITEMS.pop()",
    "ITEMS.reverse()",
    "del ITEMS[1:]",
    "ITEMS[:1] = [{any}]",
    "{new:bool} = {int} in ITEMS",
    "{new:list} = ITEMS[::-1]",
    "{new:list} = ITEMS",
    "{new:full} = {full} * sum(i for i in ITEMS if isinstance(i, int))",
    "globals()['ITEMS'] += [{int}]",
)
on(
    "outer dicts",
    "TABLE",
    "TABLE['a'] = {any}",
    "TABLE[{str}] = {int} % 2",
    "{new:any} = TABLE['a']",
    "{new:any} = TABLE.get({str}, {int})",
    "TABLE.update(b={any})",
    "TABLE.setdefault('l', []).append({any})",
    "{new:any} = TABLE.pop('a', None)",
    "{new:list} = list(TABLE)",
    "{new:list} = [k for k, v in TABLE.items() if v]",
    "TABLE['n'] = (TABLE['n'] + 1) % 2",
    "{new:int} = len(TABLE)",
    "{new:bool} = {str} in TABLE",
    "del TABLE['n']",
    "{new:dict} = dict(TABLE)",
    "{new:dict} = TABLE",
    "globals()['TABLE'] |= dict(c={int})",
)
on(
    "outer sets",
    "SEEN",
    "SEEN.add({int})",
    "{new:bool} = {int} in SEEN",
    "SEEN.discard({int})",
    "{new:int} = len(SEEN)",
    "SEEN.update({ints})",
    "{new:ints} = sorted(SEEN)",
    "SEEN.remove({int})",
)
on(
    "outer deques",
    "QUEUE",
    "QUEUE.append({any})",
    "{new:any} = QUEUE.popleft()",
    "QUEUE.appendleft({int})",
    "{new:int} = len(QUEUE)",
    "QUEUE.rotate({int})",
    "{new:any} = QUEUE[0]",
    "{new:list} = list(QUEUE)",
    "QUEUE.extend({ints})",
)
on(
    "outer dicts",
    "ORDER",
    "ORDER.move_to_end('a', last={bool})",
    "{new:any} = next(iter(ORDER))",
    "ORDER['a'] = {any}",
    "{new:list} = list(ORDER.values())",
    "{new:tuple} = ORDER.popitem(last={bool})",
    weight=0.5,
)
on(
    "outer dicts",
    "GROUPS",
    "GROUPS[{int}].append({any})",
    "{new:int} = len(GROUPS[{int}])",
    "GROUPS[{int}] = [{any}]",
    "{new:bool} = {int} in GROUPS",
    weight=0.5,
)
on(
    "outer tensors",
    "BUF",
    "{new:full} = {full} + BUF",
    "BUF.add_({float})",
    "BUF.copy_({full}[:1].detach())",
    "BUF[0, 0] = {float}",
    "BUF.mul_({full}[:1].detach())",
    "{new:small} = BUF",
    "{new:small} = BUF[0]",
    "BUF[:, 1:].zero_()",
    "globals()['BUF'] = {full}[:1].detach()",
    "{new:bool} = bool(BUF.sum() > 0)",
    "BUF.data = {full}[:1].detach()",
    "BUF.tag = {int}",
    "{new:int} = getattr(BUF, 'tag', 0)",
    weight=1.2,
)
on(
    "outer tensors",
    "WEIGHT",
    "{new:full} = {full}.float() @ WEIGHT",
    "{new:full} = F.linear({full}.float(), WEIGHT)",
    "with torch.no_grad():\n    WEIGHT.mul_(0.5)",
    "{new:bool} = WEIGHT.requires_grad",
    "{new:bool} = WEIGHT.grad is None",
    "WEIGHT.grad = None",
    weight=1.2,
)
on(
    "outer lists",
    "ROWS",
    "{new:full} = {full} + ROWS[0]",
    "ROWS.append({full}[0].detach())",
    "{new:small} = ROWS[-1]",
    "ROWS[0] = {full}[:1].detach()",
    "for r in ROWS:\n    r.add_(1)",
    "{new:full} = sum(ROWS, {full})",
    weight=0.6,
)

lines(
    "output",
    "print({any})",
    "print('n', {int}, {str}, sep='-')",
    "print({full}.shape, end=';')",
    "print({full})",
    "LOG.warning('w %s', {int})",
    "LOG.info('tensor %s', {full})",
    "warnings.warn({str})",
    "warnings.warn('old', DeprecationWarning)",
    "print({str}, file=sys.stderr)",
    "sys.stdout.write({str})",
)


@statement("cells", 1)
def counter(g: Gen) -> Block:
    """State in the cells of a closure that outlives the call."""
    if g.once("counter"):
        inner: Block = ["nonlocal n", "n = (n + step) % 2", "return n"]
        made: Block = [
            "n = 0",
            ("def bump(step):", inner),
            ("def look():", ["return n"]),
            "return bump, look",
        ]
        g.top.append(("def make_counter():", made))
        g.setup.append("bump, look = make_counter()")
        g.mutations.append("bump(1)")
    call = g.fill(g.pick("bump({int})", "bump(1)", "bump(0)", "look()", "look()"), 1)
    return [f"{g.declare('int')} = {call}"]


@statement("cells", 1)
def function_attribute(g: Gen) -> Block:
    if g.once("marked"):
        g.top.append(("def marked(v, seen=[]):", ["seen.append(1)", "return v"]))
        g.setup += ["marked.calls = 0", "marked.last = None"]
        g.resets.append("marked.calls = 0; marked.last = None; marked.__defaults__[0].clear()")
        g.mutations.append("marked.calls = 1")
    text = g.pick(
        "marked.calls = (marked.calls + 1) % 2",
        "marked.last = {full}",
        "marked({any})",
        "{new:int} = marked.calls",
        "{new:bool} = marked.last is None",
    )
    return [g.fill(text, 1) or "pass"]


@statement("inputs", 3)
def input_write(g: Gen) -> Block:
    text = g.rng.choice(
        (
            "x.add_({float})|x[0] = {float}|x.mul_({small})|x.data.add_(1)|x.zero_()|x.t().add_(1)|"
            "x.copy_({full})|x[:, 0] *= 2|x[{mask}] = 0|x.view(-1)[0] = 7|x.detach().mul_(2)|"
            "x.mark = {int}|{new:int} = getattr(x, 'mark', -1)|x.requires_grad_({bool})|"
            "x.clamp_(-1, 1)|{new:bool} = x is {var:full}|x.unsqueeze_(0).squeeze_(0)|x.neg_()|"
            "{var:full}.add_(x)|"
            "x.grad = None|{new:bool} = x.grad is None|{var:full}[0] = x[0]|x.resize_(x.shape)|"
            "x.set_({full}.detach())|x.sub_({var:full})|x.data = {full}.detach()|x.t_().t_()"
        ).split("|")
    )
    return [g.fill(text, 1) or "pass"]
