"""One file for two CPU levels and two batch sizes: each runs right where it is chosen, also by stock tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from sartor.artifact import SeveralArtifact
from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig
from sartor.errors import DeviceError, UsageError
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime import module_facts
from sartor.runtime.driver.signature import Array
from sartor.runtime.manifest import SEVERAL_FORMAT, read_manifest
from sartor.runtime.module import check_module
from sartor.runtime.session import Session
from sartor.runtime.several.choice import of_device
from sartor.runtime.several.levels import likely_level
from sartor.several.compilation import compile_several
from sartor.several.settings import SeveralConfig
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.selection.problem.pin import Pin
from tests.emulated_x86 import Stock, emulated
from tests.plugin.calling import assert_refused, call, parsed
from tests.tiny_models import Builder

LEVELS = ("x86-64-v4", "x86-64-v3")
SHAPES: tuple[Mapping[str, tuple[int, ...]], ...] = ({"x": (1, 8, 6, 6)}, {"x": (3, 8, 6, 6)})
ONE, OTHER = ((batch, 8, 6, 6) for batch in (1, 3))


@dataclass(frozen=True)
class Made:
    """A file, and the model that it was made of."""

    artifact: SeveralArtifact
    model: Path

    def expected(self, x: Array) -> Array:
        return ReferenceModel(self.model, threads=1)({"x": x})[0]

    @property
    def path(self) -> Path:
        return self.artifact.path

    @property
    def plans(self) -> Path:
        return self.model.parent / "saved" / "plans.json"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("several")
    build = Builder()
    build.op("Relu", "r", build.conv("c", "x", (8, 16)))
    # A constant operand that both batches pack alike, and stock code beside a kernel.
    build.op("Add", "sum", "r", build.weight(1, 16, 1, 1))
    build.op("ReduceMean", "y", "sum", build.constant(np.array([2, 3])), keepdims=0)
    model = folder / "net.onnx"
    net = build.model([("x", (1, 8, 6, 6))], [("y", (1, 16))])
    for each in (*net.graph.input, *net.graph.output):
        each.type.tensor_type.shape.dim[0].dim_param = "N"
    onnx.save(net, model)
    pins = (Pin("*c*", "*direct{*unroll=1,*"),)
    dumped = folder / "dumped"
    base = CompileConfig(threads=1, jobs=1, database=folder / "tuning.db", pins=pins, plans=1, dump_directory=dumped)
    several = SeveralConfig(base, tuple(Target.create("cpu", level) for level in reversed(LEVELS)), SHAPES)
    made = Made(compile_several(model, folder / "net.vmfb", several), model)
    made.plans.parent.mkdir()
    made.artifact.plan_set.save(made.plans)
    return made


def replayed(made: Made, *options: object) -> Path:
    """The file that the saved plans give with some options."""
    module = made.plans.parent / f"again{len(options)}.vmfb"
    result = call("compile-to-vmfb", made.model, "-o", module, "--plan", made.plans, *options)
    assert result.returncode == 0, result.stderr
    return module


def test_each_plans_modules_after_passes_have_a_folder_of_their_own(made: Made) -> None:
    dumped = made.model.parent / "dumped"
    assert {path.name for path in dumped.iterdir()} == {f"plan-{number}" for number in range(len(made.artifact.plans))}
    texts = [next(path.glob("00-*.mlir")).read_text(encoding="utf-8") for path in sorted(dumped.iterdir())]
    assert ["3x8x6x6xf32" in text for text in texts] == [shape["x"][0] == 3 for shape in made.artifact.shapes]


def inputs(shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(len(shape) + shape[0]).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("cpu", ["", "Haswell"])
@pytest.mark.parametrize("shape", [ONE, OTHER], ids=str)
def test_stock_tools_run_each_shape_on_each_level(shape: tuple[int, ...], cpu: str, made: Made) -> None:
    stock = emulated(cpu) if cpu else Stock()
    if not isinstance(stock, Stock):
        pytest.skip(stock)
    x = inputs(shape)
    expected = made.expected(x)
    assert np.abs(stock.run(made.path, "main_graph", [x]) - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize(("cpu", "level"), [("", 0), ("Haswell", 1)])
def test_the_best_level_that_a_machine_runs_is_chosen(cpu: str, level: int, made: Made) -> None:
    stock = emulated(cpu) if cpu else Stock()
    if not isinstance(stock, Stock):
        pytest.skip(stock)
    if not cpu and made.artifact.plans[0].measured is None:
        pytest.skip("this machine has no AVX-512")
    assert stock.number(made.path, "main_graph$level") == level


@pytest.mark.parametrize("cpu", ["Nehalem", "Haswell,-fma"])
def test_a_machine_that_runs_no_level_refuses_the_file(cpu: str, made: Made) -> None:
    stock = emulated(cpu)
    if not isinstance(stock, Stock):
        pytest.skip(stock)
    assert "does not support any variant" in stock.failure(made.path, "main_graph$level")


def test_a_session_chooses_by_the_input_and_says_what_there_is(made: Made) -> None:
    with Session(made.path, threads=1) as session:
        assert session.level in LEVELS
        assert session.level == likely_level(read_manifest(made.path).alternatives)
        assert [each.shape for each in (*session.get_inputs(), *session.get_outputs())] == [[None, 8, 6, 6], [None, 16]]
        for shape in (ONE, OTHER, ONE):
            x = inputs(shape)
            (found,), (later,) = session.run(None, {"x": x}), session.run_async(None, {"x": x}).result()
            np.testing.assert_allclose(found, made.expected(x), rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(found, later)
        with pytest.raises(
            UsageError, match=r"no plan for inputs of the shapes x=2,8,6,6; it has plans for x=1,8,6,6; x=3"
        ):
            session.run(None, {"x": inputs((2, 8, 6, 6))})
        with pytest.raises(UsageError, match="element type float64"):
            session.run(None, {"x": inputs(ONE).astype(np.float64)})
        with pytest.raises(UsageError, match="input 'x' is no array: "):
            session.run(None, {"x": [[1], [1, 2]]})  # type: ignore[dict-item]


def test_a_file_says_what_it_has(made: Made) -> None:
    manifest = read_manifest(made.path)
    check_module(made.path)
    assert manifest.format == SEVERAL_FORMAT
    assert [(alternative.level, alternative.inputs[0].shape) for alternative in manifest.alternatives] == [
        (level, shape) for level in LEVELS for shape in (ONE, OTHER)
    ]
    best, _, worse, _ = manifest.alternatives
    assert {*worse.needs} < {*best.needs}
    assert "avx512f" in best.needs
    assert "avx512f" not in worse.needs
    assert all(error is not None and error < 1e-3 for error in made.artifact.errors[2:])


def test_a_session_on_a_device_without_a_plan_names_those_that_have_one(made: Made) -> None:
    manifest = read_manifest(made.path)
    with pytest.raises(DeviceError, match="the file has no plan for the device 'vulkan', it has plans for cpu"):
        of_device(manifest.alternatives, "vulkan", "the file")


def test_equal_weights_are_stored_once(made: Made) -> None:
    """Both batches pack the convolution alike, and both levels read the same biases."""
    kernel, bias, added = 16 * 8 * 9 * 4, 16 * 4, 16 * 4
    assert made.artifact.weight_bytes <= 2 * kernel + 4 * (bias + added)


@pytest.mark.parametrize(
    ("targets", "shapes", "complaint"),
    [
        (("x86-64-v3", "x86-64-v3"), ({},), "is named twice"),
        (("x86-64-v3", "aarch64:neoverse-n1"), ({},), "of one instruction set"),
        (("x86-64-v3",), ({"x": (1,)}, {"x": (1,)}), "the same shapes are given twice"),
        (("x86-64-v3",), tuple({"x": (size,)} for size in range(1, 40)), "39 plans, and a file has at most 32"),
    ],
)
def test_what_makes_no_sense_is_refused(
    targets: tuple[str, ...], shapes: tuple[Mapping[str, tuple[int, ...]], ...], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        SeveralConfig(CompileConfig(threads=1), tuple(Target.create("cpu", target) for target in targets), shapes)


def test_a_plan_over_two_devices_is_not_one_of_several() -> None:
    both = Target.joined([Target.create("cpu"), Target.create("vulkan")])
    with pytest.raises(UsageError, match="give --target cpu --target vulkan"):
        SeveralConfig(CompileConfig(threads=1), (both, Target.create("cpu", "x86-64-v3")))


@pytest.mark.parametrize(("levels", "shapes"), [(LEVELS, ({},)), (LEVELS[:1], SHAPES), (LEVELS, SHAPES)])
def test_plans_that_change_after_the_first_inference_are_not_of_several(
    levels: tuple[str, ...], shapes: tuple[Mapping[str, tuple[int, ...]], ...]
) -> None:
    """Neither of several levels, nor of several shapes."""
    config = CompileConfig(threads=1, objective=Objective.COLD_LATENCY)
    with pytest.raises(UsageError, match="has no later plan for each of them"):
        SeveralConfig(config, tuple(Target.create("cpu", level) for level in levels), shapes)


def test_levels_that_a_module_cannot_tell_apart_are_refused(made: Made, tmp_path: Path) -> None:
    base = CompileConfig(threads=1, jobs=1, database=tmp_path / "tuning.db")
    several = SeveralConfig(base, (Target.create("cpu", "x86-64-v3"), Target.create("cpu", "haswell")), SHAPES[:1])
    with pytest.raises(UsageError, match="need the same of a CPU"):
        compile_several(made.model, tmp_path / "net.vmfb", replace(several, base=base))


def test_the_models_own_weights_are_not_overwritten(made: Made, tmp_path: Path) -> None:
    model, weights = tmp_path / "net.onnx", tmp_path / "net.irpa"
    net = onnx.load(made.model)
    onnx.save(net, model, save_as_external_data=True, location=weights.name, size_threshold=0)
    content = weights.read_bytes()
    base = CompileConfig(threads=1, jobs=1, database=tmp_path / "tuning.db", external_weights=weights)
    with pytest.raises(UsageError, match=r"net\.irpa"):
        compile_several(model, tmp_path / "net.vmfb", SeveralConfig(base, (Target.create("cpu"),), SHAPES))
    assert weights.read_bytes() == content


def test_samples_that_do_not_fit_all_shapes_are_refused_before_tuning(made: Made, tmp_path: Path) -> None:
    np.savez(tmp_path / "samples.npz", x=inputs(ONE))
    base = CompileConfig(threads=1, jobs=1, database=tmp_path / "tuning.db", calibration=tmp_path / "samples.npz")
    steps: list[str] = []
    several = SeveralConfig(base, (Target.create("cpu"),), SHAPES)
    with pytest.raises(UsageError, match=r"expects float32\[3, 8, 6, 6\]"):
        compile_several(made.model, tmp_path / "net.vmfb", several, lambda step, *_: steps.append(step))
    assert steps == ["importing"]


def test_saved_plans_give_the_same_bytes_without_measuring(made: Made) -> None:
    assert replayed(made).read_bytes() == made.path.read_bytes()


def test_weights_beside_the_file_serve_all_plans(made: Made) -> None:
    weights = made.plans.parent / "net.irpa"
    module = replayed(made, "--external-weights", weights)
    assert module.stat().st_size + weights.stat().st_size < made.path.stat().st_size + (16 << 10)
    with Session(module, threads=1) as session:
        for shape in (ONE, OTHER):
            x = inputs(shape)
            (found,) = session.run(None, {"x": x})
            np.testing.assert_allclose(found, made.expected(x), rtol=1e-4, atol=1e-5)
    assert "as they were written" in call("sartor", "inspect", module, "--verify").stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--shape", "x=1,8,6,6", "--shape", "x=5,8,6,6"], "none for cpu:host with x=1,8,6,6"),
        (["--cpu", "x86-64-v3", "--shape", "x=1,8,6,6"], "more targets or shapes than are asked for"),
        (["--threads", "2"], "made for 1"),
    ],
)
def test_saved_plans_for_something_else_are_refused(made: Made, options: list[str], said: str) -> None:
    result = call("compile-to-vmfb", made.model, "-o", made.plans.parent / "no.vmfb", "--plan", made.plans, *options)
    assert_refused(result, 2, said)


def test_commands_take_the_plan_of_the_inputs_shape_or_of_the_one_that_is_named(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(made.plans.parent / "x.npy", inputs(OTHER))
    shape = ["--shape", "x=3,8,6,6"]
    for options in (shape, ["--input", f"x={made.plans.parent / 'x.npy'}"]):
        (output,) = parsed(call("sartor", "run", made.path, *options, "--json"))["outputs"]
        assert output["shape"] == [3, 16]
    (output,) = parsed(call("sartor", "compare", made.path, "--vs", made.model, *shape, "--json"))["outputs"]
    assert output["within"]
    shown = parsed(call("sartor", "inspect", made.path, *shape, "--cpu", "x86-64-v3", "--json"))
    assert (shown["inputs"][0]["shape"], shown["levels"]) == ([3, 8, 6, 6], ["x86-64-v3"])
    assert_refused(call("sartor", "run", made.path, "--shape", "x=2,8,6,6"), 2, "no plan for inputs", "x=3,8,6,6")
    monkeypatch.setattr(module_facts, "_level_here", lambda _: pytest.fail("the module was run"))
    assert parsed(call("sartor", "inspect", made.path, *shape, "--json"))["levels"] == [
        likely_level(read_manifest(made.path).alternatives)
    ]
    assert_refused(call("sartor", "inspect", made.path, "--cpu", "haswell"), 2, "no plan for the level haswell")


def test_dispatches_of_a_plan_are_those_of_its_layers(made: Made) -> None:
    found = parsed(call("sartor", "bench", made.path, "--shape", "x=3,8,6,6", "--dispatches", "--rounds", 2, "--json"))
    assert ["c"] in [each["names"] for each in found["layers"]]
    assert not any(each["name"].startswith("plan") for each in found["dispatches"]["dispatches"])


def test_a_report_is_of_the_plan_that_is_named(made: Made) -> None:
    page = made.plans.parent / "page.html"
    assert call("sartor", "report", made.path, "--shape", "x=3,8,6,6", "-o", page).returncode == 0
    assert "float32[3, 8, 6, 6]" in page.read_text()
