"""Models to measure: architectures of ``transformers`` with random weights, in evaluation mode.

``ZOO[name]()`` gives (module, args, kwargs). Nothing is downloaded.
"""

from collections.abc import Callable
from typing import Any

import torch

Built = tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]
Build = Callable[[], Built]

WIDTH = 32
DEPTH = 24


class Blocks(torch.nn.Module):
    """24 pre-norm residual blocks of width 32: almost nothing but overhead. (N, 32) -> (N, 32)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(_block() for _ in range(DEPTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The blocks, one after the other."""
        for layer in self.layers:
            x = x + layer(x)
        return x


def _block() -> torch.nn.Sequential:
    return torch.nn.Sequential(
        torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()
    )


def _mlp24() -> Built:
    return Blocks().eval(), (torch.randn(4, WIDTH),), {}


def _transformers(
    model: str, config: str, inputs: Callable[[], dict[str, torch.Tensor]], **settings: Any
) -> Build:
    """A build of class `model` with configuration class `config`, both by name."""

    def build() -> Built:
        import transformers

        made = getattr(transformers, model)(getattr(transformers, config)(**settings))
        return made.eval(), (), inputs()

    return build


def _image() -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(1, 3, 224, 224)}


def _tokens(length: int) -> Callable[[], dict[str, torch.Tensor]]:
    return lambda: {"input_ids": torch.randint(0, 1000, (1, length))}


def _translation() -> dict[str, torch.Tensor]:
    tokens = torch.randint(0, 1000, (1, 64))
    return {"input_ids": tokens, "decoder_input_ids": tokens[:, :16]}


ZOO: dict[str, Build] = {
    "mlp24": _mlp24,
    "resnet50": _transformers("ResNetForImageClassification", "ResNetConfig", _image),
    "bert_base": _transformers("BertModel", "BertConfig", _tokens(128)),
    "gpt2": _transformers("GPT2LMHeadModel", "GPT2Config", _tokens(64)),
    "vit_base": _transformers("ViTForImageClassification", "ViTConfig", _image),
    "llama": _transformers(
        "LlamaForCausalLM",
        "LlamaConfig",
        _tokens(64),
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=12,
        num_attention_heads=8,
        num_key_value_heads=4,
        vocab_size=8000,
        pad_token_id=0,
    ),
    "t5_small": _transformers("T5ForConditionalGeneration", "T5Config", _translation),
    "swin_tiny": _transformers("SwinForImageClassification", "SwinConfig", _image),
}


def build(name: str) -> Built:
    """The model called `name`, the same weights and inputs each time."""
    torch.manual_seed(0)
    return ZOO[name]()
