#!/usr/bin/env python3
"""Writes docs/performance.md: eager against Glowplug and the other ways to run a model on a CPU.

usage: bench/performance.py [MODEL...] [--threads N]

Each pair of eager and another way has a process of its own, in which the two take turns after a
warm-up; figures are ratios of medians. Ways whose package is not installed (onnxruntime with onnx
and onnxscript, openvino) are left out. Takes about two minutes a model.
"""

import argparse
import functools
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

import glowplug
from glowplug.cli.measure import in_turn, seconds
from glowplug.cli.models import ZOO, build

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
MEASURED_S = 4.0
Case = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def pointwise() -> Case:
    """Eight elementwise operators over 12 MB."""

    def f(x: torch.Tensor, s: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(x * s + b)
        z = functional.gelu(x, approximate="tanh")
        return (y * torch.sigmoid(x)).clamp(-1, 1) + z - x.exp().log1p()

    return f, (torch.randn(1024, 3072), torch.randn(3072), torch.randn(3072)), {}


def norms() -> Case:
    """An RMS norm written out, a softmax and a layer norm over 8 MB."""

    def f(x: torch.Tensor, w: torch.Tensor, r: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = x + r
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * w
        return torch.softmax(h, -1), functional.layer_norm(h, (1024,)).relu()

    return f, (torch.randn(2048, 1024), torch.randn(1024), torch.randn(2048, 1024)), {}


CASES: dict[str, Callable[[], Case]] = {
    **{name: functools.partial(build, name) for name in ZOO},
    "pointwise": pointwise,
    "norms": norms,
}
WAYS = ["glowplug", "inductor", "inductor, freezing", "onnxruntime", "openvino"]


def positional(case: Case) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    """The case as exporters want it: tensors in, the first tensor out."""
    model, args, kwargs = case

    class Positional(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
            """The first tensor of what the model gives."""
            given = dict(zip(kwargs, tensors, strict=True))
            result = self.model(**given) if kwargs else self.model(*tensors)
            return result if isinstance(result, torch.Tensor) else result[0]

    return Positional().eval(), tuple(kwargs.values()) if kwargs else args


def onnxruntime(case: Case, threads: int) -> Callable[[], Any]:
    """Exported to ONNX and run by ONNX Runtime, arrays in and out."""
    import onnxruntime as ort

    module, tensors = positional(case)
    path = str(Path(tempfile.mkdtemp()) / "model.onnx")
    torch.onnx.export(module, tensors, path, dynamo=True, verbose=False)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]
    return lambda: session.run(None, {n: t.numpy() for n, t in zip(names, tensors, strict=True)})


def openvino(case: Case, threads: int) -> Callable[[], Any]:
    """Converted and run by OpenVINO in float32, arrays in and out."""
    import openvino as ov

    module, tensors = positional(case)
    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    made = ov.convert_model(module, example_input=tensors)
    request = ov.Core().compile_model(made, "CPU", settings).create_infer_request()
    return lambda: request.infer([tensor.numpy() for tensor in tensors])


def measure(name: str, way: str, threads: int) -> dict[str, float]:
    """Seconds: eager's and the way's median call, and what the way took to get ready."""
    torch.set_num_threads(threads)
    case = CASES[name]()
    model, args, kwargs = case
    with torch.no_grad():
        eager = lambda: model(*args, **kwargs)  # noqa: E731
        eager()
        rounds = int(max(7, min(400, MEASURED_S / seconds(eager))))
        start = time.perf_counter()
        if way == "onnxruntime":
            run = onnxruntime(case, threads)
        elif way == "openvino":
            run = openvino(case, threads)
        else:
            compiled = glowplug.compile(model) if way == "glowplug" else torch.compile(model)
            run = lambda: compiled(*args, **kwargs)  # noqa: E731
        run()
        ready = time.perf_counter() - start
        glowplug.wait()
        steady = in_turn({"eager": eager, "way": run}, rounds)
    return {**steady, "ready": ready}


def in_process(name: str, way: str, threads: int) -> dict[str, float] | str:
    """``measure`` in a process of its own; the last line of its errors if it fails."""
    environment = {**os.environ}
    if way == "inductor, freezing":
        environment["TORCHINDUCTOR_FREEZING"] = "1"
    command = [sys.executable, __file__, "--one", name, way, "--threads", str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or ["no message"])[-1][:80]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def row(name: str, ways: list[str], threads: int) -> str:
    """One line of the table."""
    cells, eager = [], []
    for way in ways:
        print(f"{name}: {way}", file=sys.stderr, flush=True)
        found = in_process(name, way, threads)
        if isinstance(found, str):
            print(f"  {found}", file=sys.stderr)
            cells.append("fails")
            continue
        eager.append(found["eager"])
        cells.append(f"{found['eager'] / found['way']:.2f} ({found['ready']:.2f} s)")
    return f"| {name} | {min(eager) * 1e3:.2f} | " + " | ".join(cells) + " |"


def installed(way: str) -> bool:
    """Whether the packages that it needs are there."""
    needs = {"onnxruntime": ["onnxruntime", "onnx", "onnxscript"], "openvino": ["openvino"]}
    return all(importlib.util.find_spec(package) for package in needs.get(way, []))


def main() -> None:
    """Measures all that was asked for and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help=f"of {', '.join(CASES)}; default: all")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "WAY"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(*given.one, given.threads)))
        return
    unknown = [name for name in given.models if name not in CASES]
    if unknown:
        parser.error(f"unknown model {unknown[0]!r}; known: {', '.join(CASES)}")
    ways = [way for way in WAYS if installed(way)]
    rows = [row(name, ways, given.threads) for name in given.models or CASES]
    before, _, rest = PAGE.read_text().partition("<!-- table -->\n")
    _, _, after = rest.partition("<!-- end -->\n")
    head = f"| model | eager, ms | {' | '.join(ways)} |\n|{'---|' * (len(ways) + 2)}\n"
    table = "<!-- table -->\n" + head + "\n".join(rows) + "\n<!-- end -->\n"
    PAGE.write_text(before + table + after)


if __name__ == "__main__":
    main()
