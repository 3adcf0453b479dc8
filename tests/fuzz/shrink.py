"""Makes a failing program smaller, by edits of its syntax tree after which it still fails."""

import ast
import copy
from collections.abc import Callable, Iterator

# Whether a program still fails in the way that is being looked into.
Fails = Callable[[str], bool]

BODIES = ("body", "orelse", "finalbody", "handlers", "cases")


def shrink(text: str, fails: Fails, attempts: int = 1500) -> str:
    """The smallest program that the edits lead to; each step keeps the failure."""
    tree = ast.parse(text)
    budget = [attempts]
    changed = True
    while changed and budget[0] > 0:
        changed = False
        for edits in (chunks, hoists, deletions, replacements):
            tree, smaller = reduce_with(tree, edits, fails, budget)
            changed = changed or smaller
    return ast.unparse(tree)


Edits = Callable[[ast.Module], Iterator[ast.Module]]


def reduce_with(
    tree: ast.Module, edits: Edits, fails: Fails, budget: list[int]
) -> tuple[ast.Module, bool]:
    """Takes edits of one sort as long as any keeps the failure."""
    smaller = False
    again = True
    while again:
        again = False
        for candidate in edits(tree):
            if budget[0] <= 0:
                return tree, smaller
            text = text_of(candidate)
            if text is None or len(text) >= len(ast.unparse(tree)):
                continue
            budget[0] -= 1
            if fails(text):
                tree, smaller, again = ast.parse(text), True, True
                break
    return tree, smaller


def text_of(tree: ast.Module) -> str | None:
    """The program's text; None where the edit left something that is no program."""
    try:
        text = ast.unparse(ast.fix_missing_locations(tree))
        compile(text, "<program>", "exec")
    except (SyntaxError, ValueError, AttributeError):
        return None
    return text


def blocks(tree: ast.Module) -> list[tuple[ast.AST, str]]:
    """Every list of statements: its owner and the owner's field."""
    return [
        (node, name)
        for node in ast.walk(tree)
        for name in BODIES
        if isinstance(getattr(node, name, None), list) and getattr(node, name)
    ]


def edited(tree: ast.Module, index: int, edit: Callable[[list[ast.AST]], None]) -> ast.Module:
    """A copy of the tree in which `edit` has changed the block with number `index`."""
    changed = copy.deepcopy(tree)
    owner, name = blocks(changed)[index]
    block = getattr(owner, name)
    edit(block)
    if not block and name == "body":
        block.append(ast.Pass())
    return changed


def without(start: int, stop: int) -> Callable[[list[ast.AST]], None]:
    def edit(block: list[ast.AST]) -> None:
        del block[start:stop]

    return edit


def chunks(tree: ast.Module) -> Iterator[ast.Module]:
    """Without half, a quarter, ... of the statements of a block."""
    for index, (owner, name) in enumerate(blocks(tree)):
        size = len(getattr(owner, name)) // 2
        while size > 1:
            for start in range(0, len(getattr(owner, name)), size):
                yield edited(tree, index, without(start, start + size))
            size //= 2


def deletions(tree: ast.Module) -> Iterator[ast.Module]:
    """Without one statement."""
    for index, (owner, name) in enumerate(blocks(tree)):
        for i in reversed(range(len(getattr(owner, name)))):
            yield edited(tree, index, without(i, i + 1))


def hoists(tree: ast.Module) -> Iterator[ast.Module]:
    """A compound statement replaced by what it contains."""
    for index, (owner, name) in enumerate(blocks(tree)):
        for i, item in enumerate(getattr(owner, name)):
            if isinstance(item, (ast.FunctionDef, ast.ClassDef)):
                continue
            for inner in BODIES[:3]:
                if getattr(item, inner, None):
                    yield edited(tree, index, lifted(i, inner))


def lifted(i: int, inner: str) -> Callable[[list[ast.AST]], None]:
    def edit(block: list[ast.AST]) -> None:
        block[i : i + 1] = getattr(block[i], inner)

    return edit


def replacements(tree: ast.Module) -> Iterator[ast.Module]:
    """An expression replaced by one of its parts, or by something plain; arguments left out."""
    count = sum(1 for _ in ast.walk(tree))
    for number in range(count):
        node = nth(tree, number)
        for name, value in ast.iter_fields(node):
            values = value if isinstance(value, list) else [value]
            for i, child in enumerate(values):
                if isinstance(child, ast.expr):
                    yield from substituted(tree, number, name, i, isinstance(value, list), child)


def substituted(
    tree: ast.Module, number: int, name: str, i: int, in_list: bool, child: ast.expr
) -> Iterator[ast.Module]:
    parts = [part for part in ast.iter_child_nodes(child) if isinstance(part, ast.expr)]
    if isinstance(child, ast.Call):
        parts += [keyword.value for keyword in child.keywords]
    plain = [] if isinstance(child, (ast.Constant, ast.Name)) else [ast.Constant(1)]
    for part in [*parts, *plain]:
        changed = copy.deepcopy(tree)
        owner = nth(changed, number)
        if in_list:
            getattr(owner, name)[i] = copy.deepcopy(part)
        else:
            setattr(owner, name, copy.deepcopy(part))
        yield changed
    if in_list and name in ("args", "elts", "keywords", "decorator_list"):
        changed = copy.deepcopy(tree)
        del getattr(nth(changed, number), name)[i]
        yield changed


def nth(tree: ast.AST, number: int) -> ast.AST:
    for i, node in enumerate(ast.walk(tree)):
        if i == number:
            return node
    raise IndexError(number)
