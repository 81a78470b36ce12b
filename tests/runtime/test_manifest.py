from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sartor.errors import UsageError
from sartor.runtime.driver.bound_input import BoundInput
from sartor.runtime.driver.cache import Cache, Prompt
from sartor.runtime.driver.signature import Signature, TensorSpec, parse_declaration
from sartor.runtime.driver.state import State
from sartor.runtime.files.open_sizes import OpenSize
from sartor.runtime.files.open_sizes import Place as SizePlace
from sartor.runtime.foreign import read_signature
from sartor.runtime.manifest import (
    LAST_FORMAT,
    PARTS_FORMAT,
    STATES_FORMAT,
    SUMS_FORMAT,
    Manifest,
    find_manifest,
    read_manifest,
)
from sartor.runtime.module import open_module
from sartor.runtime.several.record import Alternative

Make = Callable[..., Manifest]
_OUTPUT = {"name": "y", "dtype": "int8", "shape": [3]}
_COUNT = {"name": "sartor.count:0:y", "dtype": "int64", "shape": []}
_GIVEN = {"output": "sum", "axis": 0, "sizes": ["rows"], "factor": 1, "offset": 0, "divisor": 1}


def test_it_comes_back_as_it_was_written(model: Path, make_manifest: Make) -> None:
    assert read_manifest(model) == make_manifest()


def test_a_large_one_comes_back(compile_mlir: Callable[..., Path], make_manifest: Make) -> None:
    layers = [{"name": f"/käse/Conv_{i}\n", "routine": "cpu:f32/conv2d.winograd{tile=4}"} for i in range(12_000)]
    manifest = make_manifest(plan={"layers": layers})
    assert len(manifest.to_json()) > 800_000
    assert read_manifest(compile_mlir("model", manifest.to_json())) == manifest


def test_reading_opens_no_device(model: Path) -> None:
    code = (
        "import os, sys, pathlib\n"
        "from sartor.runtime.manifest import read_manifest\n"
        "threads = len(os.listdir('/proc/self/task'))\n"
        "read_manifest(pathlib.Path(sys.argv[1]))\n"
        "print(len(os.listdir('/proc/self/task')) - threads)\n"
    )
    if not Path("/proc/self/task").is_dir():
        pytest.skip("threads are counted in /proc")
    done = subprocess.run([sys.executable, "-c", code, model], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"


def test_bound_inputs_come_back_with_their_types(make_manifest: Make) -> None:
    bound = tuple(
        BoundInput(TensorSpec(kind, kind, (len(values),)), values)
        for kind, values in {"bool": (True, False), "int64": (16000,), "float32": (1, 0.5)}.items()
    )
    read = Manifest.from_json(make_manifest(bound=bound).to_json()).bound
    assert read == bound
    assert [each.text for each in read] == ["true,false", "16000", "1,0.5"]


def test_states_come_back_and_their_function_takes_the_rest(make_manifest: Make) -> None:
    x, h = TensorSpec("x", "int8", (2,)), TensorSpec("h", "float32", (3,))
    hn, y = replace(h, name="hn"), replace(x, name="y")
    states = (State("h", "hn", (0.5, 1, 2)),)
    manifest = make_manifest(inputs=(x, h), outputs=(hn, y), states=states, format=STATES_FORMAT)
    read = Manifest.from_json(manifest.to_json())
    assert read == manifest
    assert read.stateful_signature == Signature(f"{manifest.entry}$stateful", (x,), (y,))
    assert read.described_states == ["hn -> h: float32[3], begins with 0.5,1,2"]
    for wrong, complaint in (
        ((State("h", "y"),), "the state 'h' is float32.3. as an input, and int8.2. as an output"),
        ((State("h", "z"),), "the state 'h' is no input and output"),
        ((State("h", "hn"), State("x", "hn")), "the output 'hn' is in two states"),
        ((State("h", "hn", (1,)),), "1 is not a value of float32"),
    ):
        with pytest.raises(ValueError, match=complaint):
            replace(manifest, states=wrong)
    counted = TensorSpec("sartor.count:0:hn", "int64", ())
    with pytest.raises(ValueError, match="the size of the state 'hn' depends on data"):
        replace(manifest, outputs=(hn, y, counted))


def test_the_network_is_read_where_it_is_asked_for(compile_mlir: Callable[..., Path], make_manifest: Make) -> None:
    manifest = make_manifest(network={"layers": [1, 2]})
    module = compile_mlir("model", manifest.to_json())
    assert read_manifest(module) == manifest
    assert find_manifest(open_module(module), whole=False) == replace(manifest, network={})


def test_a_network_in_the_first_line_is_read_too(make_manifest: Make) -> None:
    """As earlier versions wrote it."""
    text = json.dumps(json.loads(make_manifest().to_json()) | {"network": {"layers": []}})
    assert Manifest.from_json(text).network == {"layers": []}


def test_a_read_only_file_can_be_read(model: Path, tmp_path: Path) -> None:
    copy = tmp_path / "read_only.vmfb"
    copy.write_bytes(model.read_bytes())
    copy.chmod(0o444)
    assert read_manifest(copy).entry == "main_graph"


def test_equal_manifests_give_equal_text(make_manifest: Make) -> None:
    one = make_manifest(plan={"a": 1, "b": 2}, parameters={"x": "x.irpa", "y": "y.irpa"})
    other = make_manifest(plan={"b": 2, "a": 1}, parameters={"y": "y.irpa", "x": "x.irpa"})
    assert one.to_json() == other.to_json()
    assert one.to_json().isascii()


def test_a_plan_json_cannot_hold_is_refused(make_manifest: Make) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        make_manifest(plan={"cost": float("nan")}).to_json()


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("model_sha256", "abc", "model_sha256"),
        ("inputs", [{"name": "x", "dtype": "float33", "shape": []}], r"inputs\.0\.dtype"),
        ("inputs", [{"name": "x", "dtype": "int8", "shape": [-1]}], r"inputs\.0\.shape"),
        ("outputs", [{"name": "y", "dtype": "int8", "shape": []}] * 2, "same name"),
        ("outputs", [_OUTPUT, {**_COUNT, "dtype": "int32"}], "counts elements, but is int32.* and no int64 scalar"),
        ("outputs", [_OUTPUT, {**_COUNT, "shape": [1]}], "no int64 scalar"),
        ("outputs", [_OUTPUT, {**_COUNT, "name": "sartor.count:1:y"}], "an axis that 'y' of int8.* does not have"),
        ("parameters", {"model": "../model.irpa"}, "not a plain file name"),
        ("parameters", {"model": "/etc/passwd"}, "not a plain file name"),
        ("plan", [], "plan"),
        ("devices", [], "it is for no device"),
        (
            "bound",
            [{"spec": {"name": "s", "dtype": "int8", "shape": []}, "values": [300]}],
            r"bound\.0: .*300 is not a value",
        ),
        ("bound", [{"spec": {"name": "s", "dtype": "int8", "shape": [2]}, "values": [1]}], "not a value of int8"),
        ("given", [_GIVEN], "a size of the output 'sum' does not follow from those that callers choose"),
        ("given", [{**_GIVEN, "sizes": [], "axis": 2}], "a size of the output 'sum' does not follow"),
        ("given", [{**_GIVEN, "divisor": 0}], r"given\.0\.divisor: 0 divides no size"),
        ("surprise", 1, "surprise"),
    ],
)
def test_wrong_content_is_named(make_manifest: Make, field: str, value: Any, complaint: str) -> None:
    content = json.loads(make_manifest().to_json()) | {field: value}
    with pytest.raises(UsageError, match=complaint):
        Manifest.from_json(json.dumps(content))


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "[" * 100_000, '{"format": 1}'])
def test_text_that_is_no_manifest_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="the manifest is not"):
        Manifest.from_json(text)


def test_a_newer_format_asks_for_an_update(make_manifest: Make) -> None:
    content = json.loads(make_manifest().to_json()) | {"format": SUMS_FORMAT + 1, "surprise": 1}
    with pytest.raises(UsageError, match="update sartor"):
        Manifest.from_json(json.dumps(content))


def test_a_foreign_module_has_none(foreign: Path) -> None:
    assert find_manifest(open_module(foreign)) is None
    with pytest.raises(UsageError, match="not compiled by sartor"):
        read_manifest(foreign)


def test_a_foreign_signature_is_read(foreign: Path) -> None:
    module = open_module(foreign)
    assert read_signature(module, "dynamic") == Signature(
        "dynamic",
        (TensorSpec("input0", "float32", (None, 3)),),
        (TensorSpec("output0", "float32", (None, 3)),),
    )
    with pytest.raises(UsageError, match="name the entry function"):
        read_signature(module)
    with pytest.raises(UsageError, match="exports no function 'missing'"):
        read_signature(module, "missing")
    with pytest.raises(UsageError, match="'input0' has the type i32"):
        read_signature(module, "not_a_tensor")


def test_an_unrecorded_signature_is_said_to_be(model: Path) -> None:
    with pytest.raises(UsageError, match="pass the signature"):
        read_signature(open_module(model))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("tensor<i1>", ("bool", ())),
        ("tensor<0x?xui8>", ("uint8", (0, None))),
        ("tensor<7xsi64>", ("int64", (7,))),
    ],
)
def test_declarations_are_parsed(value: str, expected: tuple[str, tuple[int | None, ...]]) -> None:
    signature = parse_declaration(f"sync func @a.b$c(%in_0: {value}) -> (%out: {value}, %p: {value})")
    assert signature.entry == "a.b$c"
    assert signature.inputs == (TensorSpec("in_0", *expected),)
    assert [spec.name for spec in signature.outputs] == ["out", "p"]


def test_an_unreadable_declaration_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        parse_declaration("something else")


def test_every_truncation_is_noticed(model: Path, tmp_path: Path) -> None:
    content = model.read_bytes()
    for length in [0, 1, 3, 10, 40, 64, 100, 500, len(content) // 2, len(content) - 30, len(content) - 1]:
        cut = tmp_path / f"{length}.vmfb"
        cut.write_bytes(content[:length])
        with pytest.raises(UsageError, match=r"truncated|is empty|not an IREE module"):
            open_module(cut)


def test_other_files_are_refused(tmp_path: Path) -> None:
    text = tmp_path / "text.vmfb"
    text.write_text("not a module " * 50)
    with pytest.raises(UsageError, match=r"text\.vmfb' is not an IREE module"):
        read_manifest(text)
    with pytest.raises(UsageError, match="No such file"):
        read_manifest(tmp_path / "missing.vmfb")
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read_manifest(tmp_path)
    with pytest.raises(UsageError, match="the given content is not an IREE module"):
        open_module(os.urandom(1000))


def test_a_damaged_header_is_refused(model: Path, tmp_path: Path) -> None:
    content = bytearray(model.read_bytes())
    content[:64] = bytes(64)
    damaged = tmp_path / "damaged.vmfb"
    damaged.write_bytes(content)
    with pytest.raises(UsageError, match="is not an IREE module"):
        read_manifest(damaged)


@pytest.mark.parametrize(
    ("found", "workers"), [(1, 1), (4, 4), (None, None), (0, None), (-1, None), (1.5, None), ("2", None), (True, None)]
)
def test_the_fastest_number_of_threads_is_read_from_the_plan(
    make_manifest: Make, found: object, workers: int | None
) -> None:
    assert make_manifest(plan={"workers": found}).workers == workers
    assert make_manifest(plan={}).workers is None


@pytest.mark.parametrize(("workers", "expected"), [((1, 1), 1), ((1, 2), 2), ((2, None), None), ((None, None), None)])
def test_plans_of_a_file_share_the_threads_of_the_one_that_needs_most(
    workers: tuple[int | None, int | None], expected: int | None, make_manifest: Make
) -> None:
    single = make_manifest()
    plans = [
        Alternative(
            "cpu",
            "host",
            (replace(single.inputs[0], shape=(size, 4)), *single.inputs[1:]),
            single.outputs,
            plan={"workers": each},
        )
        for size, each in enumerate(workers, 1)
    ]
    assert replace(single, alternatives=tuple(plans), plan=plans[0].plan).workers == expected
    assert replace(single, plan=plans[0].plan).workers == workers[0]


def with_prompts(make_manifest: Make, *prompts: Prompt) -> Manifest:
    inputs = TensorSpec("tokens", "int64", (1, 1)), TensorSpec("past", "float32", (None, 2))
    outputs = TensorSpec("logits", "float32", (1, 1, 5)), TensorSpec("present", "float32", (1, 2))
    sizes = (OpenSize("positions", 1, 64, 1, (SizePlace("past", 0),)),)
    caches = (Cache("past", "present", 0),)
    return make_manifest(
        inputs=inputs, outputs=outputs, sizes=sizes, caches=caches, prompts=prompts, format=PARTS_FORMAT
    )


def part(tokens: int, **others: Any) -> Prompt:
    inputs, outputs = TensorSpec("tokens", "int64", (1, tokens)), TensorSpec("logits", "float32", (1, tokens, 5))
    return Prompt(tokens, (inputs,), (outputs,), {}, **others)


def test_parts_of_prompts_have_functions_of_their_own(make_manifest: Make) -> None:
    manifest = with_prompts(make_manifest, part(8, suffix="$prompt8", calls=2.5), part(32, gives_last=True))
    assert Manifest.from_json(manifest.to_json()) == manifest
    entries = [signature.entry.removeprefix(manifest.entry) for signature in manifest.prompt_signatures]
    assert entries == ["$prompt8$stateful", "$prompt$stateful"]
    assert manifest.last_signatures.keys() == {32}
    with pytest.raises(ValueError, match=r"take \[32, 8\] tokens, expected more and more"):
        with_prompts(make_manifest, part(32), part(8, suffix="$prompt8"))
    with pytest.raises(ValueError, match="by names of their own"):
        with_prompts(make_manifest, part(8), part(32))


def test_an_older_file_has_one_kind_of_parts(make_manifest: Make) -> None:
    manifest = with_prompts(make_manifest, part(32, calls=7.0))
    content = json.loads(manifest.to_json())
    (older,) = content.pop("prompts")
    del older["calls"], older["suffix"]
    read = Manifest.from_json(json.dumps({**content, "prompt": {**older, "least": 7}, "format": LAST_FORMAT}))
    assert read.prompts == manifest.prompts
