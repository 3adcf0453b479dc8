"""Programs for each family of instructions, those that fail among them (test_evaluator.py)."""

import asyncio
import sys
from collections.abc import Iterator
from typing import Any


def program_names() -> Any:
    global made_global
    made_global = 3
    local = [made_global, len]
    del made_global

    class Body:
        inner: int = local[0]
        names = sorted(name for name in dir() if not name.startswith("__"))

    def closure() -> int:
        nonlocal local
        local = local + [4]
        return local

    from os import path as p

    return closure(), Body.names, Body.__annotations__, p.__name__.endswith("path")


def program_unbound_local() -> Any:
    if len("a") > 1:
        value = 1
    return value


def program_unbound_free() -> Any:
    def inner() -> Any:
        return late

    result = inner()
    late = 1
    return result, late


def program_unknown_name() -> Any:
    return undefined_name  # noqa: F821


def program_import_missing() -> Any:
    from os import no_such_thing  # noqa: F401


def program_operators() -> Any:
    a, b = 7, 3
    c = [a + b, a - b, a * b, a / b, a // b, a % b, a**b, a << b, a >> b, a & b, a | b, a ^ b]
    c += [-a, +a, ~a, not a, a is b, a is not b, a in c, a not in c, a < b, a <= b, a == b]
    a += b
    a *= b
    a **= 2
    return c, a, 0 < b < 5, b and "yes" or "no"


def program_bad_operator() -> Any:
    return 1 + "a"  # type: ignore[operator]


def program_containers() -> Any:
    first, *middle, last = range(5)
    (a, b), [c] = (1, 2), [3]
    things = [*middle, *"ab"], {*middle, 9}, {**{"a": 1}, "b": last}, (*middle, first)
    comprehensions = [x for x in range(3)], {x for x in range(3)}, {x: -x for x in range(3)}
    sliced = list(range(10))[1:8:2]
    sliced[0:1] = [a, b, c]
    del sliced[-1]
    return things, comprehensions, sliced, f"{a!r:>5}|{b:03}|{c!s}|{'x'!a}"


def program_unpack_number() -> Any:
    a, b = 3  # type: ignore[misc]
    return a, b


def program_calls() -> Any:
    def function(a: int, b: int = 2, *args: int, c: int = 3, **kwargs: int) -> Any:
        return a, b, args, c, kwargs

    class Base:
        def method(self, x: int) -> Any:
            return type(self).__name__, x

        @classmethod
        def make(cls) -> Any:
            return cls()

        @property
        def prop(self) -> int:
            return 5

    class Derived(Base):
        def method(self, x: int) -> Any:
            return super().method(x + 1)

    bound = Derived.make().method
    return (
        function(1),
        function(1, 2, 3, 4, c=5, d=6),
        function(*[1, 2], **{"c": 7}),
        function(*[1], *(2, 3), e=1, **{"f": 2}),
        bound(1),
        Base().prop,
        list(map(lambda x: x + 1, range(3))),
        sorted([3, 1, 2], key=lambda x: -x),
    )


def program_bad_call() -> Any:
    def function(a: int) -> int:
        return a

    return function(1, 2, *[3], **{"a": 4})  # type: ignore[misc]


def program_duplicate_keyword() -> Any:
    def function(**kwargs: int) -> Any:
        return kwargs

    return function(a=1, **{"a": 2})


def program_star_number() -> Any:
    return print(*3)  # type: ignore[misc]


def program_keywords_number() -> Any:
    return print(**3)  # type: ignore[arg-type]


def program_exceptions() -> Any:
    log = []

    def thrower(n: int) -> int:
        try:
            if n == 0:
                raise KeyError("zero")
            if n == 1:
                return n
            1 / (n - 2)
        except (KeyError, ValueError) as error:
            log.append(repr(error))
            raise ValueError(n) from error
        else:
            log.append("else")
        finally:
            log.append("finally")
        return n

    for n in range(4):
        try:
            log.append(thrower(n))
        except Exception as error:
            log.append((repr(error), repr(error.__cause__), repr(error.__context__)))
    return log, sys.exc_info()


def program_traceback_lines() -> Any:
    def deep(n: int) -> Any:
        if n:
            return deep(
                n - 1,
            )
        raise ValueError(
            "deep",
        )

    try:
        deep(3)
    finally:
        len("a")


def program_groups() -> Any:
    caught = []
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2), ExceptionGroup("h", [OSError(3)])])
    except* ValueError as group:
        caught.append(group.exceptions)
    except* OSError as group:
        caught.append(group.exceptions)
    return caught


def program_with() -> Any:
    log = []

    class Manager:
        def __init__(self, swallow: bool) -> None:
            self.swallow = swallow

        def __enter__(self) -> str:
            return "entered"

        def __exit__(self, kind: Any, value: Any, tb: Any) -> bool:
            log.append((kind, repr(value)))
            return self.swallow

    with Manager(True) as entered, Manager(False):
        log.append(entered)
        raise ValueError("inside")
    with 3:  # type: ignore[attr-defined]
        pass
    return log


def program_generators() -> Any:
    log = []

    def inner() -> Any:
        try:
            got = yield 1
            log.append(got)
            yield 2
        except KeyError:
            yield "caught"
        finally:
            log.append("closed")
        return "returned"

    def outer() -> Any:
        result = yield from inner()
        log.append(result)
        yield from [7, 8]

    generator = outer()
    log.append([next(generator), generator.send("sent"), generator.throw(KeyError("k"))])
    log.append(list(generator))
    closed = outer()
    next(closed)
    closed.close()
    return log, [x * 2 for x in (y for y in range(3)) if x], generator.gi_frame


def program_generator_stops() -> Any:
    def generator() -> Iterator[int]:
        yield 1
        raise StopIteration

    return list(generator())


def program_async() -> Any:
    log = []

    class Manager:
        async def __aenter__(self) -> int:
            await asyncio.sleep(0)
            return 1

        async def __aexit__(self, *args: Any) -> None:
            log.append("left")

    async def values() -> Any:
        for value in range(3):
            await asyncio.sleep(0)
            yield value

    async def main() -> Any:
        async with Manager() as entered:
            found = [value async for value in values()]
        return entered, found, await asyncio.gather(*(asyncio.sleep(0, n) for n in range(3)))

    return asyncio.run(main()), log


def program_await_number() -> Any:
    async def main() -> Any:
        await 3  # type: ignore[misc]

    return asyncio.run(main())


def program_match() -> Any:
    class Point:
        __match_args__ = ("x", "y")

        def __init__(self, x: int, y: int) -> None:
            self.x, self.y = x, y

    def kind(value: Any) -> Any:
        match value:
            case Point(0, y=y):
                return "axis", y
            case Point(x, y):
                return x, y
            case {"key": [a, *rest], **others}:
                return a, rest, others
            case [1, _] | (2, _, _):
                return "sequence"
            case str(text) if len(text) > 1:
                return text
            case None | True:
                return "constant"
        return "none"

    values = [Point(0, 1), Point(1, 2), {"key": [1, 2], "b": 3}, [1, 5], "ab", "a", None, True, 3.5]
    return [kind(value) for value in values]


def program_match_error() -> Any:
    match 3:
        case int(a, b):  # type: ignore[misc]
            return a, b


def program_recursion_limit() -> Any:
    depth = 0

    def recur() -> None:
        nonlocal depth
        depth += 1
        recur()

    try:
        recur()
    except RecursionError as error:
        return str(error), depth > 100


def program_frames() -> Any:
    def where() -> Any:
        frame = sys._getframe(1)
        return frame.f_code.co_name, frame.f_lineno, sorted(frame.f_locals)

    local = 1
    names = where(), locals().keys() >= {"local", "where"}
    return names, local


PROGRAMS = [value for name, value in list(globals().items()) if name.startswith("program_")]
