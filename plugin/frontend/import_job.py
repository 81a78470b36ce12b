"""Worker side of the front end: imports an untrusted file as layers, in a process that may crash or be killed."""

from __future__ import annotations

import hashlib
import math
import pickle
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto

from sartor.codegen.ir.target import Target
from sartor.codegen.mlir.machine import Flags, Machine, answers_about, get_ready
from sartor.devices import CPU
from sartor.dialect_passes.dump import Dumper
from sartor.errors import CompileError, SartorError
from sartor.frontend.asked_children import AskedChildren
from sartor.frontend.imported_model import ImportedModel, StoredIntegers
from sartor.frontend.kept_import import KeptImport
from sartor.frontend.layer_tensors import value_names
from sartor.frontend.layering import Splitting, layered_model, without_layers
from sartor.frontend.states import DeclaredStates, states_of
from sartor.onnx_model.graphs.graph import GraphEditor, optional_input
from sartor.onnx_model.graphs.held_data import holding, serialised
from sartor.onnx_model.graphs.infer import without_weights
from sartor.onnx_model.graphs.prepared import PreparedModel
from sartor.onnx_model.graphs.tensor_data import to_array
from sartor.onnx_model.graphs.walk import nodes
from sartor.onnx_model.operator_types.alike import WITH_BODIES
from sartor.onnx_model.preparing.prepare import prepare
from sartor.onnx_model.preparing.shapes import Shapes
from sartor.onnx_model.preparing.simplify import SimplifyProcess, simplify
from sartor.onnx_model.preparing.simplify_worker import seldom_collected
from sartor.onnx_model.preparing.table_rows import table_rows
from sartor.onnx_model.quantisation.channel_scales import share_channel_scales
from sartor.onnx_model.quantisation.equalised_products import Exponents, equalise_products
from sartor.onnx_model.quantisation.quantised_values import take_out_quantisation
from sartor.onnx_model.reading.load import read_model
from sartor.onnx_model.rewrites.number_types.dequantise_early import dequantises
from sartor.onnx_model.rewrites.number_types.widen_halves import widens_halves
from sartor.policies import Double, StatePolicy
from sartor.reference.random_inputs import USUAL, InputSampler, Style
from sartor.reference.sample_styles import choose_styles
from sartor.reference.tie_spread import TIE_SAMPLES, rounds, tie_spread
from sartor.reference.trusted.oracles.table import is_vouched_by_definitions
from sartor.runtime.driver.bound_input import Bindings
from sartor.runtime.driver.state import State
from sartor.tuning.kept.values import KeptValues
from sartor.tuning.workers.protocol import WorkerError
from sartor.tuning.workers.starting.copies import may_copy

_SAMPLE_SEED = 0
_DOUBLE_RECORD = "sartor.double"
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
_SIMPLIFYING: list[SimplifyProcess] = []


def get_going() -> None:
    """Begin what the first import needs, whatever the model: the process that simplifies it, and what the compiler says
    of this machine."""
    _SIMPLIFYING.append(SimplifyProcess(copies=may_copy()))
    get_ready(Target.create(CPU))


def run_import(
    path: Path,
    shapes: Shapes,
    dump: Path | None,
    directory: Path | None = None,
    target: Target | None = None,
    bindings: Bindings | None = None,
    asked: AskedChildren | None = None,
    exponents: Exponents | None = None,
    seconds: float = math.inf,
    double: Double = Double.F32,
    states: StatePolicy | None = None,
    simplifies: bool = True,
    widens: bool | None = None,
    kept: KeptValues | None = None,
    *,
    is_open: bool = False,
    has_layers: bool = True,
) -> ImportedModel | WorkerError:
    """Load, prepare, import and split a model.

    Args:
        path: ONNX file.
        shapes: input name to the shape that binds its dynamic dimensions.
        dump: where to write the module after every pass, or None.
        directory: for large data, so that other processes can map it; None keeps it in memory.
        target: decides which layers are split further; None for this machine's CPU.
        bindings: input name to its fixed value.
        asked: childnets that layers have on request; None for none.
        exponents: of channels of tensors to equalise before products; None for none.
        seconds: what the whole compilation may take from now.
        double: the type in which float64 is computed.
        states: which inputs and outputs are states; None for none.
        simplifies: whether onnxslim simplifies the model.
        widens: whether half precision is computed in float32; None as is best for the target.
        kept: imports of earlier compilations; None if none are to be used.
        is_open: whether layers of any size are made of it and of imports with other sizes.
        has_layers: whether it is split into layers; else it has neither these nor weights.
    """
    end = time.monotonic() + seconds
    splitting = Splitting(target or Target.create(CPU), asked or AskedChildren())
    widens = widens_halves(splitting.target.devices) if widens is None else widens
    fixed = _Fixed(
        shapes,
        bindings or {},
        exponents or {},
        double,
        states or StatePolicy(),
        simplifies,
        widens,
        is_open,
        has_layers,
    )
    try:
        with seldom_collected(), holding(), ThreadPoolExecutor(1) as beside:
            # Needed once the model is prepared, part of which another process does; whether it fails is seen then.
            beside.submit(get_ready, splitting.target)
            importing = partial(_imported, path, fixed, Dumper(dump), splitting, directory, beside, end)
            if kept is None or dump is not None or directory is None:
                imported = importing()
            else:
                # Each process has its own order of a set.
                asks = splitting.asked.pins, sorted(splitting.asked.named)
                # With little time, less is known of the model.
                settings = (fixed, repr(splitting.target), splitting.target.key, asks, math.isinf(seconds))
                imported = KeptImport(kept, path, directory, pickle.dumps(settings)).found_or(importing)
        return replace(imported, machines=_machines(splitting.target))
    except SartorError as error:
        return WorkerError(error)
    finally:
        while _SIMPLIFYING:
            # What was imported before needs no process that simplifies it.
            with _SIMPLIFYING.pop():
                pass


def _machines(target: Target) -> Mapping[Flags, Machine]:
    """What the compiler says of a target's CPUs; nothing if it rejects them, which is told where they are needed."""
    try:
        return answers_about(target)
    except CompileError:
        return {}


@dataclass(frozen=True)
class _Fixed:
    """What is decided about the model before it is prepared.

    Attributes:
        shapes, bindings: of inputs.
        exponents: of channels.
        double: the type in which float64 is computed.
        states: which inputs and outputs are states.
        simplifies: whether onnxslim simplifies it.
        widens: whether half precision is computed in float32.
        is_open: whether layers of any size are made of it.
        has_layers: whether it is split into layers.
    """

    shapes: Shapes
    bindings: Bindings
    exponents: Exponents
    double: Double
    states: StatePolicy
    simplifies: bool
    widens: bool
    is_open: bool
    has_layers: bool


def _imported(
    path: Path,
    fixed: _Fixed,
    dumper: Dumper,
    splitting: Splitting,
    directory: Path | None,
    beside: Executor,
    end: float,
) -> ImportedModel:
    read = _prepared(path, fixed, dumper)
    prepared, is_rounding = read.model, read.is_rounding
    asked = without_weights(prepared.model)
    sampler = InputSampler(asked)
    samples = sampler(_SAMPLE_SEED)
    nan_weights = tuple(tensor.name for tensor in prepared.model.graph.initializer if _has_nan(tensor))
    share_channel_scales(prepared.model)
    sources = _stored_integers(prepared.model)
    named = take_out_quantisation(prepared.model)
    saving = beside.submit(_saved, serialised(prepared.model), directory)
    # ONNX Runtime takes long to read a long model, and needs no interpreter for it.
    choosing = beside.submit(lambda: choose_styles(asked, saving.result()[0], end))
    if named:
        # Rounding to 8 bits does not commute with Winograd's method, whose childnets are the only ones on request.
        splitting = replace(splitting, asked=AskedChildren())
    if fixed.has_layers:
        layered = layered_model(prepared, dumper, splitting, directory, fixed.double)
    else:
        layered = without_layers(prepared, directory)
    names = dict(value_names(prepared.model, layered.graph))
    saved, sha256 = saving.result()
    chosen = choosing.result()
    if chosen.styles[0] != USUAL:
        samples = sampler(_SAMPLE_SEED, chosen.styles[0])
    return ImportedModel(
        path=path,
        graph=layered.graph,
        weights=layered.weights,
        unsplit=layered.unsplit,
        prepared=saved,
        skeleton=asked.SerializeToString(deterministic=True),
        sha256=sha256,
        samples=samples,
        node_count=len(prepared.model.graph.node),
        ranges={ref: named[name] for ref, name in names.items() if name in named},
        is_quantised=bool(named),
        integers={name: sources[name] for name in named if name in sources},
        names=names,
        styles=chosen.styles,
        doubts=chosen.doubts,
        is_hurried=chosen.is_hurried,
        nan_weights=nan_weights,
        is_rounding=is_rounding,
        bound=prepared.bound,
        tie_spread=_drawn_tie_spread(saved, asked, chosen.styles) if is_rounding else 0.0,
        external=read.external,
        exponents={name: tuple(exponent) for name, exponent in fixed.exponents.items()},
        has_definitions=read.has_definitions,
        noise=prepared.noise,
        states=read.states,
        is_simplified=read.is_simplified,
        rows=read.rows,
    )


@dataclass(frozen=True)
class _Read:
    """The prepared model, and what the original one says: see ``ImportedModel``."""

    model: PreparedModel
    is_rounding: bool
    has_definitions: bool
    external: tuple[Path, ...]
    states: tuple[State, ...]
    is_simplified: bool
    rows: Mapping[str, int]


def _as_it_is(_: ModelProto) -> tuple[str, ...]:
    """Simplify nothing."""
    return ()


def _prepared(path: Path, fixed: _Fixed, dumper: Dumper) -> _Read:
    with _SIMPLIFYING.pop() if _SIMPLIFYING else SimplifyProcess() as process:
        loaded, external = read_model(path)
        dumper.write_model("loaded.onnx", partial(serialised, loaded))
        declared = DeclaredStates.of(loaded, fixed.states, fixed.bindings)
        simplifier = partial(simplify, process=process) if fixed.simplifies else _as_it_is
        bindings, widens = declared.bindings, fixed.widens
        prepared = prepare(loaded, fixed.shapes, simplifier, bindings, widens=widens, is_open=fixed.is_open)
        states = states_of(declared, prepared.inputs, prepared.outputs, fixed.states)
        if fixed.double is Double.F64:
            # In the model's hash, as layers are others.
            prepared.model.metadata_props.add(key=_DOUBLE_RECORD, value=fixed.double)
        equalise_products(prepared.model, fixed.exponents)
        dumper.write_model("prepared.onnx", partial(serialised, prepared.model))
        dumper.write_model("rewrites.txt", lambda: [f"{change}\n".encode() for change in prepared.changes])
        is_simplified = fixed.simplifies and not process.has_failed
        definitions = is_vouched_by_definitions(loaded)
        # What is not computed in every call may be taken by any number where it is not.
        rows = {} if any(node.op_type in WITH_BODIES for node in nodes(loaded)) else table_rows(prepared.model)
        return _Read(prepared, rounds(loaded), definitions, external, states, is_simplified, rows)


def _stored_integers(model: ModelProto) -> dict[str, StoredIntegers]:
    """The integers for which dequantised tensors stand, by name of these, where one scale and zero point are known."""
    editor = GraphEditor(model.graph)
    integers: dict[str, StoredIntegers] = {}
    for node in filter(dequantises, model.graph.node):
        scale = editor.constant(node.input[1])
        zero = editor.constant(node.input[2]) if optional_input(node, 2) else np.zeros((), np.uint8)
        if scale is not None and zero is not None and scale.size == zero.size == 1:
            integers[node.output[0]] = StoredIntegers(node.input[0], float(scale.item()), int(zero.item()))
    return integers


def _drawn_tie_spread(saved: bytes | Path, asked: ModelProto, styles: Sequence[Style]) -> float:
    """The relative error on drawn samples of all styles by rounding ties to the other side."""
    sampler = InputSampler(asked)
    drawn = [sampler(seed, style) for seed in range(TIE_SAMPLES) for style in styles]
    return tie_spread(saved, drawn)


def _has_nan(tensor: TensorProto) -> bool:
    """Whether a weight holds NaN; the smallest element of an array with NaN is NaN."""
    return tensor.data_type in _FLOATS and math.prod(tensor.dims) > 0 and bool(np.isnan(np.min(to_array(tensor))))


def _saved(pieces: Iterable[bytes | memoryview], directory: Path | None) -> tuple[bytes | Path, str]:
    """Join a serialised model; returns its bytes, or its file in ``directory`` if given, and its SHA-256."""
    if directory is None:
        data = b"".join(pieces)
        return data, hashlib.sha256(data).hexdigest()
    digest = hashlib.sha256()
    path = directory / "prepared.onnx"
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        for piece in pieces:
            digest.update(piece)
            file.write(piece)
    return path, digest.hexdigest()
