"""Where two observations differ first."""

import re
from typing import Any, NamedTuple


class Difference(NamedTuple):
    """A place at which eager and compiled differ, and what each has there."""

    call: int
    path: str
    eager: str
    compiled: str

    @property
    def kind(self) -> str:
        """What sort of difference it is; shrinking keeps to the same sort."""
        return re.sub(r"\d+", "", self.path.partition("/")[0])

    def __str__(self) -> str:
        return (
            f"call {self.call}, {self.path}:\n  eager:    {self.eager}\n  compiled: {self.compiled}"
        )


def first_difference(eager: list[Any], compiled: list[Any]) -> Difference | None:
    """The first call after which an observation differs; None when all are equal."""
    for i, (left, right) in enumerate(zip(eager, compiled)):
        for key in left:
            found = differing(left[key], right[key], key)
            if found is not None:
                return Difference(i, *found)
    if len(eager) != len(compiled):
        count = (str(len(eager)), str(len(compiled)))
        return Difference(min(len(eager), len(compiled)), "number of calls", *count)
    return None


def differing(left: Any, right: Any, path: str) -> tuple[str, str, str] | None:
    """Path and both values of the first place at which two plain values differ."""
    if left == right and type(left) is type(right):
        return None
    if (
        isinstance(left, (list, tuple))
        and type(left) is type(right)
        and len(left) == len(right)
        and not (len(left) == 2 and left[0] == right[0] == "same as")
    ):
        for i, (a, b) in enumerate(zip(left, right)):
            found = differing(a, b, f"{path}/{step(left, i)}")
            if found is not None:
                return found
    return path, short(left), short(right)


def step(parent: Any, index: int) -> str:
    """What an element is called in a path: its name where it is a pair with a name."""
    item = parent[index]
    if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str):
        return item[0]
    return str(index)


def short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 400 else text[:400] + "..."
