"""A depthwise convolution and the 1x1 convolution that follows it, as one kernel over row strips."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sartor.codegen.analysis.convolution import Convolution, Window, convolution_of, window_of
from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.schema import schemas_of
from sartor.codegen.kernels.layers.convolution_operands import joins
from sartor.codegen.kernels.layers.image_layer import ImageLayer
from sartor.codegen.kernels.layers.kernel_layer import KernelLayer
from sartor.codegen.kernels.loops.access import Access, ImageStrides
from sartor.codegen.kernels.loops.partition import many_workgroups
from sartor.codegen.kernels.loops.tiling import Sizes, Tiling
from sartor.codegen.kernels.loops.tilings import register_shapes
from sartor.codegen.kernels.vector.contraction import Contraction
from sartor.codegen.kernels.vector.convolution import rowwise_contraction
from sartor.codegen.kernels.windows.row_strips import RowStrips
from sartor.codegen.kernels.windows.sliding import Sliding
from sartor.codegen.kernels.windows.window import window_sliding, window_tilings
from sartor.codegen.mlir.machine import Machine
from sartor.codegen.mlir.operations import body_of
from sartor.codegen.mlir.rewriting.rewrite import Rewrite

# IREE's worker threads have stacks of 128 KiB, of which executables may take half.
SCRATCH_BYTES = 48 << 10
_FLOAT_BYTES = 4
# Sizes of each kind that are tried.
_TRIED = 2
# Vectors of channels in most register tiles of the second stage.
_USUAL_VECTORS = 2
_STAGES = 2


@dataclass(frozen=True)
class StripSizes(Sizes):
    """Sizes of the tiles of both stages.

    Attributes:
        band: rows of a row strip, which the first stage computes before the second reads them.
        window_columns: columns of a register tile of the first stage.
        window_vectors: vectors of channels in a register tile of the first stage.
        columns: pixels of a register tile of the second stage.
        vectors: vectors of channels in a register tile of the second stage, and in a panel.
        row_groups: workgroups that partition the row strips.
        unroll: steps of the second stage that are written out.
    """

    band: int
    window_columns: int
    window_vectors: int
    columns: int
    vectors: int
    row_groups: int
    unroll: int


@dataclass(frozen=True)
class Separable:
    """A depthwise convolution, then a 1x1 convolution of its result."""

    window: Window
    convolution: Convolution


def separable_of(task: Task) -> Separable | None:
    """The two stages of a fused task; None if they are of other kinds."""
    if len(task.stages) != _STAGES:
        return None
    window, convolution = window_of(task.stages[0].task), convolution_of(task.stages[1].task)
    if window is None or not window.is_weighted or convolution is None or not joins(convolution):
        return None
    return Separable(window, convolution)


def separable_layer(
    task: Task, match: Separable, sizes: StripSizes, layout: str, lanes: int, device: str
) -> KernelLayer:
    """The kernel of both stages, with images in ``layout``.

    Raises:
        RejectionError: if the stages cannot be computed so, or row strips do not divide the image or exceed the
            scratch.
    """
    _check_strip(match, sizes.band)
    first, second = (ImageLayer.of(Rewrite.plain(stage.task), layout, lanes) for stage in task.stages)
    with first.rewrite.module.context:
        code = RowStrips(
            first=_first_stage(first, match.window, sizes),
            second=_second_stage(second, match, sizes, task.stages[1].inputs),
            wirings=wirings(task),
            band=sizes.band,
            workgroups=sizes.row_groups,
            scratch=_scratch_elements(match, sizes.band),
        )
    inputs = schemas_of(task.inputs, input_layouts(task, (first, second)), device)
    (output,) = schemas_of(task.results, (second.output,), device)
    return KernelLayer(task, (first.rewrite, second.rewrite), inputs, output, code)


def _check_strip(match: Separable, band: int) -> None:
    height = match.window.result.shape[2]
    if height % band:
        raise RejectionError(f"an image of {height} rows does not divide into row strips of {band}")
    if not _fits(match, band):
        raise RejectionError(f"a row strip of {band} rows exceeds the scratch")


def _fits(match: Separable, band: int) -> bool:
    return _scratch_elements(match, band) * _FLOAT_BYTES <= SCRATCH_BYTES


def _scratch_elements(match: Separable, band: int) -> int:
    _, channels, _, width = match.window.result.shape
    return band * width * channels


def _first_stage(layer: ImageLayer, window: Window, sizes: StripSizes) -> Sliding:
    """The depthwise convolution, which writes its result to the scratch, channels last."""
    _, channels, _, width = window.result.shape
    tiling = Tiling(1, sizes.window_columns, sizes.window_vectors, sizes.row_groups, 1, 1)
    sliding = window_sliding(layer, window, tiling)
    result = Access(sliding.nest.result.memory, 0, width * channels, channels, layer.lanes, is_local=True)
    return replace(sliding, nest=replace(sliding.nest, result=result))


def _second_stage(
    layer: ImageLayer, match: Separable, sizes: StripSizes, inputs: tuple[int | None, ...]
) -> Contraction:
    """The 1x1 convolution, which reads every row strip from the same scratch.

    Raises:
        RejectionError: if anything but its image is the result of the first stage.
    """
    depth, (_, _, _, width) = match.convolution.filter.shape[1], match.window.result.shape
    tiling = Tiling(1, sizes.columns, sizes.vectors, sizes.row_groups, 1, sizes.unroll)
    contraction = rowwise_contraction(layer, match.convolution, tiling)
    check_source(layer, contraction.memories[0], inputs)
    scratch = ImageStrides(0, width * depth, depth, depth, depth)
    joined = replace(contraction, image=scratch).joined(sizes.band * width)
    return replace(joined, image=replace(joined.image, row=0))


def check_source(layer: ImageLayer, source: int, inputs: tuple[int | None, ...]) -> None:
    """Make sure that the second stage multiplies the result of the first, and reads it nowhere else.

    Args:
        layer: the second stage.
        source: position of the image that it multiplies.
        inputs: positions of its activations among the task's; None for the result of the first stage.

    Raises:
        RejectionError: if it does not.
    """
    if inputs[source] is not None:
        raise RejectionError("the second stage does not multiply the result of the first")
    image = list(body_of(layer.rewrite.function).arguments)[source]
    if len(list(image.uses)) != 1:
        raise RejectionError("the result of the first stage is read twice")


def wirings(task: Task) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """For the buffers of each stage their positions among activations, weights, the result and the scratch.

    Raises:
        RejectionError: if the second stage does not read the result of the first exactly once.
    """
    first, second = task.stages
    given = [input_ for input_ in first.inputs if input_ is not None]
    if len(given) < len(first.inputs) or second.inputs.count(None) != 1:
        raise RejectionError("the second stage does not read the result of the first exactly once")
    weights = len(task.inputs) + len(first.task.weights)
    result = len(task.inputs) + len(task.weights)
    scratch = result + 1
    return (
        (*given, *range(len(task.inputs), weights), scratch),
        (*(scratch if input_ is None else input_ for input_ in second.inputs), *range(weights, result), result),
    )


def input_layouts(task: Task, layers: tuple[ImageLayer, ImageLayer]) -> tuple[str, ...]:
    """The layout of each activation.

    Raises:
        RejectionError: if the stages read an activation in different layouts.
    """
    layouts: dict[int, str] = {}
    for stage, layer in zip(task.stages, layers, strict=True):
        for position, layout in zip(stage.inputs, layer.inputs, strict=True):
            if position is not None and layouts.setdefault(position, layout) != layout:
                raise RejectionError("the stages read an activation in different layouts")
    return tuple(layouts[position] for position in range(len(task.inputs)))


def strip_sizes(match: Separable, machine: Machine) -> list[StripSizes]:
    """Sizes worth trying, best guess first."""
    windows = window_tilings(match.window, machine)[:_TRIED]
    sizes = [
        StripSizes(band, first.columns, first.vectors, columns, vectors, row_groups, unroll)
        for band, row_groups in _strip_heights(match, machine)
        for columns, vectors, unroll in _products(match, band, machine)
        for first in windows[:1]
    ]
    if sizes and len(windows) > 1:
        sizes.append(replace(sizes[0], window_columns=windows[1].columns, window_vectors=windows[1].vectors))
    return sizes


def _strip_heights(match: Separable, machine: Machine) -> Iterator[tuple[int, int]]:
    """Heights of row strips, with the number of workgroups: the smallest that fills a register tile, the next larger
    one, and the smallest of all. They divide the image, and their scratch is small enough."""
    _, _, height, width = match.window.result.shape
    fitting = [band for band in range(1, height + 1) if height % band == 0 and _fits(match, band)]
    pixels = machine.pixels(_USUAL_VECTORS)
    filling = [band for band in fitting if band * width >= pixels] or fitting[-1:]
    for band in dict.fromkeys((*filling[:_TRIED], *fitting[:1])):
        yield band, many_workgroups(height // band, machine.threads)


def _products(match: Separable, band: int, machine: Machine) -> list[tuple[int, int, int]]:
    """Columns, vectors and steps of register tiles of the second stage."""
    channels, depth, *_ = match.convolution.filter.shape
    pixels = band * match.window.result.shape[3]
    shapes = register_shapes(1, pixels, -(-channels // machine.lanes), depth, machine)
    return [(shape.columns, shape.vectors, shape.unroll) for shape in shapes[:_TRIED]]
