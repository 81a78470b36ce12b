"""Tiny networks as PyTorch's libraries define them, and what they are called with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKL, UNet2DConditionModel
from diffusers.models.attention_processor import AttnProcessor
from torch import nn
from transformers import (
    BertConfig,
    BertModel,
    CLIPTextConfig,
    CLIPTextModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5EncoderModel,
    ViTConfig,
    ViTModel,
    WhisperConfig,
)
from transformers.models.whisper.modeling_whisper import WhisperEncoder

_OPSET = 17
_WIDTH, _HEADS, _INNER, _WORDS, _LENGTH = 32, 4, 48, 40, 6
_EAGER = {"attn_implementation": "eager"}


@dataclass(frozen=True)
class Network:
    """A network.

    Attributes:
        module: computes it; its result's attribute ``result`` is taken if there is one.
        inputs: by name, in order.
        kind: ONNX Runtime's name of such networks.
        result: the attribute of the module's result.
    """

    module: nn.Module
    inputs: Mapping[str, torch.Tensor]
    kind: str
    result: str = ""

    def export(self, path: Path) -> None:
        """Write it as ONNX."""
        module, names = _Taken(self.module, list(self.inputs), self.result).eval(), list(self.inputs)
        torch.onnx.export(
            module,
            tuple(self.inputs.values()),
            str(path),
            opset_version=_OPSET,
            dynamo=False,
            input_names=names,
            output_names=["y"],
        )


class _Taken(nn.Module):
    """A network with inputs by position and one result."""

    def __init__(self, module: nn.Module, names: list[str], result: str) -> None:
        super().__init__()
        self.module, self.names, self.result = module, names, result

    def forward(self, *values: torch.Tensor) -> Any:
        result = self.module(**dict(zip(self.names, values, strict=True)))
        return getattr(result, self.result) if self.result else result


def _ids(kind: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.arange(1, 1 + _LENGTH, dtype=kind)[None]


def _mask() -> torch.Tensor:
    return torch.ones(1, _LENGTH, dtype=torch.int64)


def _bert() -> Network:
    config = BertConfig(
        vocab_size=_WORDS,
        hidden_size=_WIDTH,
        num_hidden_layers=1,
        num_attention_heads=_HEADS,
        intermediate_size=_INNER,
        max_position_embeddings=16,
        **_EAGER,
    )
    inputs = {"input_ids": _ids(), "attention_mask": _mask(), "token_type_ids": torch.zeros_like(_mask())}
    return Network(BertModel(config, add_pooling_layer=False), inputs, "bert", "last_hidden_state")


def _gpt2() -> Network:
    config = GPT2Config(
        vocab_size=_WORDS,
        n_embd=_WIDTH,
        n_layer=1,
        n_head=_HEADS,
        n_positions=16,
        n_inner=_INNER,
        use_cache=False,
        **_EAGER,
    )
    return Network(GPT2LMHeadModel(config), {"input_ids": _ids()}, "gpt2", "logits")


def _llama() -> Network:
    config = LlamaConfig(
        vocab_size=_WORDS,
        hidden_size=_WIDTH,
        intermediate_size=_INNER,
        num_hidden_layers=1,
        num_attention_heads=_HEADS,
        num_key_value_heads=2,
        max_position_embeddings=16,
        use_cache=False,
        **_EAGER,
    )
    inputs = {"input_ids": _ids(), "attention_mask": _mask(), "position_ids": torch.arange(_LENGTH)[None]}
    return Network(LlamaForCausalLM(config), inputs, "gpt2", "logits")


def _t5() -> Network:
    config = T5Config(
        vocab_size=_WORDS, d_model=_WIDTH, d_kv=_WIDTH // _HEADS, d_ff=_INNER, num_layers=1, num_heads=_HEADS
    )
    return Network(T5EncoderModel(config), {"input_ids": _ids(), "attention_mask": _mask()}, "t5", "last_hidden_state")


def _clip() -> Network:
    config = CLIPTextConfig(
        vocab_size=_WORDS,
        hidden_size=_WIDTH,
        intermediate_size=_INNER,
        num_hidden_layers=1,
        num_attention_heads=_HEADS,
        max_position_embeddings=8,
        eos_token_id=_WORDS - 1,
        **_EAGER,
    )
    return Network(CLIPTextModel(config), {"input_ids": _ids(torch.int32)}, "clip", "last_hidden_state")


def _vit() -> Network:
    config = ViTConfig(
        hidden_size=_WIDTH,
        num_hidden_layers=1,
        num_attention_heads=_HEADS,
        intermediate_size=_INNER,
        image_size=8,
        patch_size=4,
        **_EAGER,
    )
    inputs = {"pixel_values": torch.randn(1, 3, 8, 8)}
    return Network(ViTModel(config, add_pooling_layer=False), inputs, "vit", "last_hidden_state")


def _whisper() -> Network:
    config = WhisperConfig(
        d_model=_WIDTH,
        encoder_layers=1,
        encoder_attention_heads=_HEADS,
        encoder_ffn_dim=_INNER,
        num_mel_bins=8,
        max_source_positions=_LENGTH,
        **_EAGER,
    )
    return Network(
        WhisperEncoder(config), {"input_features": torch.randn(1, 8, 2 * _LENGTH)}, "bart", "last_hidden_state"
    )


def _vae() -> Network:
    model = AutoencoderKL(
        block_out_channels=(32,),
        layers_per_block=1,
        norm_num_groups=8,
        down_block_types=("DownEncoderBlock2D",),
        up_block_types=("UpDecoderBlock2D",),
        sample_size=8,
    )
    model.set_attn_processor(AttnProcessor())
    model.forward = model.decode
    return Network(model, {"z": torch.randn(1, 4, 4, 4)}, "vae", "sample")


def _unet() -> Network:
    model = UNet2DConditionModel(
        sample_size=8,
        layers_per_block=1,
        block_out_channels=(16,),
        down_block_types=("CrossAttnDownBlock2D",),
        up_block_types=("CrossAttnUpBlock2D",),
        cross_attention_dim=16,
        attention_head_dim=2,
        norm_num_groups=4,
    )
    model.set_attn_processor(AttnProcessor())
    inputs = {
        "sample": torch.randn(1, 4, 8, 8),
        "timestep": torch.tensor([3]),
        "encoder_hidden_states": torch.randn(1, 5, 16),
    }
    return Network(model, inputs, "unet", "sample")


NETWORKS: Mapping[str, Callable[[], Network]] = {
    **{"bert": _bert, "clip": _clip, "gpt2": _gpt2, "llama": _llama, "t5": _t5},
    **{"unet": _unet, "vae": _vae, "vit": _vit, "whisper": _whisper},
}
