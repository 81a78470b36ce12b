"""Runs constant parts of a network, so that only their results are in its module."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.target import Target
from sartor.codegen.mlir.iree_compiler import compile_module, flags_for
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.device_array import from_view, upload
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array, TensorSpec
from sartor.runtime.module import open_module


def evaluate(text: str, arrays: Sequence[np.ndarray], results: Sequence[TensorType]) -> list[Array]:
    """Run ``@fold`` of a module on arrays, on one thread of this machine; ``results`` are its result types."""
    device = open_device("cpu", 1)
    module = open_module(compile_module(text, (*Target.create("cpu").flags, *flags_for(text))))
    program = Program(module.native, "constant folding", device, {})
    views = program.invoke("fold", [upload(array, device).view for array in arrays])
    specs = [TensorSpec("folded", each.numpy_dtype.name, each.shape) for each in results]
    return [from_view(view, device, spec).to_host().copy() for view, spec in zip(views, specs, strict=True)]
