"""Modules that keep states, and caches that are scattered to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from benchmarks import zoo
from sartor.artifact import Artifact
from sartor.config import CompileConfig
from sartor.errors import UsageError
from sartor.frontend.states import state_pairs
from sartor.pipeline import compile_model
from sartor.policies import StatePolicy
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.signature import Array
from sartor.runtime.manifest import STATES_FORMAT, read_manifest
from sartor.runtime.output_error import relative_error
from sartor.runtime.session import Session
from sartor.settings.state_patterns import StatePattern
from sartor.tuning.networks.build_job import NetFiles
from tests.codegen.linking.test_stitching import build, split
from tests.importing import imported_model
from tests.plugin.calling import assert_refused, call, parsed
from tests.state_models import recurrent

START = (0.5, -0.25, 0.125, 0, 0.5, 0.25, -0.5, 0.75)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "recurrent.onnx"
    onnx.save(recurrent(), path)
    return path


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> CompileConfig:
    database = tmp_path_factory.mktemp("db") / "tuning.db"
    return CompileConfig(threads=1, jobs=1, database=database, time_budget=0)


@pytest.fixture(scope="module")
def artifact(model: Path, config: CompileConfig, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """A file with a declared state, which begins with what is bound, and one that is found."""
    declared = replace(config, states=(StatePattern("hn", "h"),), bindings={"h": START})
    assert declared.fixed == {}
    return compile_model(model, tmp_path_factory.mktemp("out") / "net.vmfb", declared)


def follow(session: Session, model: Path, states: dict[str, str], calls: int) -> float:
    """The largest error of several calls beside a reference whose states are passed by hand."""
    random, worst = np.random.default_rng(0), 0.0
    reference, names = ReferenceModel(model, threads=1), [each.name for each in onnx.load(model).graph.output]
    held = session.save()
    (free,) = session.get_inputs()
    for _ in range(calls):
        feeds = {free.name: random.standard_normal([size or 0 for size in free.shape]).astype(np.float32)}
        right = dict(zip(names, reference({**feeds, **held}), strict=True))
        found = session.run(None, feeds)
        expected = [right[output.name] for output in session.get_outputs()]
        held = {name: right[output] for name, output in states.items()}
        saved = session.save()
        worst = max(worst, relative_error([*found, *saved.values()], [*expected, *(held[name] for name in saved)]))
    return worst


def test_states_are_kept_and_begin_again(artifact: Artifact, model: Path) -> None:
    assert read_manifest(artifact.path).described_states == [
        "hn -> h: float32[1, 1, 8], begins with 0.5,-0.25,0.125,0,0.5,0.25,-0.5,0.75",
        "cn -> c: float32[1, 1, 8], begins with zeros",
    ]
    with Session(artifact.path, threads=1) as session:
        for _ in range(2):
            begun = session.save()
            np.testing.assert_array_equal(np.concatenate([begun["h"].ravel(), begun["c"].ravel()]), [*START, *[0] * 8])
            assert follow(session, model, {"h": "hn", "c": "cn"}, 6) < 1e-5
            session.reset()


def test_commands_tell_of_states(artifact: Artifact, model: Path) -> None:
    assert parsed(call("sartor", "inspect", artifact.path, "--json"))["states"][0] == {
        "input": "h",
        "output": "hn",
        "start": [*START],
    }
    assert "cn -> c: float32[1, 1, 8], begins with zeros" in call("sartor", "inspect", artifact.path).stdout
    kept = parsed(call("sartor", "run", artifact.path, "--json"))
    assert [each["name"] for each in kept["outputs"]] == ["y"]
    passed = parsed(call("sartor", "run", artifact.path, "--no-state", "--input", "h=zeros", "--json"))
    assert [each["name"] for each in passed["outputs"]] == ["y", "hn", "cn"]
    refused = call("sartor", "run", artifact.path, "--input", "h=zeros")
    assert_refused(refused, 2, "'h' is a state that", "--no-state")
    assert call("sartor", "compare", artifact.path, "--vs", model).returncode == 0


def test_what_is_no_state_is_refused(model: Path, tmp_path: Path) -> None:
    arguments = [model, "-o", tmp_path / "net.vmfb", "--tuning-db", tmp_path / "t.db"]
    assert_refused(call("compile-to-vmfb", *arguments, "--state", "hm=h"), 2, "no output 'hm'", "'y', 'hn', 'cn'")
    assert_refused(call("compile-to-vmfb", *arguments, "--state", "hn=h", "--no-state"), 2, "leave one of the two out")
    assert_refused(call("compile-to-vmfb", *arguments, "--state", "hn"), 2, "expected OUTPUT=INPUT")
    shapes = ["--shape", "x=3,1,6", "--shape", "x=4,1,6"]
    assert_refused(
        call("compile-to-vmfb", *arguments, *shapes, "--state", "hn=h"), 2, "not kept in a file for several shapes"
    )
    with pytest.raises(UsageError, match="on one device of this machine only"):
        CompileConfig(target="cpu,vulkan", states=("hn=h",))  # type: ignore[arg-type]
    assert not (tmp_path / "net.vmfb").exists()


def test_a_detector_of_speech_keeps_its_states_with_weights_beside_it(tmp_path: Path) -> None:
    path = zoo.write("vad_lstm", tmp_path)
    imported = imported_model(path, states=StatePolicy((StatePattern.parse("next_*=*"),)))
    states = {state.input: state.output for state in imported.states}
    assert states == {f"{name}_{layer}": f"next_{name}_{layer}" for layer in range(2) for name in ("hidden", "memory")}
    files = NetFiles(tmp_path / "net.vmfb", tmp_path / "net.irpa")
    net = replace(split(imported), states=state_pairs(imported))
    build(imported, net, files, states=imported.states, format=STATES_FORMAT)
    with Session(files.module, threads=2, parameters=files.parameters) as session, session.fork() as other:
        for each in (session, other):
            assert follow(each, path, states, 3) < 1e-4


_HEADS, _GROUPS, _WIDTH, ROOM, _WORDS = 4, 2, 8, 6, 11
_DEPTH = _HEADS * _WIDTH
_CACHES = ("past_key_values.0.key", "past_key_values.0.value")


def decoder() -> ModelProto:
    """A layer over buffers with room for some positions."""
    random, held, nodes = np.random.default_rng(0), list[TensorProto](), list[NodeProto]()

    def hold(array: Any) -> str:
        held.append(numpy_helper.from_array(np.asarray(array), f"held_{len(held)}"))
        return held[-1].name

    def weight(rows: int, columns: int) -> str:
        return hold((random.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32))

    def add(operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        name = output or f"{operator.lower()}_{len(nodes)}"
        nodes.append(helper.make_node(operator, inputs, [name], name=f"n{len(nodes)}", **attributes))
        return name

    def by_head(x: str, count: int) -> str:
        split = add("Reshape", add("MatMul", x, weight(_DEPTH, count * _WIDTH)), hold([1, 1, count, _WIDTH]))
        return add("Transpose", split, perm=[0, 2, 1, 3])

    place = add("Gather", weight(ROOM, _DEPTH), add("Unsqueeze", "write_indices", hold([1])))
    x = add("Add", add("Gather", weight(_WORDS, _DEPTH), "input_ids"), place)
    query = by_head(x, _HEADS)
    caches = [
        add(
            "TensorScatter",
            cache,
            by_head(x, _GROUPS),
            "write_indices",
            output=cache.replace("past_key_values", "present"),
            axis=2,
        )
        for cache in _CACHES
    ]
    context = add("Attention", query, *caches, "", "", "", "nonpad_kv_seqlen")
    flat = add("Reshape", add("Transpose", context, perm=[0, 2, 1, 3]), hold([1, 1, _DEPTH]))
    add("MatMul", flat, weight(_DEPTH, _WORDS), output="logits")
    numbers = {"input_ids": (1, 1), "write_indices": (1,), "nonpad_kv_seqlen": (1,)}
    shape = (1, _GROUPS, ROOM, _WIDTH)
    graph = helper.make_graph(
        nodes,
        "decoder",
        [
            *(helper.make_tensor_value_info(name, TensorProto.INT64, dims) for name, dims in numbers.items()),
            *(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in _CACHES),
        ],
        [
            helper.make_tensor_value_info("logits", TensorProto.FLOAT, (1, 1, _WORDS)),
            *(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in caches),
        ],
        held,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)


def feeds(place: int) -> dict[str, Array]:
    return {
        "input_ids": np.array([[3 * place % _WORDS]]),
        "write_indices": np.array([place]),
        "nonpad_kv_seqlen": np.array([place + 1]),
    }


def test_buffers_are_kept_and_rows_beyond_them_refused(tmp_path: Path) -> None:
    path, config = tmp_path / "decoder.onnx", CompileConfig(threads=1, jobs=1, time_budget=0)
    onnx.save(decoder(), path)
    made = compile_model(path, tmp_path / "decoder.vmfb", config)
    reference = ReferenceModel(path, threads=1)
    empty = np.zeros((1, _GROUPS, ROOM, _WIDTH), np.float32)
    with Session(made.path, threads=1) as session:
        assert {state.name for state in session.get_states()} == {*_CACHES}
        for _ in range(2):
            held: dict[str, Array] = dict.fromkeys(_CACHES, empty)
            for place in range(ROOM):
                right = reference({**feeds(place), **held})
                assert relative_error(session.run(None, feeds(place)), right[:1]) < 1e-5, place
                held = dict(zip(_CACHES, right[1:], strict=True))
            assert relative_error([session.save()[name] for name in _CACHES], [*held.values()]) < 1e-5
            session.reset()
        with pytest.raises(UsageError, match=f"'write_indices' has {ROOM}"):
            session.run(None, feeds(ROOM))
