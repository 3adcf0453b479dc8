#!/usr/bin/env python3
"""Writes rows.txt: what eager gives for kernels over rows (torch is needed).

A line is "kernel|dtype|rows|columns|scalar|buffers": the buffers in the kernel's order, the result
last, separated by ";", elements as hexadecimal bits.
"""

from __future__ import annotations

import sys

import torch
from make_pointwise import NAMES, bits
from torch.nn import functional


def line(name: str, scalar: float, *buffers: torch.Tensor) -> str:
    n, m = buffers[0].shape
    text = ";".join(bits(buffer) for buffer in buffers)
    return f"{name}|{NAMES[buffers[0].dtype]}|{n}|{m}|{scalar!r}|{text}\n"


def lines() -> list[str]:
    out = []
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        for m in (1, 5, 37):
            generator = torch.Generator().manual_seed(m)
            x = (torch.randn(2, m, generator=generator, dtype=torch.float64) * 3 + 1).to(dtype)
            w, c = (torch.randn(m, generator=generator).to(dtype) for _ in range(2))
            for name in ("sum", "mean", "amax", "amin"):
                out.append(line(name, 0, x, getattr(torch, name)(x, -1)))
            out += [line("var", k, x, torch.var(x, -1, correction=k)) for k in (0, 1)]
            out.append(line("softmax", 0, x, x.softmax(-1)))
            out.append(line("log_softmax", 0, x, x.log_softmax(-1)))
            norm = functional.layer_norm
            out.append(line("layer_norm", 1e-5, x, w, c, norm(x, (m,), w, c)))
            out.append(line("layer_norm", 0.1, x, w, norm(x, (m,), w, None, 0.1)))
            out.append(line("layer_norm", 1e-5, x, norm(x, (m,))))
    return out


if __name__ == "__main__":
    sys.stdout.write("".join(lines()))
