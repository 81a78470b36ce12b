"""Prepares a loaded model for import: the rewrites, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

import numpy as np
from onnx import ModelProto, ValueInfoProto, helper

from sartor.errors import UnsupportedModelError, UsageError
from sartor.onnx_model.dynamic.bound_sizes import bound_sizes
from sartor.onnx_model.dynamic.check_indices import check_indices
from sartor.onnx_model.graphs.graph import MALFORMED, MalformedError, static_shape
from sartor.onnx_model.graphs.halves import record_widened
from sartor.onnx_model.graphs.infer import check_shapes, infer_shapes
from sartor.onnx_model.graphs.names import described_nodes, name_nodes, naming_origins
from sartor.onnx_model.graphs.noise import noise_of, record_noise
from sartor.onnx_model.graphs.prepared import Change, PreparedModel, TensorInfo
from sartor.onnx_model.graphs.walk import nodes
from sartor.onnx_model.operator_types.alike import WITH_BODIES
from sartor.onnx_model.preparing.bindings import bind_values, bound_inputs, free_shapes, record_bound
from sartor.onnx_model.preparing.check_prepared import (
    check_negative,
    check_prepared,
    check_sizes,
    check_training,
)
from sartor.onnx_model.preparing.contradicted_shapes import forget_contradicted
from sartor.onnx_model.preparing.decided_shapes import forget_decided
from sartor.onnx_model.preparing.noise_shapes import declare_noise
from sartor.onnx_model.preparing.own_faults import own_fault
from sartor.onnx_model.preparing.shapes import Shapes, bind_shapes
from sartor.onnx_model.preparing.simplify import simplify
from sartor.onnx_model.preparing.undecided import Fits, with_advice, with_other_shapes, with_other_values
from sartor.onnx_model.rewrites.arithmetic.activations import (
    selu_constants,
    written_softsign,
    written_tanh_gelu,
)
from sartor.onnx_model.rewrites.arithmetic.determinants import expand_determinants
from sartor.onnx_model.rewrites.arithmetic.expand import expand_to_result
from sartor.onnx_model.rewrites.arithmetic.fourier import multiply_fourier, written_sides
from sartor.onnx_model.rewrites.arithmetic.gather_lowerings import gather_one_element, gather_reversed, whole_indices
from sartor.onnx_model.rewrites.arithmetic.gathered_parts import gather_parts
from sartor.onnx_model.rewrites.arithmetic.matmul_vectors import matmul_vectors
from sartor.onnx_model.rewrites.arithmetic.reductions import (
    exact_norms,
    finite_log_sums,
    integer_means,
    wide_log_sums,
    written_unit_reductions,
)
from sartor.onnx_model.rewrites.arithmetic.variadic import explicit_equations, paired_operands
from sartor.onnx_model.rewrites.control_flow.chosen_values import append_if, select_open_branches
from sartor.onnx_model.rewrites.control_flow.kept_loops import constants_in_loops, keep_loops
from sartor.onnx_model.rewrites.control_flow.lift_initializers import lift_initializers
from sartor.onnx_model.rewrites.control_flow.tensor_interface import PackedOutput, tensor_outputs
from sartor.onnx_model.rewrites.control_flow.unshadowed import unshadowed
from sartor.onnx_model.rewrites.exceptional.angles import reduced_angles
from sartor.onnx_model.rewrites.exceptional.extremes import kept_nan, ordered_nan
from sartor.onnx_model.rewrites.exceptional.guarded_divisions import guarded_norm, guarded_quotients, scales_of_zeros
from sartor.onnx_model.rewrites.exceptional.hyperbolic import written_hyperbolic
from sartor.onnx_model.rewrites.exceptional.no_elements import without_elements
from sartor.onnx_model.rewrites.exceptional.powers import signed_powers
from sartor.onnx_model.rewrites.exceptional.remainders import exact_remainders
from sartor.onnx_model.rewrites.exceptional.shifts import bounded_shifts
from sartor.onnx_model.rewrites.exceptional.signs import exact_signs
from sartor.onnx_model.rewrites.number_types.carried_types import carry_types
from sartor.onnx_model.rewrites.number_types.dequantise_early import dequantise_early
from sartor.onnx_model.rewrites.number_types.integers import (
    cast_quantised,
    pad_integer_conv,
    plain_quantization,
    split_zero_points,
)
from sartor.onnx_model.rewrites.number_types.widen_halves import fits_widened, widen_halves
from sartor.onnx_model.rewrites.number_types.widen_reductions import widen_reductions
from sartor.onnx_model.rewrites.number_types.widen_unsigned import widen_unsigned
from sartor.onnx_model.rewrites.operator_sets.check_operands import check_operands
from sartor.onnx_model.rewrites.operator_sets.contrib.blocked import plain_layouts
from sartor.onnx_model.rewrites.operator_sets.contrib.blocks.dequantised_products import encode_products
from sartor.onnx_model.rewrites.operator_sets.expand_operators import expand_alike, expand_operators
from sartor.onnx_model.rewrites.operator_sets.expand_standard import expand_preview, expand_standard
from sartor.onnx_model.rewrites.operator_sets.experimental import expand_experimental
from sartor.onnx_model.rewrites.operator_sets.normal_domains import normal_domains
from sartor.onnx_model.rewrites.operator_sets.training import expand_training
from sartor.onnx_model.rewrites.operator_sets.upgrade_opset import upgrade_opset
from sartor.onnx_model.rewrites.recurrence.check_operands import check_recurrent
from sartor.onnx_model.rewrites.recurrence.lengths import run_over_all_steps
from sartor.onnx_model.rewrites.recurrence.recurrent import unroll_recurrent
from sartor.onnx_model.rewrites.recurrence.running_totals import scan_by_doubling
from sartor.onnx_model.rewrites.sampling.affine_grid import multiply_affine_grid
from sartor.onnx_model.rewrites.sampling.deform_conv import gather_deform_conv
from sartor.onnx_model.rewrites.sampling.grid_sample import gather_grid_sample
from sartor.onnx_model.rewrites.sampling.resize import gather_resize, resize_by_decimals
from sartor.onnx_model.rewrites.sampling.roi_align import gather_roi_align
from sartor.onnx_model.rewrites.structure.channel_shuffles import slice_shuffled
from sartor.onnx_model.rewrites.structure.decided_choices import take_decided_choices
from sartor.onnx_model.rewrites.structure.drop_unused import drop_unused, given_operands
from sartor.onnx_model.rewrites.structure.eliminate_identity import eliminate_identity
from sartor.onnx_model.rewrites.structure.flush_denormals import flush_denormals
from sartor.onnx_model.rewrites.structure.fold_batch_norm import fold_batch_norm
from sartor.onnx_model.rewrites.structure.fold_constants import fold_constants
from sartor.onnx_model.rewrites.structure.group_queries import group_queries
from sartor.onnx_model.rewrites.structure.initializers import initializers_only
from sartor.onnx_model.rewrites.structure.inline_functions import inline_functions
from sartor.onnx_model.rewrites.structure.masked_assignments import select_assigned
from sartor.onnx_model.rewrites.structure.numbered_rows import take_numbered_rows
from sartor.onnx_model.rewrites.structure.sort_nodes import sort_nodes
from sartor.onnx_model.rewrites.structure.sorted_selections import sort_selections
from sartor.onnx_model.rewrites.structure.turned_halves import gather_turned
from sartor.onnx_model.rewrites.windowed.cropped_pads import concatenate_pads, crop_pads
from sartor.onnx_model.rewrites.windowed.depth_to_space import transposed_blocks
from sartor.onnx_model.rewrites.windowed.one_dimension import lift_signals
from sartor.onnx_model.rewrites.windowed.pool_indices import gather_pool_indices
from sartor.onnx_model.rewrites.windowed.rounded_up import drop_windows, pad_rounded_up
from sartor.onnx_model.rewrites.windowed.scatter_extremes import compare_scattered, widen_scattered
from sartor.onnx_model.rewrites.windowed.scattered_rows import scatter_rows
from sartor.onnx_model.rewrites.windowed.scattered_windows import gather_windows
from sartor.onnx_model.rewrites.windowed.split_groups import doubled_volumes, split_groups
from sartor.onnx_model.rewrites.windowed.transposed_conv import stretched_conv
from sartor.onnx_model.rewrites.windowed.windows import (
    explicit_padding,
    maxima_of_floats,
    pad_transposed,
    round_down,
    trim_windows,
)
from sartor.runtime.driver.bound_input import Bindings

Rewrite = Callable[[ModelProto], tuple[str, ...]]
Watch = Callable[[Change, ModelProto], None]
"""Told of each rewrite that changed something, with the model as it is then."""

# Exporters write the same thing in several ways: choose one. Padding that ONNX's inference reads in another way than
# ONNX Runtime is written out before anything infers shapes.
NORMALISE: tuple[Rewrite, ...] = (
    name_nodes,
    normal_domains,
    inline_functions,
    written_sides,
    unshadowed,
    given_operands,
    name_nodes,
    initializers_only,
    sort_nodes,
    pad_transposed,
)
# Upgrading old operators requires known ranks, so values and shapes of inputs are bound before. Windows that ONNX's
# inference counts wrongly are dropped before the shapes behind them are read, and those that values of inputs decide
# are forgotten before. Selections of constants are sorted before they are folded. Declared shapes may contradict sizes
# that are known when constants are folded. Operands are checked while nodes are the user's own.
MODERNISE: tuple[Rewrite, ...] = (
    forget_contradicted,
    forget_decided,
    drop_windows,
    sort_selections,
    fold_constants,
    forget_contradicted,
    declare_noise,
    expand_experimental,
    expand_preview,
    check_operands,
    upgrade_opset,
    resize_by_decimals,
    expand_training,
)
# Fewer and simpler nodes. Sizes that depend on data are bound before anything else reads the shapes behind them.
SIMPLIFY: tuple[Rewrite, ...] = (
    plain_layouts,
    take_numbered_rows,
    expand_operators,
    encode_products,
    drop_windows,
    fold_constants,
    declare_noise,
    keep_loops,
    append_if,
    select_open_branches,
    select_assigned,
    drop_unused,
    bound_sizes,
    eliminate_identity,
    slice_shuffled,
    drop_unused,
    check_training,
    check_negative,
    simplify,
    fold_batch_norm,
    flush_denormals,
    check_sizes,
)
# Replace operators that IREE cannot import, or compiles to wrong results. What has no elements is a constant before
# other rewrites read shapes, and so is what they make of it.
LOWER: tuple[Rewrite, ...] = (
    without_elements,
    group_queries,
    gather_turned,
    multiply_affine_grid,
    expand_standard,
    written_tanh_gelu,
    paired_operands,
    explicit_equations,
    expand_to_result,
    written_unit_reductions,
    integer_means,
    cast_quantised,
    dequantise_early,
    lift_signals,
    crop_pads,
    explicit_padding,
    round_down,
    maxima_of_floats,
    pad_rounded_up,
    concatenate_pads,
    transposed_blocks,
    stretched_conv,
    split_groups,
    check_recurrent,
    run_over_all_steps,
    unroll_recurrent,
    written_softsign,
    selu_constants,
    gather_resize,
    gather_grid_sample,
    gather_roi_align,
    gather_deform_conv,
    ordered_nan,
    gather_reversed,
    gather_one_element,
    whole_indices,
    scatter_rows,
    gather_windows,
    doubled_volumes,
    gather_pool_indices,
    compare_scattered,
    widen_scattered,
    multiply_fourier,
    scan_by_doubling,
    gather_parts,
    matmul_vectors,
    guarded_norm,
    guarded_quotients,
    exact_remainders,
    bounded_shifts,
    scales_of_zeros,
    signed_powers,
    written_hyperbolic,
    reduced_angles,
    exact_signs,
    expand_determinants,
    split_zero_points,
    pad_integer_conv,
    plain_quantization,
    carry_types,
    finite_log_sums,
    wide_log_sums,
    exact_norms,
    widen_reductions,
    kept_nan,
    widen_unsigned,
    trim_windows,
    without_elements,
    fold_constants,
    take_decided_choices,
    eliminate_identity,
    drop_unused,
    lift_initializers,
    constants_in_loops,
    name_nodes,
)


# A model is prepared several times to find values that it can be bound to.
_MOST_NODES_TRIED = 1000


def prepare(
    model: ModelProto,
    shapes: Shapes | None = None,
    simplifier: Rewrite = simplify,
    bindings: Bindings | None = None,
    watch: Watch = lambda *_: None,
    *,
    widens: bool = False,
    is_open: bool = False,
    without: Collection[str] = (),
) -> PreparedModel:
    """Make a loaded model ready for import; ``model`` itself is not changed.

    Args:
        model: as ``load_model`` returns it.
        shapes: input name to static shape, for each input that has free dimensions.
        simplifier: used instead of ``simplify``.
        bindings: input name to fixed value; the prepared model does not have these inputs.
        watch: told of the rewrites.
        widens: whether values of half precision are computed in float32, as for CPUs, if one message can hold them.
        is_open: whether it is prepared with other sizes as well, and has to have the same nodes with these.
        without: names of rewrites that are left out, to see what IREE makes of a model without them; the result is not
            checked then.

    Raises:
        UsageError: ``shapes`` or ``bindings`` do not fit the model.
        UnsupportedModelError: a node is not supported; the message names it.
        InternalError: a rewrite fails on a model that ONNX Runtime takes.
    """
    fits = partial(_fits, model, shapes or {}, bindings or {})
    is_long = len(model.graph.node) > _MOST_NODES_TRIED
    fits_values = _always if is_long else fits
    own = partial(_prepared, widens=widens, is_open=is_open, without=without)
    return own(model, shapes, simplifier, bindings, fits_values, watch)


def _always(_: Bindings) -> bool:
    return True


def _fits(model: ModelProto, shapes: Shapes, bindings: Bindings, further: Bindings) -> bool:
    """Whether a model can be prepared with further values bound, or is refused with options that settle the rest."""
    try:
        _prepared(model, shapes, lambda _: (), {**bindings, **further}, _always)
    except (UnsupportedModelError, UsageError) as error:
        return f"{error}".count("--bind ") > 0
    return True


def _prepared(
    model: ModelProto,
    shapes: Shapes | None,
    simplifier: Rewrite,
    bindings: Bindings | None,
    fits: Fits,
    watch: Watch = lambda *_: None,
    *,
    widens: bool = False,
    is_open: bool = False,
    without: Collection[str] = (),
) -> PreparedModel:
    work = ModelProto()
    work.CopyFrom(model)
    del work.training_info[:]
    bound = bound_inputs(model, bindings) if bindings else ()
    binding = (partial(bind_values, bound=bound), partial(bind_shapes, shapes=free_shapes(shapes or {}, bound)))
    widens = widens and fits_widened(model)
    widening = (widen_halves,) if widens else ()
    # What is not computed in every call may be taken by any number where it is not.
    checking = () if any(node.op_type in WITH_BODIES for node in nodes(model)) else (check_indices,)
    every: tuple[Rewrite, ...] = (*binding, *MODERNISE, *widening, *SIMPLIFY, *checking, *LOWER)
    own: Mapping[Rewrite, Rewrite] = {
        simplify: simplifier,
        expand_operators: expand_alike if is_open else expand_operators,
    }
    left_out = (scatter_rows,) if is_open else ()
    steps = tuple(own.get(step, step) for step in every if _name(step) not in without and step not in left_out)
    described: dict[str, str] = {}
    noise = noise_of(model)
    declared = {value.name: value.type.tensor_type.elem_type for value in (*model.graph.input, *model.graph.output)}
    try:
        named = [_apply(work, step, watch) for step in NORMALISE if _name(step) not in without]
        described = described_nodes(work)
        changes = (*named, *(_apply(work, step, watch) for step in steps))
        infer_shapes(work)
        check_shapes(work)
        if not without:
            check_prepared(work)
    except MalformedError as error:
        raise own_fault(error, model) or error from error.__cause__
    except UnsupportedModelError as error:
        advised = naming_origins(with_advice(error, work, fits), described)
        advised = with_other_shapes(advised, model, shapes) if shapes else advised
        raise (with_other_values(advised) if bindings else advised) from error.__cause__
    record_bound(work, bound)
    record_noise(work, noise)
    if widens:
        record_widened(work, model)
    inputs, outputs = (_infos(values, declared) for values in (work.graph.input, work.graph.output))
    changes = tuple(change for change in changes if change.names)
    return PreparedModel(work, inputs, outputs, changes, bound, described, noise)


def resolve_interface(model: ModelProto, shapes: Shapes) -> tuple[PackedOutput, ...]:
    """Make outputs that are sequences or optionals tensors, in place, as far as their elements can be known.

    Args:
        model: all of its inputs are tensors.
        shapes: static shape of each input that has free dimensions.

    Returns:
        How each output is made of tensors.

    Raises:
        UsageError: ``shapes`` do not fit the model.
        UnsupportedModelError: the elements of an output are not known.
    """
    steps: tuple[Rewrite, ...] = (*NORMALISE, partial(bind_shapes, shapes=shapes), fold_constants)
    for step in steps:
        _apply(model, step)
    packed = tensor_outputs(model)
    drop_unused(model)
    return packed


def _apply(model: ModelProto, rewrite: Rewrite, watch: Watch = lambda *_: None) -> Change:
    name = _name(rewrite)
    try:
        # NaN and overflow in computations with the model's weights belong to the model and are kept.
        with np.errstate(all="ignore"):
            change = Change(name, rewrite(model))
    except MALFORMED as error:
        raise MalformedError(f"the model is malformed (found by {name}); export it again") from error
    if change.names:
        watch(change, model)
    return change


def _name(rewrite: Rewrite) -> str:
    """What a rewrite is called where changes are told."""
    function = rewrite.func if isinstance(rewrite, partial) else rewrite
    return function.__name__


def _infos(values: Iterable[ValueInfoProto], declared: Mapping[str, int]) -> tuple[TensorInfo, ...]:
    return tuple(_info(value, declared) for value in values)


def _info(value: ValueInfoProto, declared: Mapping[str, int]) -> TensorInfo:
    """The type that the model declares may be stored in another of the same size."""
    tensor = value.type.tensor_type
    element = declared.get(value.name) or tensor.elem_type
    return TensorInfo(value.name, static_shape(value.type) or (), helper.tensor_dtype_to_np_dtype(element))
