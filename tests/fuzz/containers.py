"""Containers made and changed inside the call."""

from .source import Block, Gen, lines, statement

lines(
    "containers",
    "{new:ints} = {ints}",
    "{new:tensors} = {tensors}",
    "{new:list} = [{any}, {any}, {full}]",
    "{new:dict} = dict(a={any}, b={full})",
    "{new:dict} = dict(zip(['p', 'q'], [{any}, {full}]))",
    "{new:list} = collections.deque([{any}, {full}], maxlen=3)",
    "{new:dict} = collections.OrderedDict(b={any}, a={full})",
    "{new:set} = set({ints})",
    "{new:tuple} = ({any}, ({full}, {int}))",
    "{new:list} = list(zip({ints}, {tensors}))",
    "{new:tuple} = Point({any}, {full})",
    "{new:tuple} = {full}.max(1)",
    "{new:tuple} = torch.split({full}, 1, 1)",
    "{new:tuple} = {full}.sort(1)",
    "{new:tuple} = {full}.shape",
    "{new:int} = {ints}[{int} % 2] if len({ints}) > 9 else {int}",
)
lines(
    "containers",
    "{var:list}.append({any})",
    "{var:ints}.append({int})",
    "{var:ints}.extend({ints})",
    "{var:ints}.insert(0, {int})",
    "{var:ints}.sort(reverse={bool})",
    "{var:ints}.reverse()",
    "{own:ints} += {ints}",
    "{own:ints} *= 2",
    "{var:ints}[0:1] = {ints}",
    "del {var:ints}[:1]",
    "{var:tensors}.append({full})",
    "{var:tensors}[0] = {full}",
    "{var:dict}['a'] = {any}",
    "{var:dict}[{str}] = {any}",
    "{var:dict}.update(c={any})",
    "{var:dict}.setdefault('d', []).append({any})",
    "{new:any} = {var:dict}.pop('a', {int})",
    "{new:list} = list({var:dict})",
    "{new:list} = [(k, type(v).__name__) for k, v in {var:dict}.items()]",
    "{new:dict} = dict((k, v) for k, v in {var:dict}.items() if k != 'a')",
    "{new:dict} = {var:dict} | dict(z={int})",
    "{new:dict} = dict({var:dict}, a={any})",
    "{new:list} = [*{var:dict}.values()]",
    "{new:bool} = {str} in {var:dict}",
    "{var:set}.add({int})",
    "{var:set}.discard({int})",
    "{own:set} |= set({ints})",
    "{new:ints} = sorted({var:set} & set({ints}))",
    "{new:int} = len({var:set})",
    "{new:list} = {var:list}",
    "{new:list} = copy.copy({var:list})",
    "{new:list} = [{var:list}, {var:list}]",
    "{new:list} = copy.deepcopy({var:ints})",
    "{new:any} = {var:list}[-1]",
    "{name:s}, *{new:list} = {ints} + [1]",
    "{name:s}, {new:any} = ({int}, {any})",
    "{new:list} = list(map(type, {var:list}))",
    "{new:tuple} = tuple({var:list})",
    "{new:list} = [*{var:tuple}]",
    "{new:bool} = {var:list} == {var:list}",
    weight=0.5,
)
lines(
    "comprehensions",
    "{new:tensors} = [t * {int} for t in {tensors}]",
    "{new:tensors} = [{full} for _ in range(2)]",
    "{new:dict} = dict((str(i), {full}) for i in {ints}[:2])",
    "{new:tensors} = list(map(torch.relu, {tensors}))",
    "{new:full} = sum((t for t in {tensors}), {full})",
    "{new:bool} = any(t.sum() > 0 for t in {tensors})",
    "{new:bool} = all(t.dim() == 2 for t in {tensors})",
    "{new:list} = sorted({tensors}, key=lambda t: t.shape[0])",
    "{new:tensors} = [t for i, t in enumerate({tensors}) if i != {int}]",
    "{new:list} = [[i * j for j in range(i)] for i in range(3)]",
    "{new:list} = [(i, t) for i, t in zip({ints}, {tensors})]",
    "{new:full} = functools.reduce(torch.add, {tensors}, {full})",
    "{new:list} = list(itertools.product({ints}[:2], {str}[:2]))",
    "{new:tensors} = list(filter(lambda t: t.dim() == 2, {tensors}))",
    "{new:ints} = [n := {int}, n + 1]",
    "{new:dict} = dict(enumerate({tensors}))",
    "{new:list} = [i for i in range(4) if i % 2 == {int} % 2]",
    "{new:int} = sum(1 for t in {tensors} if t.shape[0] > 1)",
    "{new:full} = max([{full}, {full}], key=lambda t: t.numel())",
    "{new:list} = list(zip(*[{ints}, {ints}]))",
    "{new:list} = [t.shape for t in {tensors}]",
)


@statement("containers", 0.6)
def grouped(g: Gen) -> Block:
    name = g.declare("dict", g.fresh("d"))
    key = g.pick("i % 2", "i > 1", "str(i)")
    return [
        f"{name} = collections.defaultdict({g.pick('list', 'list', 'int')})",
        (f"for i in {g.expr('ints', 1)}:", [f"{name}[{key}] {g.pick('+= [i]', '= [i]')}"]),
    ]


@statement("containers", 0.6)
def record(g: Gen) -> Block:
    if g.once("Record"):
        frozen = g.pick("", "(frozen=True)", "(order=True)", "(slots=True)")
        fields: Block = [
            "a: object",
            "b: int = 2",
            "c: list = dataclasses.field(default_factory=list)",
            ("def total(self):", ["return self.b + len(self.c)"]),
        ]
        g.top += [f"@dataclasses.dataclass{frozen}", ("class Record:", fields)]
    name = g.fresh("r")
    value = g.fill(
        g.pick("Record({full})", "Record({any}, b={int})", "Record({full}, c=[{any}])"), 1
    )
    g.declare("object", name)
    block: Block = [f"{name} = {value}"]
    if g.chance(0.3):
        block.append(g.fill(f"{name}.b = {{int}}", 1) or "pass")
    if g.chance(0.3):
        block.append(g.fill(f"{name}.c.append({{any}})", 1) or "pass")
    if g.chance(0.3):
        block.append(f"{g.declare('int')} = {name}.total()")
    if g.chance(0.2):
        block.append(f"{g.declare('object', g.fresh('r'))} = dataclasses.replace({name}, b=5)")
    return block
