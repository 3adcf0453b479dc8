"""Attention by a kernel of our own: close to eager whatever the layout, mask and size."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import glowplug

pytestmark = pytest.mark.skipif(
    "AVX512" not in torch.backends.cpu.get_cpu_capability(), reason="needs AVX-512"
)


class Attend(nn.Module):
    def __init__(self, **options) -> None:
        super().__init__()
        self.options = options

    def forward(self, q, k, v, mask=None):
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, **self.options)


def tensors(batch, heads, rows, depth, columns=None, key_heads=None, value_depth=None):
    """As layers give them: [batch, rows, heads, depth], transposed."""
    columns, key_heads = columns or rows, key_heads or heads
    return (
        torch.randn(batch, rows, heads, depth).transpose(1, 2),
        torch.randn(batch, columns, key_heads, depth).transpose(1, 2),
        torch.randn(batch, columns, key_heads, value_depth or depth).transpose(1, 2),
    )


def fates(module: nn.Module, *args) -> list[bool]:
    with torch.no_grad():
        compiled = glowplug.compile(module, options={"native": True})
        return [fate.attention for fate in glowplug.explain(compiled)(*args).native]


def check(module: nn.Module, *args, ours: bool = True) -> None:
    fast = glowplug.compile(module, options={"native": True})
    with torch.no_grad():
        fast(*args)
        glowplug.wait()
        found, expected = fast(*args), module(*args)
    assert found.stride() == expected.stride()
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-5, equal_nan=True)
    assert any(fates(module, *args)) == ours


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "shape",
    [
        (1, 12, 197, 64),
        (4, 3, 49, 32),
        (1, 4, 12, 128),
        (2, 2, 13, 1),
        (1, 5, 97, 40),
        (1, 4, 33, 17),
    ],
)
def test_sizes(shape, causal):
    check(Attend(is_causal=causal), *tensors(*shape))


def test_contiguous_and_strided():
    q, k, v = (t.contiguous() for t in tensors(1, 4, 50, 32))
    check(Attend(), q, k, v)
    check(Attend(), q[:, :, ::2], k[:, :, ::3], v[:, :, ::3])
    qkv = torch.randn(1, 50, 3 * 4 * 32)
    parts = [t.view(1, 50, 4, 32).transpose(1, 2) for t in qkv.split(128, -1)]
    check(Attend(), *parts)


def test_other_sizes_of_keys_and_values():
    check(Attend(), *tensors(2, 4, 20, 32, columns=70, value_depth=24))
    check(Attend(is_causal=True), *tensors(1, 4, 50, 32, columns=20))
    check(Attend(is_causal=True), *tensors(1, 4, 20, 32, columns=50))


def test_heads_that_share_keys():
    check(Attend(enable_gqa=True, is_causal=True), *tensors(1, 8, 64, 64, key_heads=2))


@pytest.mark.parametrize("scale", [0.3, 2.0])
def test_a_scale(scale):
    check(Attend(scale=scale), *tensors(1, 4, 40, 16))


@pytest.mark.parametrize("sizes", [(1, 1, 40, 60), (2, 4, 40, 60), (2, 1, 1, 60), (1, 4, 40, 60)])
def test_masks(sizes):
    check(Attend(), *tensors(2, 4, 40, 16, columns=60), torch.randn(sizes))


def test_masks_that_leave_out():
    mask = torch.zeros(1, 1, 40, 40)
    mask[..., 25:] = float("-inf")
    mask[:, :, 7] = float("-inf")
    check(Attend(), *tensors(1, 4, 40, 16), mask)
    mask = torch.full((1, 1, 40, 40), torch.finfo(torch.float32).min).triu(1)
    check(Attend(), *tensors(1, 4, 40, 16), mask)


def test_what_is_no_number_stays_in_its_rows():
    q, k, v = tensors(1, 4, 40, 16)
    q[0, 1, 5, 3] = float("nan")
    q[0, 2, 6] *= 1e20
    check(Attend(), q, k, v)


def test_large_scores():
    q, k, v = tensors(1, 4, 40, 16)
    check(Attend(), q * 100, k, v)


def test_what_is_left_to_torch():
    check(Attend(), *tensors(1, 1, 40, 16), ours=False)
    check(Attend(), *tensors(1, 4, 1, 16, columns=40), ours=False)
    check(Attend(), *(t.double() for t in tensors(1, 4, 40, 16)), ours=False)
    check(Attend(), *tensors(1, 4, 40, 16), torch.rand(1, 1, 40, 40) > 0.3, ours=False)


def test_the_number_of_threads_changes_no_bit():
    args = tensors(1, 5, 97, 40)
    fast = glowplug.compile(Attend(), options={"native": True})
    before = torch.get_num_threads()
    with torch.no_grad():
        fast(*args)
        glowplug.wait()
        expected = fast(*args)
        try:
            for threads in (1, 2, 3):
                torch.set_num_threads(threads)
                assert torch.equal(fast(*args), expected)
        finally:
            torch.set_num_threads(before)


def test_without_the_pass_it_is_torchs():
    args = tensors(1, 4, 40, 16)
    fast = glowplug.compile(Attend(), options={"native": True, "disable_passes": ["attention"]})
    with torch.no_grad():
        fast(*args)
        glowplug.wait()
        assert torch.equal(fast(*args), Attend()(*args))


def test_under_autograd_it_is_torchs():
    q, k, v = (t.requires_grad_() for t in tensors(1, 4, 40, 16))
    fast = glowplug.compile(Attend(), options={"native": True})
    for _ in range(3):
        assert torch.equal(fast(q, k, v), Attend()(q, k, v))
        glowplug.wait()
