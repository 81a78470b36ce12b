"""A module that keeps caches which grow: its calls, what sessions do with them, and how faults in them are seen."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from sartor.cli.commands.generate import generate_tokens
from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Fusion, LayerKind, Task
from sartor.codegen.ir.machines.core import WIDE
from sartor.codegen.ir.sizes.dims import Symbol
from sartor.codegen.ir.sizes.fit import Fit
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected, Variant, choices_of
from sartor.codegen.kernels.attention.head_code import HeadCode
from sartor.codegen.kernels.attention.open_attention import MOST_FEW
from sartor.codegen.linking import stitching
from sartor.codegen.linking.stitching import Stitched
from sartor.codegen.routine_registry import fused_routines, routines_for
from sartor.codegen.routines.open_sizes.attention import OpenAttentionKernel
from sartor.codegen.routines.open_sizes.blocked_attention import BlockedAttentionKernel
from sartor.costing.listing import list_candidates
from sartor.dialect_passes.fuse_layers import apply_fusions
from sartor.dialect_passes.opening.open_graph import open_graph
from sartor.errors import UsageError
from sartor.frontend.import_job import run_import
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.states import cache_pairs
from sartor.open_sizes.caches import CutFile, Cutting, cut_file
from sartor.open_sizes.calls import usual_calls
from sartor.policies import StatePolicy
from sartor.profiling import cache_check
from sartor.profiling.cache_check import CachingModel, verify_caches
from sartor.profiling.state_check import CALLS, CallErrors
from sartor.profiling.verify_job import Check
from sartor.runtime.driver.bound_input import BoundInput
from sartor.runtime.driver.signature import TensorSpec
from sartor.runtime.generation.generate import generate
from sartor.runtime.manifest import CACHES_FORMAT, read_manifest
from sartor.runtime.session import Session
from sartor.samples.given_samples import HeldSamples
from sartor.settings.size_range import OpenShapes, SizeRange
from sartor.tuning.cost_tables.tables import tuned_cases
from sartor.tuning.errors.error_measures import RELATIVE
from sartor.tuning.networks import build_job
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork
from sartor.tuning.records.signature import open_sizes
from sartor.tuning.search.shipped.foreseen import Foreseen
from sartor.tuning.search.shipped.likeness import kin_in, predicted_seconds, shipped_guide
from sartor.tuning.search.shipped.times import shipped_samples
from sartor.tuning.workers.protocol import WorkerError
from tests.cache_models import POSITIONS, Decoder
from tests.codegen.linking.test_stitching import TARGET, build, split, variants_in

Edit = Callable[[str], str]
WRONG = 1e-2
CACHE = "past_key_values.0.key"
GIVEN = ["logits", "present.0.key", "present.0.value"]


def cut(path: Path, given: OpenShapes, folder: Path) -> CutFile:
    folder.mkdir()
    cutting = cut_file(path, StatePolicy(finds=True), given, folder)
    assert isinstance(cutting, Cutting), cutting
    assert cutting.file is not None, cutting
    return cutting.file


def imported(decoder: Decoder, folder: Path, *, tokens: int = 0) -> ImportedModel:
    """A decoder for any number of positions, without its caches; with several ``tokens`` a call, if any."""
    path = folder / "decoder.onnx"
    onnx.save(decoder.model(), path)
    file = cut(path, {}, folder / "cut")
    if tokens:
        shapes_of = {
            name: (shape[0], tokens) if len(shape) == 2 else shape for name, shape in file.cut.prompts[0].items()
        }
        file = cut(path, shapes_of, folder / "prompt")
    (least,) = {size.least for shape in file.cut.shapes.values() for size in shape if isinstance(size, SizeRange)}
    fit = Fit.of([Symbol("positions", least, decoder.positions)])
    models = []
    for size in (decoder.positions, fit.twin[0]):
        shapes = {
            name: tuple(size if isinstance(each, SizeRange) else each for each in shape)
            for name, shape in file.cut.shapes.items()
        }
        model = run_import(file.path, shapes, None)
        assert isinstance(model, ImportedModel), model
        models.append(model)
    one, other = ((each.graph, each.weights) for each in models)
    graph = open_graph(one, other, fit)
    return replace(models[0], graph=graph, caches=file.cut.caches)


def with_turned_keys(graph: LayerGraph) -> list[Fusion]:
    """The attentions that begin with what turns their keys, which have a column for each; others turn queries first."""
    return [each for each in graph.fusions if _turns_keys(each.layer.task)]


def _turns_keys(task: Task) -> bool:
    first, second = (stage.task for stage in task.stages[:2])
    return first.kind is not LayerKind.CONTRACTION and first.results[0].shape[-1] == second.results[0].shape[-1]


def kernel_of(task: Task) -> Implementation | None:
    """The first kernel that computes an attention; not all that transposes queries or results is part of one."""
    for kernel in (OpenAttentionKernel(), BlockedAttentionKernel()):
        parameters = choices_of(kernel, task, TARGET)
        found = Rejected("") if isinstance(parameters, Rejected) else kernel.build(task, parameters[0], TARGET)
        if isinstance(found, Implementation):
            rows = task.stages[1].task.results[0].shape[-2]
            assert isinstance(kernel, OpenAttentionKernel) is (rows <= MOST_FEW)
            return found
    return None


def with_kernels(model: ImportedModel) -> SplitNetwork:
    """The network with attentions as kernels, which read keys and values where they are kept."""
    kernels = {each.layer.name: kernel_of(each.layer.task) for each in with_turned_keys(model.graph)}
    implementations = {name: each for name, each in kernels.items() if each is not None}
    assert implementations
    graph = apply_fusions(model.graph, [*implementations])
    # Of fusions that have layers in common the longest is applied.
    applied = {layer.name for layer in graph.layers} & implementations.keys()
    variants = variants_in(replace(model, graph=graph), None)
    variants |= {name: Variant("attention", "cpu", "f32", implementations[name]) for name in applied}
    return SplitNetwork(graph, variants)


def built(model: ImportedModel, folder: Path, net: SplitNetwork | None = None) -> Path:
    net, module = replace(net or split(model), caches=cache_pairs(model)), folder / "net.vmfb"
    said = {"caches": model.caches, "sizes": open_sizes(model.graph.inputs), "format": CACHES_FORMAT}
    build(model, net, NetFiles(module, None), **said)
    return module


def checked(
    model: ImportedModel, module: Path, source: str = "decoder.onnx", most: int = POSITIONS, **said: Any
) -> CallErrors:
    tokens = [{**model.samples, "input_ids": np.array([[token]], np.int64)} for token in (3, 7, 1, 9)]
    check = Check(
        files=NetFiles(module, None),
        values=(model.graph.inputs, model.graph.outputs),
        models=(model.path, model.prepared),
        samples=HeldSamples(tuple(tokens)),
        count=4,
        measure=RELATIVE,
        narrow=False,
        device="cpu",
        threads=1,
        **said,
    )
    caching = CachingModel(model.path.parent.parent / source, model.caches, most)
    found = verify_caches(check, caching)
    if isinstance(found, WorkerError):
        raise found.error
    assert len(found.errors) >= found.before_reset + CALLS[1]
    return found


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ImportedModel:
    return imported(Decoder(layers=1, width=20, has_mask=True), tmp_path_factory.mktemp("decoder"))


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> ImportedModel:
    """Rows of 40 bytes, which are not aligned, heads that share no keys, and positions that follow from the caches."""
    return imported(Decoder(layers=1, heads=2, width=5, counts=True), tmp_path_factory.mktemp("odd"))


@pytest.fixture(scope="module")
def module(model: ImportedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(model, tmp_path_factory.mktemp("net"), with_kernels(model))


def feeds(token: int, before: int) -> Mapping[str, np.ndarray]:
    ids, positions = (np.array([[each]], np.int64) for each in (token, before))
    return {"input_ids": ids, "position_ids": positions, "attention_mask": np.ones((1, before + 1), np.int64)}


def logits(session: Session, token: int, before: int) -> np.ndarray:
    (found,) = session.run(None, feeds(token, before))
    return found


def test_a_right_module_is_right_in_all_calls(model: ImportedModel, module: Path) -> None:
    found = checked(model, module)
    assert max(found.errors) < 1e-5
    assert found.before_reset == POSITIONS, "calls that fill the caches"
    assert replace(found, errors=(*found.errors[:-1], 1.0)).sentence.startswith("it is that of call 3 after a reset")


def test_inputs_with_a_fixed_value_are_given_to_the_users_model(model: ImportedModel, module: Path) -> None:
    path = model.path.parent.parent / "scaled.onnx"
    scaled = onnx.load(path.with_name("decoder.onnx"))
    scaled.graph.node[-1].output[0] = "unscaled"
    scaled.graph.node.append(onnx.helper.make_node("Mul", ["unscaled", "factor"], ["logits"]))
    scaled.graph.input.append(onnx.helper.make_tensor_value_info("factor", onnx.TensorProto.FLOAT, [1]))
    onnx.save(scaled, path)
    for factor, is_right in ((1.0, True), (2.0, False)):
        bound = (BoundInput(TensorSpec("factor", "float32", (1,)), (factor,)),)
        assert (max(checked(model, module, path.name, bound=bound).errors) < 1e-5) == is_right


def test_tokens_of_a_prompt_do_not_repeat_those_of_few_samples() -> None:
    """A row in the place of one with the same token would not be seen."""
    tokens = cache_check._drawn(np.array([3, 7, 1, 95]), (1, 128), (0, "tokens"))
    assert tokens.dtype == np.int64
    assert tokens.min() >= 1
    assert tokens.max() <= 95
    rows = np.lib.stride_tricks.sliding_window_view(tokens[0], 4)
    assert len(np.unique(rows, axis=0)) == len(rows)
    values = np.array([0.5, -2.0, 8.0], np.float32)
    assert {*cache_check._drawn(values, (64,), (1, "x")).tolist()} == {*values.tolist()}
    assert cache_check._drawn(values, (64,), (1, "x")).dtype == np.float32


def test_inputs_of_the_same_range_and_shape_differ() -> None:
    """One that is read in the place of the other would not be seen."""
    drawn = [cache_check._drawn(np.arange(96), (1, 16), (0, name)) for name in ("input_ids", "token_type_ids")]
    assert (drawn[0] != drawn[1]).mean() > 0.5


def test_a_call_for_which_there_is_no_room_is_refused(model: ImportedModel, module: Path) -> None:
    with pytest.raises(UsageError, match="appends 1 positions to caches that have room for 0"):
        checked(model, module, most=0)


def off_by_one(text: str) -> str:
    """The last cache has its rows written over those of the call before."""
    edited, count = re.subn(r"(flow\.tensor\.update %\w+, %held1\[)%before, ", r"\1%length_less, ", text)
    assert count == 1
    return edited.replace(
        "%new = arith.constant 1 : index",
        "%new = arith.constant 1 : index\n%none_c = arith.constant 0 : index\n"
        "%some = arith.cmpi ne, %before, %none_c : index\n%less = arith.index_castui %some : i1 to index\n"
        "%length_less = arith.subi %before, %less : index",
    )


def not_reset(text: str) -> str:
    """Old positions live on after a reset."""
    edited, count = re.subn(r"util\.global\.store %none, @caches\$length : i64\n", "", text)
    assert count == 1
    return edited


def not_counted(text: str) -> str:
    """All tokens have the first position."""
    edited, count = re.subn(
        r"(%t\d+ = flow\.tensor\.splat) %before_i64", r"%first = arith.constant 0 : i64\n\1 %first", text
    )
    assert count == 1
    return edited


@pytest.mark.parametrize(("edit", "first_wrong"), [(off_by_one, 1), (not_reset, CALLS[0]), (not_counted, 1)])
def test_a_fault_in_the_code_of_caches_is_seen(
    edit: Edit, first_wrong: int, odd: ImportedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stitch(*arguments: Any) -> Stitched:
        right = stitching.stitch(*arguments)
        return replace(right, text=edit(right.text))

    monkeypatch.setattr(build_job, "stitch", stitch)
    # Caches of which only the beginning is filled.
    errors = checked(odd, built(odd, tmp_path), most=64).errors
    assert max(errors[:first_wrong]) < 1e-5
    assert errors[first_wrong] > WRONG


def one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row behind those that live, which an earlier sequence may have written, counts as a key."""
    monkeypatch.setattr(HeadCode, "keys", property(lambda head: head.asm.add(head.asm.size(head.form.extents[-1]), 1)))


def values_of_the_next_row(monkeypatch: pytest.MonkeyPatch) -> None:
    right = HeadCode.mixed

    def mixed(head: HeadCode, keys: tuple[Any, Any], *others: Any) -> Any:
        return right(head, (head.asm.add(keys[0], 1), keys[1]), *others)

    monkeypatch.setattr(HeadCode, "mixed", mixed)


@pytest.mark.parametrize("fault", [one_more, values_of_the_next_row])
def test_a_kernel_that_reads_another_row_is_seen(
    fault: Callable[[pytest.MonkeyPatch], None], model: ImportedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    module = built(model, tmp_path, with_kernels(model))
    # No call reaches the end of the buffers, behind which such a kernel would read.
    assert min(checked(model, module, most=64).errors) > WRONG


def test_attentions_of_one_operator_append_and_read_as_others_do(tmp_path: Path) -> None:
    fused = imported(Decoder(width=16, has_mask=True, is_fused=True), tmp_path)
    assert len(fused.caches) == 4
    assert max(checked(fused, built(fused, tmp_path, with_kernels(fused))).errors) < 1e-5


@pytest.mark.parametrize("is_fused", [False, True])
def test_a_kernel_that_reads_keys_where_the_cache_has_them_is_predicted_to_be_faster(
    is_fused: bool, tmp_path: Path
) -> None:
    decoder = Decoder(layers=1, heads=8, width=64, positions=1024, has_mask=True, is_fused=is_fused)
    graph = imported(decoder, tmp_path).graph
    (turned,) = with_turned_keys(graph)
    calls = usual_calls(graph, [Symbol("positions", 1, decoder.positions)])
    layers = tuple(layer for layer in graph.layers if layer.name in turned.members)
    graph = replace(graph, layers=layers, fusions=(turned,), calls=calls)
    for level in ("x86-64-v3", "x86-64-v4"):
        guide, seen = shipped_guide(level, 1), kin_in(shipped_samples(level, 1))
        narrow, target = Foreseen(guide, WIDE, seen), Target.create("cpu", level)
        variants = list_candidates(graph, routines_for(frozenset()), target, fused_routines(), narrow=narrow).variants
        best = {}
        for case in tuned_cases(graph, variants):
            seconds = predicted_seconds(case.facts, [variant.described for variant in case.variants], guide, seen, WIDE)
            best[case.key] = min(zip(seconds, [variant.routine for variant in case.variants], strict=True))
        fused, routine = best[turned.layer.task.key]
        assert routine == "open_attention"
        assert fused < sum(best[layer.task.key][0] for layer in layers)


def test_calls_of_a_decoder_that_branches_end(tmp_path: Path) -> None:
    """A wait came before what it waits for, as in functions of other modules."""
    branching = imported(Decoder(layers=1, heads=2, width=5, branches=True), tmp_path)
    assert max(checked(branching, built(branching, tmp_path), most=64).errors) < 1e-5


def test_caches_are_saved_restored_and_forked(module: Path) -> None:
    with Session(module, threads=1) as session:
        assert next((state.name, state.shape) for state in session.get_states()) == (CACHE, [1, 2, None, 20])
        assert [each.name for each in session.get_inputs()] == ["input_ids", "position_ids", "attention_mask"]
        assert session.save()[CACHE].shape == (1, 2, 0, 20)
        for number, token in enumerate((1, 2, 3)):
            logits(session, token, number)
        saved = session.save()
        assert saved[CACHE].shape == (1, 2, 3, 20)
        right = logits(session, 4, 3)
        assert session.cached_positions == 4
        other = session.fork()
        assert other.cached_positions == 0
        other.restore(saved)
        np.testing.assert_array_equal(logits(other, 4, 3), right)
        session.reset()
        session.restore(session.save())
        with pytest.raises(UsageError, match="is not the number of positions"):
            logits(session, 1, 3)
        session.restore(saved)
        np.testing.assert_array_equal(logits(session, 4, 3), right)
        for wrong, said in (
            ({**saved, CACHE: saved[CACHE][:, :, :2]}, "different lengths"),
            ({name: np.zeros((1, 2, POSITIONS + 1, 20), np.float32) for name in saved}, "25 positions; there is room"),
            ({name: np.zeros((1, 3, 1, 20), np.float32) for name in saved}, "expects"),
        ):
            with pytest.raises(UsageError, match=said):
                session.restore(wrong)
        assert session.cached_positions == 4


def test_a_call_beyond_the_bound_is_refused_and_leaves_the_caches(module: Path) -> None:
    with Session(module, threads=1) as session:
        for number in range(POSITIONS):
            right = logits(session, 5, number)
        saved = session.save()
        with pytest.raises(UsageError, match=f"full: there is room for {POSITIONS} positions; .*reset"):
            session.run(None, {**feeds(5, POSITIONS), "position_ids": np.array([[POSITIONS - 1]])})
        with pytest.raises(UsageError, match=f"input 'position_ids' has {POSITIONS}, and the model's table has"):
            logits(session, 5, POSITIONS)
        np.testing.assert_array_equal(session.save()[CACHE], saved[CACHE])
        assert np.isfinite(right).all()


def test_what_a_file_with_caches_says(module: Path) -> None:
    assert read_manifest(module).described_states[0] == (
        f"present.0.key -> {CACHE}: float32[1, 2, ?, 20], grows to {POSITIONS}"
    )


def test_callers_may_pass_the_caches(module: Path) -> None:
    with Session(module, threads=1) as session, Session(module, threads=1, keep_states=False) as passing:
        assert [each.name for each in passing.get_inputs()][:3] == ["input_ids", "position_ids", "attention_mask"]
        assert {each.name: each.shape for each in passing.get_inputs()}[CACHE] == [1, 2, None, 20]
        assert {each.name: each.shape for each in passing.get_outputs()}["present.0.key"] == [1, 2, None, 20]
        held = session.save()
        for before, token in enumerate((5, 3, 8)):
            right = logits(session, token, before)
            given = dict(zip(GIVEN, passing.run(GIVEN, {**feeds(token, before), **held}), strict=True))
            np.testing.assert_array_equal(given["logits"], right)
            held = {name: given[name.replace("past_key_values", "present")] for name in held}
        np.testing.assert_array_equal(held[CACHE], session.save()[CACHE])
        # Nothing is kept, and lengths are checked.
        with pytest.raises(UsageError, match="the size of an input is not the number of positions"):
            passing.run(None, {**feeds(5, 4), **held})
        with pytest.raises(UsageError, match="caches have different lengths"):
            passing.run(None, {**feeds(5, 3), **held, CACHE: held[CACHE][:, :, :2].copy()})
        with pytest.raises(UsageError, match="keeps no states"):
            passing.save()


def test_tokens_are_generated_from_what_the_session_holds(module: Path) -> None:
    with Session(module, threads=1) as session:
        found = list(generate(session, [1, 2, 3], 5))
        session.reset()
        expected, tokens = list[int](), [1, 2, 3]
        for before in range(7):
            scores = logits(session, tokens[before], before)[0, -1]
            if before >= 2:
                tokens.append(int(scores.argmax()))
                expected.append(tokens[-1])
        assert found == expected
        session.reset()
        first = generate(session, [1, 2], 4)
        assert next(first) == next(generate(session.fork(), [1, 2], 1))
        saved = session.save()
        assert saved[CACHE].shape[2] == 2
        session.reset()
        stopped = list(generate(session, [1, 2, 3], 5, stop_tokens=found[2:3]))
        assert stopped == found[: found.index(found[2])]
        session.reset()
        drawn = [list(generate(session.fork(), [1], 6, temperature=1.5, seed=4)) for _ in range(2)]
        assert drawn[0] == drawn[1]
        with pytest.raises(UsageError, match=f"full, with {POSITIONS} positions of {POSITIONS}"):
            list(generate(session, [1] * POSITIONS, 2))


def test_a_command_generates_tokens_and_tells_how_long_they_took(
    module: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generate_tokens(module, "3,7 1", max_new_tokens=5, as_json=True)
    found = json.loads(capsys.readouterr().out)
    with Session(module, threads=1) as session:
        assert found["tokens"] == list(generate(session, [3, 7, 1], 5))
    assert found["first_token_seconds"] > 0
    assert found["tokens_per_second"] > 0
    generate_tokens(module, "3 7 1", max_new_tokens=5)
    shown = capsys.readouterr()
    assert shown.out.strip() == ",".join(map(str, found["tokens"]))
    assert re.search(r"5 tokens, the first after [0-9,.]+ ms, then [0-9,.]+ a second", shown.err)
    assert "warning" not in shown.err
    generate_tokens(module, "3", max_new_tokens=1, top_k=2, seed=0)
    shown = capsys.readouterr()
    assert "whatever is given by --top-k, --seed" in shown.err
    assert "1 token, the first after" in shown.err
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_text(json.dumps({"other": 1}))
    with pytest.raises(UsageError, match="'hello' is no list of tokens"):
        generate_tokens(module, "hello")
    with pytest.raises(UsageError, match=r"needs the package tokenizers|is no tokenizer\.json"):
        generate_tokens(module, "hello", tokenizer=tokenizer)
