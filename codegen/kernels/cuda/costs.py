"""Models of run times on a GPU: workgroups in waves, bytes, operations and launches. None was checked on a GPU.

A product is bound by one of four: the tensor cores, the second-level cache, shared memory, or the latency of the steps
of a workgroup, where a multiprocessor has too few of them (as in Hong and Kim, 2009); and by the memory for all of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from sartor.codegen.ir.machines.core import WIDE, Core
from sartor.codegen.ir.machines.cuda import WARP, CudaArchitecture
from sartor.codegen.ir.variants.traits import Sizes
from sartor.codegen.kernels.tensor_cores.instructions import MatrixInstruction
from sartor.codegen.kernels.tensor_cores.tiling import BlockTiling, BlockWork

# Bytes in a cycle: from the second-level cache to a multiprocessor, and from shared memory to its warps.
_CACHE_BYTES, _SHARED_BYTES = 64, 128
# Cycles: of a step's barrier, wait and first loads; of a workgroup's start, first copies and last stores.
_STEP_LATENCY, _GROUP_LATENCY = 120, 1800
# Warps with which all four tensor cores of a multiprocessor are busy while some of them load.
_WARPS_TO_FILL = 8
# Part of the peak that tensor cores reach at best by ``mma.sync``.
_TENSOR_SHARE = 0.8
_SUM_BYTES = 4
# Cycles of a block of keys: a barrier, both products' first fragments, and the folds of its rows.
_BLOCK_LATENCY = 600


def product_cycles(
    work: BlockWork, tiling: BlockTiling, gpu: CudaArchitecture, instruction: MatrixInstruction
) -> float:
    """Predicted cycles of a product, without the launch of its first kernel."""
    busiest = -(-work.groups(tiling) // gpu.multiprocessors)
    resident = min(tiling.resident(gpu), busiest)
    steps = -(-work.depth // tiling.depth)
    share = -(-steps // tiling.split)
    warps = resident * tiling.threads // WARP
    multiplying, copying, reading = _step_cycles(tiling, gpu, instruction)
    throughput = busiest * share * max(multiplying / min(1, warps / _WARPS_TO_FILL), copying, reading)
    latency = -(-busiest // resident) * (share * _STEP_LATENCY + _GROUP_LATENCY)
    moved = instruction.bytes * work.batches * work.rows * work.columns + work.depth * work.columns
    cycles = max(throughput + _GROUP_LATENCY, latency, moved * gpu.hertz / gpu.bandwidth)
    return cycles + (_adding_cycles(work, tiling, gpu) if tiling.split > 1 else 0)


def _step_cycles(
    tiling: BlockTiling, gpu: CudaArchitecture, instruction: MatrixInstruction
) -> tuple[float, float, float]:
    """Cycles of a workgroup's step on tensor cores, on the second-level cache and on shared memory."""
    rate = gpu.tensor_multiply_adds * _TENSOR_SHARE * 2 / instruction.bytes
    depth = tiling.depth // instruction.bytes
    multiplying = tiling.rows * tiling.columns * depth * instruction.products / rate
    copied = (tiling.rows + tiling.columns) * tiling.depth
    rows, columns = tiling.warp_tile
    read = tiling.threads // WARP * (rows + columns) * tiling.depth
    return multiplying, copied / _CACHE_BYTES, (copied + read) / _SHARED_BYTES


def _adding_cycles(work: BlockWork, tiling: BlockTiling, gpu: CudaArchitecture) -> float:
    """Cycles to write and read the parts of a split sum, and to launch a second kernel."""
    moved = 2 * tiling.split * work.batches * work.rows * work.columns * _SUM_BYTES
    return gpu.launch_seconds * gpu.hertz + moved / (_CACHE_BYTES * gpu.multiprocessors)


def _gpu(core: Core) -> CudaArchitecture:
    if core.gpu is None:
        raise ValueError("the model is that of a GPU")
    return core.gpu


@dataclass(frozen=True)
class ProductCost:
    """The model of a product's variants.

    Attributes:
        instruction: multiplies.
    """

    instruction: MatrixInstruction

    def cycles(self, sizes: Sizes, parameters: Mapping[str, int], core: Core = WIDE) -> float:
        """Predicted cycles of one inference on a GPU.

        Raises:
            ValueError: if the core is that of a CPU.
        """
        gpu = _gpu(core)
        rows, depth = sizes["rows"] * sizes["columns"], sizes["depth"] * self.instruction.bytes
        work = BlockWork(sizes["batch"], rows, sizes["channels"], depth)
        return product_cycles(work, BlockTiling.of(parameters), gpu, self.instruction)


@dataclass(frozen=True)
class AttentionCost:
    """The model of an attention by one kernel: tensor cores, and the latency of a workgroup's blocks of keys.

    Attributes:
        instruction: multiplies.
    """

    instruction: MatrixInstruction

    def cycles(self, sizes: Sizes, parameters: Mapping[str, int], core: Core = WIDE) -> float:
        """Predicted cycles of one inference on a GPU.

        Raises:
            ValueError: if the core is that of a CPU.
        """
        gpu = _gpu(core)
        rate = gpu.tensor_multiply_adds * _TENSOR_SHARE * 2 / self.instruction.bytes
        # A warp rescales and exponentiates between its products, and half of the warps multiply meanwhile.
        products = sizes["operations"] / 2 * self.instruction.products
        throughput = 2 * products / (rate * gpu.multiprocessors)
        # A key takes part in two products, and both count in the depth: with queries as wide as values, twice.
        keys = sizes["depth"] / 2
        return throughput + _GROUP_LATENCY + _BLOCK_LATENCY * max(1, math.ceil(keys / parameters["block"]))


# Instructions for each product of a sum in code without tensor cores: a load, a multiply-add, an address.
_INSTRUCTIONS = 3
# Cycles from one tap to the next, several loads being on their way.
_TAP_LATENCY = 12


@dataclass(frozen=True)
class ThreadCost:
    """The model of kernels whose threads compute by themselves: instructions, and the latency of a thread's loads."""

    def cycles(self, sizes: Sizes, parameters: Mapping[str, int], core: Core = WIDE) -> float:
        """Predicted cycles of one inference on a GPU."""
        pixels = parameters.get("pixels", 1)
        throughput = _INSTRUCTIONS * sizes["operations"] / core.operations_per_cycle
        latency = _GROUP_LATENCY + sizes["taps"] * pixels * _TAP_LATENCY
        return max(throughput, latency)


# Taps of the depthwise convolution in a fused task, whose facts do not tell them.
_USUAL_TAPS = 9


def separable_cycles(
    work: BlockWork, taps: int, tiling: BlockTiling, gpu: CudaArchitecture, instruction: MatrixInstruction
) -> float:
    """Predicted cycles of a product whose rows are computed by windows of ``taps`` taps, without its launch.

    A stage waits for a thread's windows; workgroups side by side compute the same windows.
    """
    busiest = -(-work.groups(tiling) // gpu.multiprocessors)
    resident = min(tiling.resident(gpu), busiest)
    steps = -(-work.depth // tiling.depth)
    numbers = tiling.rows * tiling.depth // instruction.bytes
    computing = busiest * steps * _INSTRUCTIONS * numbers * taps / gpu.multiply_adds
    waiting = -(-busiest // resident) * steps * taps * _TAP_LATENCY
    return product_cycles(work, tiling, gpu, instruction) + max(computing, waiting)


@dataclass(frozen=True)
class SeparableProductCost:
    """The model of a depthwise and a 1x1 convolution in one kernel.

    Attributes:
        instruction: multiplies.
    """

    instruction: MatrixInstruction

    def cycles(self, sizes: Sizes, parameters: Mapping[str, int], core: Core = WIDE) -> float:
        """Predicted cycles of one inference on a GPU.

        Raises:
            ValueError: if the core is that of a CPU.
        """
        gpu = _gpu(core)
        depth = max(1, sizes["weights"] // (_SUM_BYTES * (sizes["channels"] + _USUAL_TAPS)))
        rows = sizes["rows"] * sizes["columns"]
        work = BlockWork(sizes["batch"], rows, sizes["channels"], depth * self.instruction.bytes)
        return separable_cycles(work, _USUAL_TAPS, BlockTiling.of(parameters), gpu, self.instruction)
