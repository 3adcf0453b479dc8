#!/usr/bin/env python3
"""Writes pointwise.txt: what eager gives for ATen's pointwise operators (torch is needed).

A line is "operator|mode|result dtype|operands|result"; operands are separated by ";":
"t:dtype:bits", "z:dtype:bits" (without dimensions), "i:number", "r:number" or "n" (absent). Bits
are hexadecimal.
"""

from __future__ import annotations

import sys

import torch

NAMES = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.bool: "bool",
}
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
WHOLE = [torch.int64, torch.int32, torch.uint8]
UNARY = """neg abs sign reciprocal sqrt rsqrt floor ceil round trunc frac exp exp2 expm1 log log2
log10 log1p sin cos tan asin acos atan sinh cosh tanh erf erfc sigmoid relu silu leaky_relu
isnan isinf logical_not""".split()
BINARY = """add sub mul div floor_divide remainder fmod pow maximum minimum fmax fmin copysign atan2
hypot eq ne lt le gt ge logical_and logical_or logical_xor""".split()


def bits(tensor: torch.Tensor) -> str:
    size = tensor.element_size()
    numbers = tensor.contiguous().view(-1).view(BITS[size]).tolist()
    return ",".join(f"{n & (2 ** (8 * size) - 1):x}" for n in numbers)


def sample(dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(11, generator=generator, dtype=torch.float64) * 2
    if dtype.is_floating_point:
        values[:4] = torch.tensor([0.0, -0.0, float("nan"), float("inf")])[torch.randperm(4)]
        return values.to(dtype)
    whole = (values * 3).round()
    return whole.abs().to(dtype) if dtype == torch.uint8 else whole.to(dtype)


def operand(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"{'t' if value.dim() else 'z'}:{NAMES[value.dtype]}:{bits(value)}"
    if value is None:
        return "n"
    return f"r:{value!r}" if isinstance(value, float) else f"i:{int(value)}"


def line(op: str, operands: list[object], mode: str = "", **keywords: object) -> str | None:
    """The line of one call; None if eager has no such thing."""
    packet = getattr(torch.ops.aten, op)
    # Eager computes what does not fill its vectors in other code, so vectors are filled.
    many = [o.repeat(64) if isinstance(o, torch.Tensor) and o.dim() else o for o in operands]
    try:
        result = packet(*many, **keywords)[:11]
    except (RuntimeError, NotImplementedError):
        return None
    if "alpha" in keywords:
        operands = [*operands, keywords["alpha"]]
    text = ";".join(operand(o) for o in operands)
    return f"aten::{op}|{mode}|{NAMES[result.dtype]}|{text}|{bits(result)}"


def lines() -> list[str | None]:
    torch.manual_seed(0)
    out: list[str | None] = []
    for dtype in FLOATS + WHOLE:
        a, b = sample(dtype, 1), sample(dtype, 2)
        if not dtype.is_floating_point:
            b[b == 0] = 3
        out += [line(op, [a]) for op in UNARY]
        out += [line(op, [a, b]) for op in BINARY]
        for op in ("add", "sub", "mul", "div", "remainder", "eq", "lt", "ge"):
            out += [line(op, [a, 0.3]), line(op, [a, 3])]
        out += [line("pow", [a, e]) for e in (2, 3, 0.5, -0.5, -1, -2, 2.5)]
        out += [line(op, [a, b], alpha=2) for op in ("add", "sub")]
        out += [line("rsub", [a, 1]), line("clamp", [a, -1, 1.5]), line("clamp", [a, None, 0])]
        # Eager's gelu of infinity is infinity or NaN, as the number of elements has it.
        finite = a.clamp(-30, 30)
        out += [line("gelu", [finite]), line("gelu", [finite], "tanh", approximate="tanh")]
        out += [line("leaky_relu", [a, 0.2]), line("mul", [a, sample(torch.int16, 5)])]
        for mode in ("floor", "trunc"):
            out.append(line("div", [a, b], mode=mode, rounding_mode=mode))
        out += [line("where", [a > 0, a, b]), line("mul", [a, sample(torch.float32, 4)[5]])]
        out += [line("lt", [a, sample(torch.float32, 4)]), line("add", [a, sample(torch.int16, 5)])]
        out += [line("_to_copy", [a], dtype=to) for to in NAMES]
    for op in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        out += [line(op, [sample(t, 1), sample(t, 2)]) for t in [*WHOLE, torch.bool]]
    out += [line("bitwise_not", [sample(t, 1)]) for t in [*WHOLE, torch.bool]]
    return out


if __name__ == "__main__":
    sys.stdout.write("".join(f"{made}\n" for made in lines() if made))
