"""Decoders as the model builder of ONNX Runtime GenAI writes them: in f32, and with weights in 4 bits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import onnx
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from tools.library_files.transformers_models import saved

_BUILDER = "onnxruntime_genai.models.builder"


def files(work: Path) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Names and models."""
    source = saved("llama", work)
    # The builder copies the tokeniser of the network.
    words = Tokenizer(WordLevel({"a": 0, "b": 1}, unk_token="a"))
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(source)
    for precision in ("fp32", "int4"):
        folder = work / precision
        options = ["-i", source, "-o", folder, "-p", precision, "-e", "cpu", "-c", work / "cache"]
        command = [sys.executable, "-m", _BUILDER, *map(str, options), "--extra_options", "block_size=16"]
        subprocess.run(command, check=True)
        yield f"genai_llama_{precision}", onnx.load_model(folder / "model.onnx")
