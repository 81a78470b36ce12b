"""Properties of a GPU target: the subgroup, and figures by which tiles are chosen.

What the compiler knows is read off its attribute of the target. It knows nothing of speed, so the figures that choose
which tiles are tried are rough; measurement decides among these.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator

from sartor.codegen.ir.machines.core import Core
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.target import Target
from sartor.codegen.mlir.dispatches import executable_target
from sartor.codegen.mlir.machine import Machine

HALF_ARITHMETIC = "fp16"
"""The feature of devices that compute in f16, and load and store it."""

COOPERATIVE_MATRICES = "cooperative matrices"
"""The feature of devices whose subgroups multiply matrices of 16x16 numbers of f16, with sums in f32."""

_FLOAT_BYTES = 4
# By IREE's names: on NVIDIA's GPUs, and on AMD's since RDNA3 and since RDNA4.
_MATRICES = re.compile(r"<(NV_WMMA|WMMAR3|WMMAR4)_F32_16x16x16_F16>")
_SOFTWARE = "llvmpipe"
# Mesa's software driver reads memory invocation by invocation, in some 100 cycles for a subgroup, and shuffles in one
# instruction. So a subgroup loads adjacent numbers together and repeats them by shuffles.
_SOFTWARE_LOADS = 1 / 100
_SOFTWARE_SUMS = 41
_SOFTWARE_THREADS = 8
# Elsewhere: sums that leave room for enough subgroups on a multiprocessor, and workgroups for all multiprocessors.
_SUMS = 32
_THREADS = 128


def gpu_machine(target: Target) -> Machine:
    """The GPU of a target, a subgroup being what a vector is on a CPU.

    Raises:
        CompileError: if the compiler rejects the target.
        RejectionError: if it does not tell the size of a subgroup.
    """
    return _machine(executable_target(target))


@functools.cache
def _machine(attribute: str) -> Machine:
    # With the smallest of several sizes a workgroup is never more than one subgroup.
    match = re.search(r"subgroup_size_choices = \[([\d, ]+)\]", attribute)
    if match is None:
        raise RejectionError("the target does not tell the size of a subgroup")
    width = min(int(part) for part in match[1].split(",")) * _FLOAT_BYTES
    features = frozenset(_features(attribute))
    if f'arch = "{_SOFTWARE}"' in attribute:
        core = Core(
            width, 0.5, _SOFTWARE_LOADS, 4, math.inf, indexes=True, pairs=True, line_cycles=0, far_line_cycles=0
        )
        return Machine(width, _SOFTWARE_SUMS, _SOFTWARE_THREADS, features, core=core, in_subgroups=True)
    core = Core(width, 1, 0.25, 4, math.inf, line_cycles=0, far_line_cycles=0)
    return Machine(width, _SUMS, _THREADS, features, core=core, in_subgroups=True)


def _features(attribute: str) -> Iterator[str]:
    """What only some targets have."""
    if _computes_in_half(attribute):
        yield HALF_ARITHMETIC
    if _MATRICES.search(attribute):
        yield COOPERATIVE_MATRICES


def _computes_in_half(attribute: str) -> bool:
    """Whether a target has both arithmetic in f16 and memory of 16 bits."""
    has = {name: re.search(rf"{name} = ([\w|]+)", attribute) for name in ("compute", "storage")}
    compute, storage = (match[1].split("|") if match else [] for match in has.values())
    return HALF_ARITHMETIC in compute and "b16" in storage
