"""Objects from outside that a call copies, and that change from one call to the next."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

import glowplug


class Box:
    def __init__(self) -> None:
        self.n: Any = 1
        self.items: list[Any] = []


class Slotted:
    __slots__ = ("items", "n", "other")

    def __init__(self) -> None:
        self.n: Any = 1
        self.items: list[Any] = []


class Named(dict[str, Any]):
    def __init__(self) -> None:
        super().__init__(items=[])
        self.n: Any = 1


class Row(list[Any]):
    def __init__(self) -> None:
        super().__init__([[]])
        self.n: Any = 1


class Stateful(Box):
    def __getstate__(self) -> object:
        return {"n": getattr(self, "n", None), "items": self.items}


KINDS = [Box, Slotted, Named, Row, Stateful]


def items_of(box: Any) -> Any:
    return box["items"] if isinstance(box, Named) else box[0] if isinstance(box, Row) else box.items


def set_items(box: Any, items: list[Any]) -> None:
    if isinstance(box, Named):
        box["items"] = items
    elif isinstance(box, Row):
        box[0] = items
    else:
        box.items = items


def copied(x: torch.Tensor, box: Any) -> Any:
    return copy.copy(box), x + 1


def deep(x: torch.Tensor, box: Any) -> Any:
    return copy.deepcopy(box), x + 1


def asked(x: torch.Tensor, box: Any) -> Any:
    _, given, state, *_ = box.__reduce_ex__(4)
    return given, state, x + 1


def pickled(x: torch.Tensor, box: Any) -> Any:
    return pickle.loads(pickle.dumps(box)), x + 1


def copied_when_made_here(x: torch.Tensor, box: Any) -> Any:
    made = type(box)()
    set_items(made, [items_of(box)])
    return made, copy.copy(made), x + 1


PROGRAMS = [copied, deep, asked, pickled, copied_when_made_here]


def seen(box: Any, result: Any) -> Any:
    """What there is in the result, and what of it is the box's own."""
    if isinstance(result, torch.Tensor):
        return result.tolist()
    if isinstance(result, (Box, Slotted, Named, Row)):
        inside = items_of(result)
        own = inside is items_of(box) or (bool(inside) and inside[0] is items_of(box))
        state = [getattr(result, name, None) for name in ("n", "other", "late")]
        return type(result).__name__, state, repr(inside), own
    if isinstance(result, (tuple, list)):
        return [seen(box, part) for part in result]
    if isinstance(result, dict):
        return {name: seen(box, part) for name, part in result.items()}
    return repr(result)


def run(program: Callable[..., Any], kind: type) -> list[Any]:
    box, found = kind(), []
    for step in range(8):
        if step == 3:
            set_items(box, [1])
        elif step == 4:
            box.n = "text"
        elif step == 5:
            setattr(box, "other" if kind is Slotted else "late", [step])
        elif step == 6:
            del box.n
        result = program(torch.ones(2), box)
        found.append(seen(box, result))
        if step == 1:
            set_items(box, [])
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_eager(program: Callable[..., Any], kind: type) -> None:
    compiled = glowplug.compile(program, options={"audit": True})
    assert run(compiled, kind) == run(program, kind)
    assert "unknown_source" not in glowplug.counters()["refusals"]


def test_a_class_gets_another_way_to_be_copied() -> None:
    def change(program: Callable[..., Any]) -> list[Any]:
        class Own(Box):
            pass

        box, found = Own(), []
        for step in range(5):
            if step == 3:
                Own.__getstate__ = lambda self: {"n": 7, "items": []}  # type: ignore
            found.append(seen(box, program(torch.ones(2), box)))
        return found

    assert change(glowplug.compile(copied)) == change(copied)
