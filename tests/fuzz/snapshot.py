"""What can be observed of a call, as plain data that compares with ``==``.

Objects are numbered in the order in which they are met; a second meeting is a reference to the
number. So two snapshots are equal only when the same places hold the same object. Storages of
tensors are numbered the same way, which shows views and shared memory.
"""

import collections
import enum
import re
import struct
import types
from typing import Any

import torch

from glowplug._C import Entry

Data = Any  # nested tuples, lists, strings, numbers

ATOMS = (bool, int, str, bytes, type(None), complex, torch.dtype, torch.device, torch.layout)
# What a module keeps for itself and what the program cannot have written.
SKIPPED = {"__builtins__", "__warningregistry__", "__name__", "__doc__", "__module__", "__dict__",
           "__weakref__", "__annotations__", "__orig_bases__", "__parameters__", "__qualname__",
           "__abstractmethods__", "_abc_impl", "__dataclass_params__", "__dataclass_fields__",
           "__match_args__", "__firstlineno__", "__slotnames__"}  # fmt: skip


# Known differences that stay out of the comparison, so that others come to light.
# A tuple, frozenset, range or slice of nothing but constants may be the same object in two calls
# of a compiled program, and another than the equal one that came in.
COMPOSED_CONSTANTS_HAVE_IDENTITY = False


class Snapshot:
    """One walk over everything that is observed at one moment."""

    def __init__(self, filename: str) -> None:
        self.filename = (
            filename  # of the program: only its own classes and functions are looked into
        )
        self.numbers: dict[int, int] = {}
        self.storages: dict[int, int] = {}
        self.kept: list[Any] = []  # so that no id is used twice during the walk

    def of(self, value: Any) -> Data:
        """`value` as plain data."""
        if isinstance(value, Entry):
            value = value.__wrapped__
        if isinstance(value, float) and type(value) is float:
            return ("float", struct.pack(">d", value).hex(), repr(value))
        if type(value) in ATOMS or value is Ellipsis:
            return (type(value).__name__, address_free(repr(value)))
        if isinstance(value, enum.Enum):
            return ("enum", type(value).__name__, value.name)
        if not COMPOSED_CONSTANTS_HAVE_IDENTITY and is_composed_constant(value):
            return ("constant", type(value).__name__, [self.of(v) for v in parts(value)])
        number = self.numbers.get(id(value))
        if number is not None:
            return ("same as", number)
        number = self.numbers[id(value)] = len(self.numbers)
        self.kept.append(value)
        return (number, type_name(value), *self.content(value))

    def content(self, value: Any) -> list[Data]:
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, dict):
            items: list[Data] = [(self.of(k), self.of(v)) for k, v in value.items()]
            if isinstance(value, collections.defaultdict):
                items.append(self.of(value.default_factory))
            return [items, *self.attributes(value)]
        if isinstance(value, (list, tuple, collections.deque)):
            maxlen = [value.maxlen] if isinstance(value, collections.deque) else []
            return [[self.of(v) for v in list(value)], *maxlen, *self.attributes(value)]
        if isinstance(value, (set, frozenset)):
            return [sorted(repr(self.of(v)) for v in value)]
        if isinstance(value, BaseException):
            return self.exception(value)
        if isinstance(value, type):
            return self.class_(value)
        if isinstance(value, types.FunctionType):
            return self.function(value)
        if isinstance(value, types.MethodType):
            return [self.of(value.__func__), self.of(value.__self__)]
        if isinstance(value, types.CellType):
            return self.cell(value)
        if isinstance(value, (types.ModuleType, types.BuiltinFunctionType)):
            return [address_free(repr(value))]
        if isinstance(value, (property, staticmethod, classmethod)):
            return []
        return self.attributes(value)

    def tensor(self, value: torch.Tensor) -> list[Data]:
        facts: list[Data] = [
            ("dtype", str(value.dtype)),
            ("shape", tuple(value.shape)),
            ("stride", value.stride()),
            ("offset", value.storage_offset()),
            ("storage", self.storage(value)),
            ("requires_grad", value.requires_grad),
            ("is_leaf", value.is_leaf),
            ("grad_fn", type(value.grad_fn).__name__),
            ("is_view", value._is_view()),
            ("is_inference", value.is_inference()),
            ("values", bits(value)),
        ]
        if value.is_leaf and value.requires_grad:
            facts.append(("grad", self.of(value.grad)))
        if value.__dict__:
            facts.append(("attributes", [(k, self.of(v)) for k, v in value.__dict__.items()]))
        return facts

    def storage(self, value: torch.Tensor) -> int:
        storage = value.untyped_storage()
        self.kept.append(storage)
        return self.storages.setdefault(storage._cdata, len(self.storages))

    def attributes(self, value: Any) -> list[Data]:
        """``__dict__`` and slots of an object of the program's or of a module."""
        found: list[Data] = []
        own = getattr(value, "__dict__", None)
        if isinstance(own, dict):
            found += [(str(k), self.of(v)) for k, v in own.items() if k not in SKIPPED]
        for kind in type(value).__mro__:
            for name in kind.__dict__.get("__slots__", ()) if own is None else ():
                member = kind.__dict__[name]
                found.append((name, self.of(slot(member, value))))
        return found

    def exception(self, error: BaseException) -> list[Data]:
        frames: list[tuple[str, int]] = []
        trace = error.__traceback__
        while trace is not None:
            code = trace.tb_frame.f_code
            if code.co_filename == self.filename:
                frames.append((code.co_name, trace.tb_lineno))
            trace = trace.tb_next
        if isinstance(error, UnboundLocalError) and frames:
            # CPython's superinstructions give the line of the instruction before.
            frames[-1] = (frames[-1][0], 0)
        return [
            ("message", address_free(str(error))),
            ("args", [self.of(a) if type(a) is not str else address_free(a) for a in error.args]),
            ("frames", frames),
            ("cause", self.of(error.__cause__)),
            ("context", self.of(error.__context__)),
            *self.attributes(error),
        ]

    def class_(self, value: type) -> list[Data]:
        if value.__module__ != "program":
            return []
        return [
            (k, self.of(v))
            for k, v in value.__dict__.items()
            if k not in SKIPPED and not isinstance(v, (types.MemberDescriptorType,
                                                       types.GetSetDescriptorType))
        ]  # fmt: skip

    def function(self, value: types.FunctionType) -> list[Data]:
        if value.__code__.co_filename != self.filename:
            return [value.__qualname__]
        return [
            value.__qualname__,
            value.__code__.co_code.hex(),
            self.of(value.__defaults__),
            self.of(value.__kwdefaults__),
            [self.of(c) for c in value.__closure__ or ()],
            *self.attributes(value),
        ]

    def cell(self, value: types.CellType) -> list[Data]:
        try:
            return [self.of(value.cell_contents)]
        except ValueError:
            return ["empty"]


def is_composed_constant(value: Any) -> bool:
    return isinstance(value, (tuple, frozenset, range, slice)) and all(
        type(v) in ATOMS or type(v) is float or v is Ellipsis or is_composed_constant(v)
        for v in parts(value)
    )


def parts(value: Any) -> list[Any]:
    if isinstance(value, slice):
        return [value.start, value.stop, value.step]
    return sorted(value, key=repr) if isinstance(value, frozenset) else list(value)


def slot(member: Any, value: Any) -> Any:
    try:
        return member.__get__(value)
    except AttributeError:
        return "unset"


def type_name(value: Any) -> str:
    """The type's name; of a compiled module, that of the module's own class."""
    kind = type(value)
    while hasattr(kind, "_glowplug_of") or kind.__dict__.get("_glowplug_entry"):
        kind = kind.__mro__[1]
    return kind.__name__


def address_free(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+", "0x", text)


def bits(value: torch.Tensor) -> Data:
    """The elements, with their bits where a number does not show them.

    Of a copy: what shares its memory with numpy cannot be resized any more, and ``out=`` then
    leaves a tensor whose shape is larger than its storage.
    """
    of = value.detach().resolve_conj().resolve_neg()
    # One element may count as contiguous with any stride, which a view as bytes does not take.
    plain = torch.empty(of.numel(), dtype=of.dtype).copy_(of.reshape(-1))
    if plain.dtype is torch.bool:
        return plain.tolist()
    raw = plain.view(torch.uint8).numpy().tobytes().hex()
    return (raw, [repr(v) for v in plain.tolist()])
