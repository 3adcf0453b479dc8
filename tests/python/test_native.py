"""Programs that native code computes, against eager: values change, sizes and layouts vary."""

import gc
import threading

import pytest
import torch
import torch.nn.functional as F

import glowplug

CLOSE = {"rtol": 1e-5, "atol": 2e-6}


def randn(*sizes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*sizes, generator=generator)


def chain(x, s, b):
    y = torch.tanh(x * s + b)
    tail = F.gelu(x, approximate="tanh") - x.exp().log1p()
    return (y * torch.sigmoid(x)).clamp(-1, 1) + tail


def several_outputs(x, s, b):
    y = F.silu(x - b)
    z = y * s
    return y, z, (z > 0), torch.where(z > 0.5, y, -z)


def masks(x, s, b):
    keep = (x > 0) & (x < b.abs() + 2)
    return x.masked_fill(~keep, -1.0).sqrt().nan_to_num() + keep.to(x.dtype) * 2


def powers(x, s, b):
    return x.square() + x**3 - (x.abs() + 0.5).rsqrt() + 1 / (x.abs() + 1) + x.pow(2) * s


def views_between(x, s, b):
    y = (x * s + b).relu()
    z = y.reshape(-1)
    return (z.exp().neg() + z).reshape(x.shape) + y.sin()


def writes_between(x, s, b):
    y = x * s + b
    z = y.exp()
    y.add_(1)
    return z.log1p() * 2, (y * 3).cos()


def repeated(x, s, b):
    return (x.exp() + x.exp()) * (x.exp() - s), x.exp()


def identities(x, s, b):
    y = F.dropout(x, 0.5, training=False).to(torch.float32).contiguous()
    return (y + b).relu(), y


def softmaxes(x, s, b):
    h = x * s
    return torch.softmax(h + b, -1), torch.log_softmax(h - b, -1).exp()


def norms(x, s, b):
    h = x + b
    mean_square = h.pow(2).mean(-1, keepdim=True)
    h = h * torch.rsqrt(mean_square + 1e-6) * s
    return torch.softmax(h, -1), F.layer_norm(h, h.shape[-1:], s, b).relu()


def reductions(x, s, b):
    h = (x * s).abs() + 1
    total = h.sum(-1, keepdim=True)
    return (
        h / total,
        h.mean(-1),
        h.amax(-1, keepdim=True) - h.amin(-1, keepdim=True),
        (x + b).square().sum(-1),
    )


def rms(x, s, b):
    return F.rms_norm(x + b, x.shape[-1:], s, 1e-5) * 2


def other_dimensions(x, s, b):
    return (torch.softmax(x * s, 0) + (x * s).mean(0)) * b, (x * 2 + 1).transpose(0, -1) * 2


PROGRAMS = [
    chain,
    several_outputs,
    masks,
    powers,
    views_between,
    writes_between,
    repeated,
    identities,
    softmaxes,
    norms,
    reductions,
    rms,
    other_dimensions,
]
SHAPES = [(1,), (7,), (3, 5), (4, 16), (2, 3, 33), (64, 257), (1, 1), (5, 1), (0, 4), (4, 0)]


def leaves(value):
    return (
        [leaf for item in value for leaf in leaves(item)] if isinstance(value, tuple) else [value]
    )


def check(program, compiled, *args):
    expected = leaves(program(*[a.clone() for a in args]))
    found = leaves(compiled(*[a.clone() for a in args]))
    assert len(found) == len(expected)
    for a, e in zip(found, expected, strict=True):
        assert a.dtype == e.dtype and a.stride() == e.stride()
        torch.testing.assert_close(a, e, equal_nan=True, **CLOSE)


def native(program, **options):
    return glowplug.compile(program, options={"native": True, **options})


def compiled_and_ready(program, *args, **options):
    compiled = native(program, **options)
    with torch.no_grad():
        compiled(*[a.clone() for a in args])
    glowplug.wait()
    return compiled


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_programs(program, shape):
    args = randn(*shape), randn(shape[-1], seed=1), randn(shape[-1], seed=2)
    if shape[-1] == 0 and program is reductions:
        pytest.skip("eager raises: no extreme of nothing")
    compiled = compiled_and_ready(program, *args)
    with torch.no_grad():
        for seed in range(3, 6):
            check(program, compiled, randn(*shape, seed=seed), randn(shape[-1], seed=9), args[2])
    stats = glowplug.counters()["stats"]
    assert stats["recordings"] == 1
    assert glowplug.counters()["native"].get("native_failed", 0) == 0


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("program", [chain, norms, reductions], ids=lambda p: p.__name__)
def test_the_number_of_threads_changes_no_bit(program, threads):
    before = torch.get_num_threads()
    args = randn(300, 1000), randn(1000, seed=1), randn(1000, seed=2)
    compiled = compiled_and_ready(program, *args)
    try:
        torch.set_num_threads(threads)
        with torch.no_grad():
            check(program, compiled, *args)
            several = leaves(compiled(*args))
            torch.set_num_threads(1)
            one = leaves(compiled(*args))
        assert all(torch.equal(a, b) for a, b in zip(several, one, strict=True))
    finally:
        torch.set_num_threads(before)


LAYOUTS = {
    "transposed": lambda x: x.t().contiguous().t(),
    "every second column": lambda x: x.repeat_interleave(2, 1)[:, ::2],
    "every second row": lambda x: x.repeat_interleave(2, 0)[::2],
    "expanded rows": lambda x: x[:1].expand(*x.shape),
    "expanded columns": lambda x: x[:, :1].expand(*x.shape),
    "offset": lambda x: torch.cat([x[:1], x])[1:],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "program", [chain, norms, several_outputs, reductions], ids=lambda p: p.__name__
)
def test_layouts(program, layout):
    def lay_out(seed):
        return LAYOUTS[layout](randn(12, 20, seed=seed))

    s, b = randn(20, seed=1), randn(20, seed=2)
    compiled = native(program)
    with torch.no_grad():
        compiled(lay_out(0), s, b)
        glowplug.wait()
        for seed in (3, 4):
            expected, found = (
                leaves(program(lay_out(seed), s, b)),
                leaves(compiled(lay_out(seed), s, b)),
            )
            for a, e in zip(found, expected, strict=True):
                assert a.stride() == e.stride()
                torch.testing.assert_close(a, e, **CLOSE)
    assert glowplug.counters()["stats"]["ops_native"] > 0


def test_channels_last_stays_channels_last():
    def program(x):
        return (x * 2 + 1).relu(), x.sigmoid() * x

    x = randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    compiled = compiled_and_ready(program, x)
    with torch.no_grad():
        check(program, compiled, x)
    assert glowplug.counters()["stats"]["ops_native"] == 5


def test_under_autograd_everything_stays_in_tier_1():
    w = randn(8).requires_grad_()

    def program(x):
        return (x * w + 1).relu().sum()

    compiled = native(program)
    for seed in range(3):
        compiled(randn(4, 8, seed=seed)).backward()
        glowplug.wait()
    eager = randn(8).requires_grad_()
    for seed in range(3):
        (randn(4, 8, seed=seed) * eager + 1).relu().sum().backward()
    assert torch.equal(w.grad, eager.grad)
    counted = glowplug.counters()
    assert counted["stats"]["ops_native"] == 0
    assert counted["native"]["native_autograd"] >= 3


def test_forks_and_numbers():
    def program(x):
        y = (x * 2 + 1).relu()
        if y.sum().item() > 40:
            return (y.exp() - 1).sqrt()
        return (y * 3).tanh() + y

    compiled = native(program)
    with torch.no_grad():
        for round_ in range(4):
            for scale in (0.1, 3.0):
                x = randn(4, 8, seed=round_) * scale
                torch.testing.assert_close(compiled(x), program(x), **CLOSE)
            glowplug.wait()


def test_writes_to_inputs_keep_their_order():
    def program(x, buffer):
        y = x * 2 + 1
        buffer.copy_(y)
        z = (buffer * 3).relu() - y
        buffer.add_(1)
        return z, buffer * 2 + 1

    compiled = native(program)
    mine, theirs = torch.zeros(4, 8), torch.zeros(4, 8)
    with torch.no_grad():
        for seed in range(4):
            x = randn(4, 8, seed=seed)
            for a, e in zip(compiled(x, mine), program(x, theirs), strict=True):
                torch.testing.assert_close(a, e, **CLOSE)
            torch.testing.assert_close(mine, theirs, **CLOSE)
            glowplug.wait()


def test_passes_are_switched_off_by_name():
    args = randn(4, 8), randn(8), randn(8)
    for name in ("native", "fuse", "cse", "noop", "dce"):
        glowplug.reset()
        compiled = compiled_and_ready(repeated, *args, **{name: False})
        with torch.no_grad():
            check(repeated, compiled, *args)
        count = glowplug.counters()["stats"]["ops_native"]
        assert (count == 0) == (name in ("native", "fuse"))


def test_explain_lists_what_runs_where():
    with torch.no_grad():
        report = glowplug.explain(native(writes_between))(randn(4, 8), randn(8), randn(8))
    fates = {fate.op: fate for fate in report.native}
    assert fates["aten::exp"].kernel >= 0
    assert fates["aten::add_.Tensor"].reason == "native_writes"
    assert len(report.kernels) == 3
    assert "Native Code: 3 kernels for 7 of 8 operators" in str(report)


def test_calls_while_it_is_compiled_and_from_threads():
    compiled = native(norms)
    args = randn(64, 96), randn(96, seed=1), randn(96, seed=2)
    wrong = []

    def work():
        with torch.no_grad():
            for _ in range(20):
                expected = norms(*args)
                for a, e in zip(compiled(*args), expected, strict=True):
                    if not torch.allclose(a, e, **CLOSE):
                        wrong.append((a, e))

    threads = [threading.Thread(target=work) for _ in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    glowplug.wait()
    work()
    assert not wrong


def test_jobs_of_dropped_entries_are_not_run_or_do_no_harm():
    for seed in range(10):
        compiled = native(lambda x: (x * 2 + 1).relu())
        with torch.no_grad():
            compiled(randn(4, 8 + seed))
        del compiled
        gc.collect()
    glowplug.reset()
    glowplug.wait()


class Mlp(torch.nn.Module):
    def __init__(self, depth=24, width=64):
        super().__init__()
        blocks = [
            torch.nn.Sequential(
                torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.LayerNorm(width)
            )
            for _ in range(depth)
        ]
        self.blocks = torch.nn.ModuleList(blocks)

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return x


class Encoder(torch.nn.Module):
    """Attention and a feed-forward part, written out as in BERT."""

    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.dropout = torch.nn.Dropout(0.1)

    def forward(self, x, mask):
        b, n, w = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / (q.shape[-1] ** 0.5)
        scores = scores + (1.0 - mask[:, None, None, :].to(x.dtype)) * -1e9
        weights = self.dropout(torch.softmax(scores, -1))
        x = self.first(x + self.dropout(self.out((weights @ v).transpose(1, 2).reshape(b, n, w))))
        return self.second(x + self.dropout(self.down(F.gelu(self.up(x)))))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["mlp", "encoder"])
def test_models(kind, threads):
    torch.manual_seed(0)
    model = (Mlp() if kind == "mlp" else Encoder()).eval()
    mask = torch.ones(2, 16, dtype=torch.int64)
    mask[1, 10:] = 0
    more = () if kind == "mlp" else (mask,)
    compiled = native(model)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.no_grad():
            compiled(randn(2, 16, 64), *more)
            glowplug.wait()
            for seed in range(3):
                x = randn(2, 16, 64, seed=seed)
                expected = model(x, *more)
                scale = expected.abs().max().item()
                torch.testing.assert_close(
                    compiled(x, *more), expected, rtol=1e-5, atol=1e-5 * scale
                )
    finally:
        torch.set_num_threads(before)
    assert glowplug.counters()["stats"]["ops_native"] >= 8


def test_passes_are_left_out_by_a_list():
    args = randn(4, 8), randn(8), randn(8)
    compiled = compiled_and_ready(repeated, *args, disable_passes=["fuse", "cse"])
    with torch.no_grad():
        check(repeated, compiled, *args)
    assert glowplug.counters()["stats"]["ops_native"] == 0


@pytest.mark.parametrize(
    ("message", "options", "backend"),
    [
        (
            "unknown pass 'inline'.*known passes: noop, dce, convolutions, layout, linears, "
            "attention, prepare, fuse, cse",
            "inline",
            "native",
        ),
        ("'disable_passes' is a list", {"disable_passes": "fuse"}, "native"),
        ("'disable_passes' is a list", {"disable_passes": 3}, "native"),
        (
            r"'disable_passes' \(with 'fuse'\) and 'fuse' \(True\) contradict",
            {"disable_passes": ["cse", "fuse"], "fuse": True},
            "native",
        ),
        (
            r"'native' \(False\) and 'freeze' \(True\) contradict",
            {"native": False, "freeze": True},
            "native",
        ),
        (
            r"'native' \(False\) and 'cse' \(True\) contradict",
            {"native": "off", "cse": 1},
            "native",
        ),
        ("backend 'eager' and option 'native' contradict", {"native": True}, "eager"),
        (r"backend \(a function\) and option 'native'", {"native": True}, lambda g, x: g),
        ("backend .* and option 'native' contradict", {"native": True}, "aot_eager"),
    ],
)
def test_options_that_cannot_be_meant(message, options, backend):
    options = {"disable_passes": [options]} if isinstance(options, str) else options
    with pytest.raises(ValueError, match=message):
        glowplug.compile(chain, options=options, backend=backend)


@pytest.mark.parametrize(
    "options",
    [
        {"native": False, "freeze": False},
        {"native": True, "disable_passes": ()},
        {"fuse": False, "disable_passes": ["fuse"]},
        {"native": False, "disable_passes": ["fuse"]},
    ],
)
def test_options_that_go_together(options):
    assert callable(glowplug.compile(chain, options=options))


def test_a_mode_that_the_backend_ignores_is_told(caplog):
    glowplug.compile(chain, mode="max-autotune")
    assert not caplog.records
    glowplug.compile(chain, mode="max-autotune", backend="eager")
    assert "backend 'eager' ignores mode 'max-autotune'" in caplog.text
