"""Convolutions with packed weights: close to eager, and never with a weight of yesterday."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import glowplug

pytestmark = pytest.mark.unverified(
    "verify mode has weights in memory that two processes share, which is not packed"
)

N, C, SIDE = 2, 8, 12


def compiled(module: Callable, **options):
    return glowplug.compile(module, options={"native": True, **options})


def is_close(found, expected) -> None:
    if isinstance(expected, tuple):
        for f, e in zip(found, expected, strict=True):
            is_close(f, e)
        return
    assert found.shape == expected.shape and found.stride() == expected.stride()
    assert not found.requires_grad and found._version == expected._version
    if not expected.numel():
        return
    scale = expected.abs().max().item() + 1e-6
    assert (found - expected).abs().max().item() <= 2e-5 * scale


def check(module: Callable, fast: Callable, *args, calls: int = 3) -> None:
    with torch.no_grad():
        for _ in range(calls):
            mine = [a.clone(memory_format=torch.preserve_format) for a in args]
            theirs = [a.clone(memory_format=torch.preserve_format) for a in args]
            is_close(fast(*mine), module(*theirs))
            is_close(tuple(mine), tuple(theirs))


def ready(module: Callable, *args, **options):
    """Compiled, with native code that has run."""
    fast = compiled(module, **options)
    check(module, fast, *args)
    glowplug.wait()
    check(module, fast, *args)
    return fast


def fates(module: Callable, *args) -> list[tuple[str, bool, str]]:
    with torch.no_grad():
        report = glowplug.explain(compiled(module))(*args).native
    return [(fate.op, fate.packed, fate.reason) for fate in report]


def packed(module: Callable, *args) -> list[str]:
    return [op for op, is_packed, _ in fates(module, *args) if is_packed]


def statistics(norm: nn.BatchNorm2d) -> nn.BatchNorm2d:
    for tensor in (norm.running_mean, norm.running_var, norm.weight, norm.bias):
        if tensor is not None:
            tensor.data.uniform_(0.5, 1.5)
    return norm


def normed(activation: nn.Module | None = None, **options) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(C, C, 3, padding=1, **options), statistics(nn.BatchNorm2d(C))]
    return nn.Sequential(*layers, *([activation] if activation else [])).eval()


class Block(nn.Module):
    """A residual block that writes as torchvision's do."""

    def __init__(self, after: Callable = F.relu_) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = normed(nn.ReLU(inplace=True)), normed()
        self.after = after
        self.eval()

    def forward(self, x):
        y = self.second(self.first(x))
        y += x
        return self.after(y)


@pytest.fixture
def x() -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(N, C, SIDE, SIDE)


LAYERS = {
    "plain": dict(kernel_size=3),
    "no bias": dict(kernel_size=3, bias=False),
    "padded": dict(kernel_size=3, padding=1),
    "two paddings": dict(kernel_size=(3, 5), padding=(1, 2)),
    "same": dict(kernel_size=3, padding="same"),
    "valid": dict(kernel_size=3, padding="valid"),
    "reflected": dict(kernel_size=3, padding=1, padding_mode="reflect"),
    "circular": dict(kernel_size=3, padding=1, padding_mode="circular"),
    "stride": dict(kernel_size=3, stride=2, padding=1),
    "dilation": dict(kernel_size=3, dilation=2),
    "groups": dict(kernel_size=3, groups=2),
    "depthwise": dict(kernel_size=3, groups=C),
    "patches": dict(kernel_size=4, stride=4),
    "pointwise": dict(kernel_size=1),
}


@pytest.mark.parametrize("options", LAYERS.values(), ids=LAYERS.keys())
def test_a_layer_is_close_to_eager(options, x):
    torch.manual_seed(0)
    module = nn.Conv2d(C, 2 * C, **options).eval()
    ready(module, x)
    ready(module, x.contiguous(memory_format=torch.channels_last))
    ready(module, x.transpose(2, 3))
    ready(module, torch.randn(N, C, SIDE, 2 * SIDE)[..., ::2])
    found = packed(module, x)
    assert len(found) == 1 and found[0].startswith("aten::conv2d")


OTHERS = {
    "one dimension": (nn.Conv1d(C, C, 3), (N, C, SIDE), "native_convolution"),
    "three dimensions": (nn.Conv3d(C, C, 3), (N, C, 5, 5, 5), "native_convolution"),
    "transposed": (nn.ConvTranspose2d(C, C, 3), (N, C, 5, 5), "native_convolution"),
    "uneven": (nn.Conv2d(C, C, 4, padding="same"), (N, C, SIDE, SIDE), "native_convolution"),
    "one image": (nn.Conv2d(C, C, 3), (C, SIDE, SIDE), "native_convolution"),
    "no image": (nn.Conv2d(C, C, 3), (0, C, SIDE, SIDE), "native_empty"),
    "double": (nn.Conv2d(C, C, 3).double(), (N, C, SIDE, SIDE), "native_dtype"),
}


@pytest.mark.parametrize(("module", "sizes", "reason"), OTHERS.values(), ids=OTHERS.keys())
def test_others_stay_with_a_reason(module, sizes, reason):
    x = torch.randn(sizes, dtype=module.weight.dtype)
    with torch.no_grad():
        fast = compiled(module)
        for _ in range(3):
            assert torch.equal(fast(x), module(x))
            glowplug.wait()
    assert [why for op, _, why in fates(module, x) if "conv" in op] == [reason]


def test_a_weight_that_is_computed(x):
    weight = torch.randn(C, C, 3, 3)

    def program(x):
        return F.conv2d(x, weight * 2)

    ready(program, x)
    assert ("aten::conv2d", False, "native_weight") in fates(program, x)


ACTIVATIONS = {
    "none": None,
    "relu": nn.ReLU(),
    "relu in place": nn.ReLU(inplace=True),
    "relu6": nn.ReLU6(),
    "relu6 in place": nn.ReLU6(inplace=True),
    "hardtanh": nn.Hardtanh(-0.5, 0.25),
    "silu": nn.SiLU(),
    "silu in place": nn.SiLU(inplace=True),
    "gelu": nn.GELU(),
    "gelu by tanh": nn.GELU(approximate="tanh"),
}


@pytest.mark.parametrize("activation", ACTIVATIONS.values(), ids=ACTIVATIONS.keys())
def test_norm_and_activation_are_part_of_it(activation, x):
    module = normed(activation, bias=False)
    ready(module, x)
    assert len(packed(module, x)) == (2 if activation is None else 3)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("affine", [False, True])
def test_norms(bias, affine, x):
    conv = nn.Conv2d(C, C, 3, bias=bias)
    module = nn.Sequential(conv, statistics(nn.BatchNorm2d(C, affine=affine))).eval()
    ready(module, x)
    assert len(packed(module, x)) == 2


def test_a_norm_without_statistics(x):
    module = nn.Sequential(nn.Conv2d(C, C, 3), nn.BatchNorm2d(C, track_running_stats=False)).eval()
    ready(module, x)
    assert packed(module, x) == ["aten::conv2d"]


def test_a_norm_in_training(x):
    module = nn.Sequential(nn.Conv2d(C, C, 3), nn.BatchNorm2d(C)).train()
    fast = compiled(module)
    with torch.no_grad():
        for _ in range(4):
            before = [b.clone() for b in module.buffers()]
            expected = module(x)
            for buffer, value in zip(module.buffers(), before, strict=True):
                buffer.copy_(value)
            torch.testing.assert_close(fast(x), expected)
            glowplug.wait()


AFTER = {
    "none": lambda y: y,
    "relu": F.relu,
    "relu in place": F.relu_,
    "another": torch.sigmoid,
    "seen": lambda y: (y, F.relu(y)),
    "seen and written": lambda y: (y, F.relu_(y)),
}


@pytest.mark.parametrize("after", AFTER.values(), ids=AFTER.keys())
def test_residuals(after, x):
    module = Block(after)
    ready(module, x)
    assert "aten::add_.Tensor" in packed(module, x)


def test_a_residual_that_escapes(x):
    module = Block()

    def program(x):
        y = module.first(x)
        z = module.second(y)
        return F.relu(y + z), y

    ready(program, x)
    assert "aten::add.Tensor" in packed(program, x)


def test_both_sides_are_convolutions(x):
    module = Block()
    ready(lambda x: F.relu(module.first(x) + module.second(x)), x)
    ready(lambda x: F.relu_(module.second(x).add_(module.second(x))), x)


def test_a_residual_of_another_shape(x):
    module = normed()
    ready(lambda x: F.relu(module(x) + module(x)[:1]), x)
    ready(lambda x: module(x).add_(x, alpha=2).relu_(), x)


def test_padding_is_part_of_it(x):
    module = normed()

    def program(x, sides):
        return module(F.pad(x, sides))

    even, uneven = ([1, 1, 2, 2], [0, 0, 0, 0]), ([0, 1, 0, 1], [2, 0, 1, 3], [0, 0, 3, 0])
    for sides, count in [(sides, 3) for sides in even + uneven]:
        ready(lambda x, sides=sides: program(x, sides), x)
        ready(lambda x, sides=sides: program(x, sides), x, prepare=False)
        assert len(packed(lambda x, sides=sides: program(x, sides), x)) == count
    ready(lambda x: module(F.pad(x, [1, 1, 1, 1], value=1.0)), x)
    ready(lambda x: module(F.pad(x, [-1, -1, -1, -1])), x)


def test_values_that_are_seen_lie_as_in_eager(x):
    module = Block()

    def seen(x):
        y = module.first(x)
        z = module.second(y)
        pooled = F.max_pool2d(z, 2)
        return y, pooled, pooled.flatten(1), F.adaptive_avg_pool2d(z, 1), z.mean((2, 3)), z * y

    ready(seen, x)
    ready(seen, x.contiguous(memory_format=torch.channels_last))


def test_views_and_what_reads_strides(x):
    module = Block()

    def program(x):
        y = module.first(x)
        a = module.second(y).view(N, -1)
        b = module.second(y).permute(0, 2, 3, 1)
        c = module.second(y).transpose(1, 2).contiguous()
        d = torch.empty_like(module.second(y)).fill_(1)
        e = F.layer_norm(module.second(y).permute(0, 2, 3, 1), (C,))
        f = torch.cat([module.second(y), y], 1)
        g = module.second(y).clone().flatten()
        return a, b, c, d, e, f, g, module.second(y)[:, 1]

    ready(program, x)


def test_writes_to_what_others_see(x):
    module = normed()

    def view_before(x):
        y = module(x)
        view = y[0]
        y.relu_()
        return view, y

    def seen_before(x):
        y = module(x)
        z = y + 1
        y.relu_()
        return y, z

    def input_written(x):
        x.relu_()
        y = module(x)
        x.add_(1)
        return y.relu_(), module(x.view(N, C, SIDE, SIDE))

    def residual_written(x):
        y = module(x)
        z = x + 0
        z += y
        return F.relu(z), y

    def written_between(x):
        y = module(x)
        x.mul_(2)
        return y.relu_()

    for program in (view_before, seen_before, input_written, residual_written, written_between):
        ready(program, x)


def test_dense_blocks(x):
    torch.manual_seed(0)
    norms = [statistics(nn.BatchNorm2d(C * n)).eval() for n in (1, 2)]
    convs = [nn.Conv2d(C * n, C, 3, padding=1) for n in (1, 2)]

    def program(x):
        y = convs[0](F.relu_(norms[0](x)))
        y = convs[1](F.relu_(norms[1](torch.cat([x, y], 1))))
        return F.avg_pool2d(y, 2).mean((2, 3))

    ready(program, x)


def test_squeeze_and_excitation(x):
    module = normed(nn.SiLU())
    gate = nn.Conv2d(C, C, 1)

    def program(x):
        y = module(x)
        return module(y * torch.sigmoid(gate(F.adaptive_avg_pool2d(y, 1)))).mean((2, 3))

    ready(program, x)


def step(module: nn.Sequential) -> None:
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    torch.optim.SGD(module.parameters(), lr=0.1).step()
    module.zero_grad()


def train(module: nn.Sequential) -> None:
    module.train()
    module(torch.randn(N, C, SIDE, SIDE) + 3)
    module.eval()


def in_place(tensor: Callable) -> Callable:
    def write(module: nn.Sequential) -> None:
        with torch.no_grad():
            tensor(module).mul_(1.5)

    return write


def by_data(tensor: Callable) -> Callable:
    def write(module: nn.Sequential) -> None:
        tensor(module).data = torch.rand_like(tensor(module)) + 0.5

    return write


def replace_norm(module: nn.Sequential) -> None:
    module[1] = statistics(nn.BatchNorm2d(C)).eval()


def replace_buffer(module: nn.Sequential) -> None:
    module[1].running_mean = torch.rand(C)


TENSORS = {
    "weight": lambda m: m[0].weight,
    "bias": lambda m: m[0].bias,
    "mean": lambda m: m[1].running_mean,
    "variance": lambda m: m[1].running_var,
    "gamma": lambda m: m[1].weight,
    "beta": lambda m: m[1].bias,
}
WRITES: dict[str, Callable[[nn.Sequential], None]] = {
    "optimizer": step,
    "load_state_dict": lambda m: m.load_state_dict({k: v * 2 for k, v in m.state_dict().items()}),
    "a call in training": train,
    "module replaced": replace_norm,
    "buffer replaced": replace_buffer,
    "numpy": lambda m: m[1].running_mean.numpy().fill(2),
    "storage": lambda m: m[1].weight.untyped_storage().copy_(torch.rand(C).untyped_storage()),
    **{f"{name} in place": in_place(tensor) for name, tensor in TENSORS.items()},
    **{f"{name} .data =": by_data(tensor) for name, tensor in TENSORS.items()},
    **{f"{name} .data in place": lambda m, t=t: t(m).data.mul_(2) for name, t in TENSORS.items()},
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_what_is_folded_is_noticed_when_written(write, x):
    module = normed(nn.ReLU())
    fast = ready(module, x)
    for _ in range(3):
        write(module)
        check(module, fast, x)
        glowplug.wait()
        check(module, fast, x)


def test_memory_of_numpy_is_not_packed(x):
    module = normed()
    module[1].running_mean = torch.from_numpy(torch.rand(C).numpy().copy())
    fast = ready(module, x)
    module[1].running_mean.numpy()[0] = 9
    check(module, fast, x)
    assert ("aten::batch_norm", False, "native_weight") in fates(module, x)


def test_one_layer_used_twice(x):
    module = normed(nn.ReLU())
    fast = ready(lambda x: module(module(x)), x)
    in_place(TENSORS["gamma"])(module)
    check(lambda x: module(module(x)), fast, x)


def test_autograd_stays_as_it_is(x):
    module = normed(nn.ReLU())
    fast = compiled(module)
    for _ in range(3):
        fast(x).sum().backward()
        glowplug.wait()
    grad = module[0].weight.grad.clone()
    module.zero_grad()
    for _ in range(3):
        module(x).sum().backward()
    assert torch.equal(grad, module[0].weight.grad)


def test_forward_mode_differentiation(x):
    module = normed(nn.ReLU())
    fast = ready(module, x)
    with torch.no_grad(), torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        is_close(fast(dual), module(dual))


def test_inference_mode(x):
    module = Block()
    fast = compiled(module)
    with torch.inference_mode():
        for _ in range(3):
            found, expected = fast(x), module(x)
            assert found.is_inference() == expected.is_inference()
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
            glowplug.wait()


def test_onednn_switched_off_is_eagers(x):
    module = normed(nn.ReLU())
    fast = ready(module, x)
    with torch.backends.mkldnn.flags(enabled=False), torch.no_grad():
        assert torch.equal(fast(x), module(x))


@pytest.mark.parametrize(
    "name", ["freeze", "convolutions", "layout", "prepare", "fuse", "noop", "dce"]
)
def test_passes_are_switched_off_by_name(name, x):
    ready(Block(), x, **{name: False})


def test_primitives_are_kept(x):
    before = glowplug.counters()["native"].get("native_library", 0)
    ready(Block(), x)
    assert glowplug.counters()["native"].get("native_library", 0) == before


def test_calls_have_the_threads_of_the_moment(x):
    module = Block()
    fast = ready(module, x)
    threads = torch.get_num_threads()
    with torch.no_grad():
        expected = fast(x)
        try:
            for count in (1, 3, 2, 1):
                torch.set_num_threads(count)
                assert torch.equal(fast(x), expected)
        finally:
            torch.set_num_threads(threads)


def test_several_threads_at_a_time(x):
    module = Block()
    fast = ready(module, x)
    inputs = [torch.randn_like(x) for _ in range(4)]
    with torch.no_grad():
        expected = [fast(i) for i in inputs]

    def calls(number: int) -> bool:
        with torch.no_grad():
            found = (fast(inputs[number]) for _ in range(100))
            return all(torch.equal(f, expected[number]) for f in found)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(calls, range(4)))


@pytest.mark.parametrize("shape", [(1, 8, 1, 1), (1, 8, 1, 5), (3, 8, 7, 1), (1, 8, 12, 12)])
@pytest.mark.parametrize("groups", [1, 2, 8])
def test_sizes_of_one_and_groups(shape, groups):
    x = torch.randn(shape)
    module = nn.Sequential(nn.Conv2d(C, 2 * C, 3, padding=2, dilation=2, groups=groups), nn.ReLU6())
    for layout in (torch.contiguous_format, torch.channels_last):
        ready(module, x.contiguous(memory_format=layout))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_small_network(layout):
    torch.manual_seed(0)
    stem = nn.Sequential(nn.Conv2d(3, C, 7, stride=2, padding=3), statistics(nn.BatchNorm2d(C)))
    network = nn.Sequential(stem, nn.ReLU(), nn.MaxPool2d(3, 2, 1), Block(), Block(), Block())
    network = nn.Sequential(network, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(C, 5)).eval()
    x = torch.randn(N, 3, 32, 32).contiguous(memory_format=layout)
    ready(network, x)
    assert len([op for op in packed(network, x) if "conv" in op]) == 7


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.ReLU6(), nn.SiLU(), nn.GELU()])
def test_what_is_not_a_number_stays_so(activation, x):
    module = normed(activation)
    fast = ready(module, x)
    x[0, 3, 5, 5] = float("nan")
    x[1, 2, 1, 1] = float("inf")
    with torch.no_grad():
        torch.testing.assert_close(fast(x), module(x), rtol=1e-4, atol=1e-5, equal_nan=True)


def test_statistics_written_without_their_module(x):
    module = normed(nn.ReLU())
    fast = ready(module, x)
    for _ in range(3):
        F.batch_norm(x + 2, module[1].running_mean, module[1].running_var, training=True)
        check(module, fast, x)
