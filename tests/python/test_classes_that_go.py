"""Classes come and go, and a class may come to lie where another one was."""

import enum
import gc
import subprocess
import sys
from typing import Any

import torch

import glowplug


def pinned_class() -> Any:
    class Colour(enum.Enum):
        RED = 1

    return Colour


def plain_class() -> type:
    class Record:
        def __init__(self) -> None:
            self.items: list[int] = []

    return Record


def use_member(x: torch.Tensor, kind: Any) -> tuple[torch.Tensor, Any]:
    return x + 1, kind


def use_instance(x: torch.Tensor, kind: type) -> Any:
    record = kind()
    record.items.append(len(x))
    return record


def take_the_place_of_an_enumeration() -> int:
    """Makes enumerations that recordings have seen, frees them, makes plain classes and uses those
    that lie where an enumeration was.

    Returns how many there were.
    """
    x = torch.ones(2)
    colours = [pinned_class() for _ in range(64)]
    for colour in colours:
        glowplug.compile(use_member)(x, colour.RED)
    places = {id(colour) for colour in colours}
    glowplug.reset()
    del colour, colours
    gc.collect()
    made = [kind for kind in [plain_class() for _ in range(512)] if id(kind) in places]
    for kind in made:
        compiled = glowplug.compile(use_instance)
        results = [compiled(x, kind) for _ in range(3)]
        assert [r.items for r in results] == [[2]] * 3
        assert len({id(r) for r in results}) == 3
    return len(made)


def test_an_instance_is_made_anew_where_an_enumeration_was() -> None:
    # In a process of its own: whether memory is used again depends on what was allocated before.
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0


if __name__ == "__main__":
    print(take_the_place_of_an_enumeration())
