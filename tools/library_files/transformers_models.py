"""Transformers of tiny configurations with seeded weights, in folders as their library saves them."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
)

_WIDTH, _HEADS, _INNER, _WORDS = 32, 4, 48, 40


def saved(name: str, folder: Path) -> Path:
    """Save a network of a tiny configuration; returns its folder."""
    torch.manual_seed(0)
    path = folder / name
    _network(name).save_pretrained(path)
    return path


def _network(name: str) -> PreTrainedModel:
    common = {"vocab_size": _WORDS, "hidden_size": _WIDTH, "intermediate_size": _INNER, "num_hidden_layers": 1}
    if name == "bert":
        return BertForSequenceClassification(
            BertConfig(**common, num_attention_heads=_HEADS, max_position_embeddings=16)
        )
    if name == "llama":
        # ONNX Runtime takes heads of multiples of 16.
        heads = {"num_attention_heads": _HEADS, "num_key_value_heads": 2, "head_dim": 16}
        return LlamaForCausalLM(
            LlamaConfig(**common, **heads, max_position_embeddings=16, bos_token_id=1, eos_token_id=2)
        )
    if name == "gpt2":
        sizes = {"n_embd": _WIDTH, "n_layer": 1, "n_head": _HEADS, "n_positions": 16, "n_inner": _INNER}
        return GPT2LMHeadModel(GPT2Config(vocab_size=_WORDS, **sizes, bos_token_id=1, eos_token_id=2))
    sizes = {"d_model": _WIDTH, "d_kv": _WIDTH // _HEADS, "d_ff": _INNER, "num_layers": 1, "num_heads": _HEADS}
    return T5ForConditionalGeneration(T5Config(vocab_size=_WORDS, **sizes, decoder_start_token_id=0))
