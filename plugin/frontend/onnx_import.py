"""Lowers a prepared ONNX model to linalg on tensors, with the weights as separate numpy arrays.

Initialisers never pass through MLIR text: they are imported as globals that name a parameter. The arrays are kept
beside the module until they are packed for the selected routines.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from sartor.codegen.mlir.iree_compiler import (
    WIDE_FLAGS,
    ParamData,
    WeightImporter,
    bytecode,
    ir,
    onnx_importer,
    translate_bytecode,
)
from sartor.codegen.mlir.operations import names_in
from sartor.codegen.mlir.rewriting.kept_nan import keep_nan
from sartor.codegen.subgraphs.expanded_calls import call_functions, expanded
from sartor.dialect_passes.join_parts import Part, join_parts
from sartor.dialect_passes.loop_rows import slice_rows
from sartor.errors import CompileError, UnsupportedModelError
from sartor.frontend.onnx_parts import cut_into_parts, first_refused
from sartor.onnx_model.graphs.graph import GraphEditor, rename_reads
from sartor.onnx_model.graphs.infer import may_learn_from_data, without_weights
from sartor.onnx_model.graphs.tensor_data import to_array
from sartor.onnx_model.graphs.walk import describe_node, graphs
from sartor.onnx_model.rewrites.number_types.stored_constants import with_narrow_doubles
from sartor.onnx_model.rewrites.number_types.unsigned_products import with_widened_operands
from sartor.onnx_model.rewrites.operator_sets.contrib.blocks.encoded_products import with_encoded_products
from sartor.onnx_model.rewrites.operator_sets.written_rows import with_written_rows
from sartor.onnx_model.rewrites.recurrence.recurrent_calls import with_recurrent_calls
from sartor.reference.refused_node import reason_alone

_LOG = logging.getLogger(__name__)
COMPILER = "IREE 3.13"
"""What refusals call the compiler whose limits they name."""

PARAMETER_SCOPE = "model"

# Shape operands and other small tensors stay in the graph, because importing many ops needs their values.
_INLINE_ELEMENTS = 16

_HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
_IMPORT_FLAGS = ("--iree-input-type=onnx",)
_NO_LOWERING = "failed to legalize operation 'torch.operator'"


@dataclass(frozen=True)
class ImportedModule:
    """Linalg on tensors, with the weights that its globals name.

    Attributes:
        bytecode: of MLIR; locations carry ONNX node names.
        weights: parameter name to array, in ONNX layout.
    """

    bytecode: bytes
    weights: dict[str, np.ndarray]


def _with_safe_names(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A copy whose initialisers are named ``w0, w1, …``: the importer changes other names, not always uniquely.

    The copy has the values of small ones only, and types of the others, which the importer does not need.
    """
    copy = without_weights(model)
    copy.graph.name = "main_graph"
    # Descriptions of constants, which need none, would describe what takes their names.
    constants = {tensor.name for tensor in copy.graph.initializer}
    described = [value_info for value_info in copy.graph.value_info if value_info.name not in constants]
    del copy.graph.value_info[:]
    copy.graph.value_info.extend(described)
    renamed = dict(zip([tensor.name for tensor in copy.graph.initializer], _free_names(copy.graph), strict=False))
    weights: dict[str, np.ndarray] = {}
    for tensor, original in zip(copy.graph.initializer, model.graph.initializer, strict=True):
        tensor.name = renamed[tensor.name]
        weights[tensor.name] = to_array(original)
        if tensor.data_type in _HALVES and tensor.int32_data:
            # The importer reads these types from bytes only, ONNX stores them as integers too.
            tensor.CopyFrom(numpy_helper.from_array(weights[tensor.name], tensor.name))
    rename_reads(copy.graph, renamed)
    for output in copy.graph.output:
        if output.name in renamed:
            # The importer requires that an output is a node's result.
            node = helper.make_node("Identity", [renamed[output.name]], [output.name], name=output.name)
            copy.graph.node.append(node)
    return copy, weights


def _free_names(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield ``w0, w1, …`` without the names of inputs, outputs and computed values, in bodies too."""
    taken = {
        name
        for inner in graphs(graph)
        for name in (
            *(value.name for value in (*inner.input, *inner.output)),
            *(output for node in inner.node for output in node.output),
        )
    }
    return (name for index in itertools.count() if (name := f"w{index}") not in taken)


def _to_torch_onnx(model: onnx.ModelProto) -> str:
    """The ``torch.operator`` form, one op per ONNX node, located by node name; types are inferred already."""
    context = ir.Context()
    info = onnx_importer.ModelInfo(model)
    module = info.create_module(context=context).operation
    settings = ParamData(
        param_bit_threshold=None,
        num_elements_threshold=_INLINE_ELEMENTS,
        params_scope=PARAMETER_SCOPE,
        data_dir=str(Path.cwd()),
        param_path="",
        input_index_threshold=None,
    )
    try:
        importer = WeightImporter.define_function(info.main_graph, module, settings)
        importer.import_all()
        call_functions(module)
        module.verify()
    except (onnx_importer.OnnxImportError, ir.MLIRError) as error:
        # The importer quotes nodes in several lines.
        raise UnsupportedModelError(f"the model cannot be imported: {' '.join(str(error).split())}") from None
    text: str = module.get_asm(enable_debug_info=True)
    return text


def _refusal(diagnostic: str, model: onnx.ModelProto, find: Callable[[], onnx.NodeProto | None]) -> str:
    """The sentence for what IREE said of a node, in ONNX's words instead of MLIR's.

    Args:
        diagnostic: of IREE.
        model: the prepared model, with the types of values.
        find: finds the node if the diagnostic names none.
    """
    nodes = {node.name: node for node in model.graph.node}
    named = (nodes.get(name) for name in names_in(diagnostic))
    node = next((candidate for candidate in named if candidate is not None), None)
    if node is None and (name_of_node := find()) is not None:
        node = nodes.get(name_of_node.name, name_of_node)
    if node is None:
        return f"the model cannot be lowered: {diagnostic.partition(chr(10))[0]}"
    _LOG.info("%s", diagnostic)
    if invalid := reason_alone(node, model):
        return f"{describe_node(node)} is not valid: {invalid.rstrip('.')}; export the model again"
    editor = GraphEditor(model.graph)
    read, written = (
        ", ".join(_described(name, editor) for name in names if name) for names in (node.input, node.output)
    )
    if _NO_LOWERING in diagnostic:
        reason, advice = f"{COMPILER} has no lowering for it", "replace the operator before exporting"
    else:
        reason, advice = (
            f"{COMPILER} rejects it",
            "make sure that these fit the operator, or replace it before exporting",
        )
    return f"{describe_node(node)} is not supported: {reason} from {read or 'nothing'} to {written}; {advice}"


def _described(name: str, editor: GraphEditor) -> str:
    """Element type and shape of a value, as in ``float32[1, ?, 8]``."""
    element, type_of_value = editor.element_type(name), editor.type(name)
    kind = helper.tensor_dtype_to_np_dtype(element).name if element else "an unknown type"
    dims = type_of_value.tensor_type.shape.dim if type_of_value is not None else ()
    return f"{kind}[{', '.join(str(size.dim_value) if size.HasField('dim_value') else '?' for size in dims)}]"


def import_model(model: onnx.ModelProto, *, wide: bool = False) -> ImportedModule:
    """Lower a prepared model (static shapes, opset 17 or newer) to linalg on tensors.

    Args:
        model: the prepared model.
        wide: whether float64 is computed in float64, and not in float32.

    Raises:
        UnsupportedModelError: if IREE cannot lower an ONNX op, which the message names.
    """
    stored = model if wide else with_narrow_doubles(model)
    passed = with_written_rows(with_encoded_products(with_recurrent_calls(with_widened_operands(stored))))
    renamed, weights = _with_safe_names(passed)
    flags = (*_IMPORT_FLAGS, *(WIDE_FLAGS if wide else ()))
    inferred = onnx.shape_inference.infer_shapes(renamed)
    if may_learn_from_data(inferred):
        inferred = onnx.shape_inference.infer_shapes(renamed, data_prop=True)
    find = partial(first_refused, inferred, partial(_is_refused, flags=flags))
    try:
        return ImportedModule(_keeping_nan(_lowered(inferred, flags)), weights)
    except CompileError as error:
        raise UnsupportedModelError(_refusal(str(error), model, find)) from None


def _keeping_nan(lowered: bytes) -> bytes:
    """A whole network whose bounds keep NaN, for its layers and its unsplit module alike."""
    module = ir.Module.parse(lowered, ir.Context())
    slice_rows(module)
    keep_nan(module)
    return bytecode(module.operation)


def _is_refused(model: onnx.ModelProto, flags: Sequence[str]) -> bool:
    try:
        _translated(model, flags)
    except (CompileError, UnsupportedModelError):
        return True
    return False


def _lowered(model: onnx.ModelProto, flags: Sequence[str]) -> bytes:
    """Linalg on tensors; a long model is lowered in parts, where that gives the same."""
    parts = cut_into_parts(model)
    if len(parts) > 1:
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            lowered = [*threads.map(partial(_lowered_part, flags=flags), parts)]
        inputs, outputs = ([value.name for value in values] for values in (model.graph.input, model.graph.output))
        joined = join_parts(lowered, inputs, outputs)
        if joined is not None:
            return joined
    return _translated(model, flags)


def _lowered_part(part: onnx.ModelProto, flags: Sequence[str]) -> Part:
    inputs, outputs = (tuple(value.name for value in values) for values in (part.graph.input, part.graph.output))
    return Part(_translated(part, flags), inputs, outputs)


def _translated(model: onnx.ModelProto, flags: Sequence[str]) -> bytes:
    return expanded(translate_bytecode(_to_torch_onnx(model), flags, to="input"))
