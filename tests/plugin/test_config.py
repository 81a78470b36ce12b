"""Settings that follow from others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig
from sartor.config_values import SETTINGS
from sartor.errors import UsageError
from sartor.policies import DEFAULT_MAX_ERROR, LOW_PRECISION_MAX_ERROR, Double, Precision, Search
from sartor.settings.state_patterns import StatePattern
from sartor.tuning.calibration.methods import CalibrationMethod
from sartor.tuning.errors.error_measures import ErrorMeasure
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.selection.problem.limits import Quantity
from sartor.tuning.selection.problem.pin import Pin

NAN = float("nan")
GPU = Target.create("cuda", "sm_80")
WRONG: Mapping[str, tuple[object, ...]] = {
    "target": ("tpu", "", "cpu:", "cpu,", "cpu,cpu", "vulkan,cuda", None, 1, Target("tpu", "host")),
    "threads": (0, -1, 257, 1.5, "2", True, None, NAN),
    "max_error": (-1e-3, NAN, "1e-3", True, [1e-3], 10**400),
    "precision": ("int9", 8, None, "INT8", "permitted", Search.FULL),
    "weight_blocks": ("32", 32, (), (33,), (32, "64"), ([32],), None),
    "double": ("f16", 64, None, "F64"),
    "calibration": ("", 1, b"samples", "a\0b"),
    "calibration_method": ("mean", None, 0, "mse"),
    "error_measure": ("accuracy", None, abs, "nowhere.py:error", "a\0.py:error"),
    "objective": ("speed", None, Quantity.ERROR),
    "memory_limit": (-1, "-1MiB", "256 apples", 1.5, True, "much"),
    "pareto": ("latency", "latency,latency", (Quantity.COLD,), 3, ("latency", "beauty")),
    "selector": ("fastest", None, 1),
    "plans": (0, 1.5, None),
    "shapes": ([("x", (1,))], {"x": 8}, {"x": (1, -8)}, {"x": (1.5,)}, {"x": "1,8"}, {1: (1, 8)}, None),
    "bindings": ([("sr", 1)], {"sr": "fast"}, {"sr": "1,,2"}, {"sr": ()}, {"sr": NAN}, {"sr": 1j}, {1: 8}, None),
    "pins": ("conv1=*nhwc*", ("conv1",), (("conv1", "*"),), None),
    "database": ("", None, 1, "a\0b"),
    "external_weights": ("", 1, "a\0b", "weights", "weights.bin"),
    "dump_directory": ("", 1, "a\0b"),
    "jobs": (0, 1.5, None),
    "search": ("half", None),
    "tune_until": (-0.1, 1.5, NAN, "1", "101%", True),
    "vs_stock": (1, None, "yes"),
    "time_budget": (-1, NAN, float("inf"), "20", True, 10**400),
    "workers": ("", 1),
    "tune_for": ("", 1),
    "fixes_threads": (1, None, "yes"),
    "names_threads": (1, None, "yes"),
    "heeds_permissions": (1, None, "yes"),
    "states": ("hn=h", ("hn",), (("hn", "h"),), ("=h",), ("p.*=q",), None),
    "finds_states": (1, None, "yes"),
}
TEXTS: Mapping[str, tuple[object, object]] = {
    "target": ("vulkan:ampere", Target.create("vulkan", "ampere")),
    "precision": ("int8", Precision.INT8),
    "weight_blocks": ([128, 16], (16, 128)),
    "double": ("f64", Double.F64),
    "calibration": ("samples.npz", Path("samples.npz")),
    "calibration_method": ("mse", CalibrationMethod.MSE),
    "error_measure": ("cosine", ErrorMeasure.parse("cosine")),
    "objective": ("memory", Objective.MEMORY),
    "memory_limit": ("256MiB", 256 << 20),
    "pareto": ("latency,memory", (Quantity.LATENCY, Quantity.MEMORY)),
    "bindings": (
        {"sr": "16000", "on": "true", "s": "1, 0.5", "n": np.int32(3), "t": [1, 2]},
        {"sr": (16000,), "on": (True,), "s": (1, 0.5), "n": (3,), "t": (1, 2)},
    ),
    "pins": (["conv1=*nhwc*"], (Pin("conv1", "*nhwc*"),)),
    "database": ("tuning.db", Path("tuning.db")),
    "external_weights": ("net.irpa", Path("net.irpa")),
    "dump_directory": ("dump", Path("dump")),
    "search": ("full", Search.FULL),
    "tune_until": ("3%", 0.03),
    "states": (["hn=h", "p.*=q.*"], (StatePattern("hn", "h"), StatePattern("p.*", "q.*"))),
}


def _made(**values: Any) -> CompileConfig:
    return CompileConfig(**{"threads": 1, **values})


def test_every_field_is_tried() -> None:
    assert WRONG.keys() == SETTINGS.keys() == {field.name for field in fields(CompileConfig)}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_value_without_sense_names_its_field(name: str, value: object) -> None:
    with pytest.raises(UsageError) as refused:
        _made(**{name: value})
    assert name in str(refused.value)
    assert len(str(refused.value)) > len(name) + len(repr(value)), "what is allowed is said, too"


@pytest.mark.parametrize(("name", "text", "value"), [(name, *pair) for name, pair in TEXTS.items()])
def test_a_text_stands_for_what_the_command_line_reads_it_as(name: str, text: object, value: object) -> None:
    beside = {"precision": "int8"} if name == "calibration_method" else {}
    found = getattr(_made(**{**beside, name: text}), name)
    assert found == (replace(value, threads=1) if isinstance(value, Target) else value)
    assert type(found) is type(value)


def test_numbers_of_numpy_are_numbers() -> None:
    config = _made(
        threads=np.int64(2), memory_limit=np.int32(9), max_error=np.float32(0.5), shapes={"x": np.ones(2, int)}
    )
    assert (config.threads, config.memory_limit, config.max_error) == (2, 9, 0.5)
    assert config.shapes == {"x": (1, 1)}
    assert {type(each) for each in (config.threads, config.memory_limit, *config.shapes["x"])} == {int}


@pytest.mark.parametrize("precision", Precision)
def test_the_usual_error_is_that_of_the_precision_whenever_it_is_set(precision: Precision) -> None:
    usual = DEFAULT_MAX_ERROR if precision is Precision.F32 or precision.is_permitted else LOW_PRECISION_MAX_ERROR
    assert CompileConfig(threads=1, target=GPU, precision=precision).allowed_error == usual
    assert replace(CompileConfig(threads=1, target=GPU), precision=precision).allowed_error == usual


@pytest.mark.parametrize("precision", Precision)
def test_tokens_allow_the_same_for_all_rounding(precision: Precision) -> None:
    usual = DEFAULT_MAX_ERROR if precision is Precision.F32 else LOW_PRECISION_MAX_ERROR
    config = CompileConfig(threads=1, target=GPU, precision=precision, error_measure="tokens")  # type: ignore[arg-type]
    assert config.allowed_error == usual


@pytest.mark.parametrize("given", [0.0, 1e-6, 0.5])
def test_an_error_that_is_given_holds_for_every_precision(given: float) -> None:
    config = CompileConfig(threads=1, target=GPU, max_error=given)
    assert {replace(config, precision=each).allowed_error for each in Precision} == {given}


@pytest.mark.parametrize("target", ["cpu", "vulkan:ampere", "cuda:sm_75", "cpu,vulkan:ampere"])
def test_tf32_is_refused_where_no_kernel_multiplies_in_it(target: str) -> None:
    with pytest.raises(UsageError, match=r"tf32 is a type of NVIDIA's tensor cores, and \w+:.* has no .* --arch sm_80"):
        _made(target=target, precision="tf32")
    assert Precision.TF32 not in Precision.MIXED.types_on(_made(target=target).target)


def test_tf32_is_one_of_several_types_on_a_gpu() -> None:
    assert Precision.MIXED.types_on(GPU) == ("tf32", "bf16", "f16", "i8")
    assert Precision.F32.types_on(GPU) == ()


def test_a_bound_input_has_no_shape_of_its_own() -> None:
    with pytest.raises(UsageError, match="'x' is given both a shape and a value"):
        _made(shapes={"x": (1,)}, bindings={"x": 3})


def test_efficiency_cores_are_tried_where_nobody_chose_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sartor.config.default_threads", lambda: 2)
    monkeypatch.setattr("sartor.config.threads_on_all_cores", lambda: 6)
    assert CompileConfig(threads=2).planning.most_threads == 6
    assert CompileConfig(threads=2, fixes_threads=True).planning.most_threads == 2
    assert CompileConfig(threads=3).planning.most_threads == 3
    assert CompileConfig(threads=2, workers="tcp://127.0.0.1:9").planning.most_threads == 2


def test_two_devices_are_a_target() -> None:
    target = CompileConfig(target="cpu,vulkan:ampere", threads=2).target  # type: ignore[arg-type]
    assert (str(target), target.threads) == ("cpu:host,vulkan:ampere", 2)
    assert target.others == (CompileConfig(target="vulkan:ampere", threads=2).target,), "they share measurements"  # type: ignore[arg-type]


@pytest.mark.parametrize("setting", [{"memory_limit": 1}, {"objective": "memory"}, {"pareto": "latency,memory"}])
def test_memory_is_not_counted_on_two_devices(setting: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="memory is counted on the CPU alone"):
        CompileConfig(target="cpu,vulkan", **setting)  # type: ignore[arg-type]


@pytest.mark.parametrize("asked", [{"tune_until": 0.0}, {"tune_until": "1%"}, {"plans": 3}, {"search": "full"}])
def test_what_asks_about_measuring_is_refused_where_nothing_is_measured(asked: dict[str, Any]) -> None:
    option = SETTINGS[next(iter(asked))].option
    with pytest.raises(UsageError, match=f"measures nothing, and {option} is about what is measured"):
        _made(time_budget=0, **asked)
    for budget in (None, 3.0):
        _made(time_budget=budget, **asked)
    assert _made(time_budget=0, plans=1, search="model").time_budget == 0


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ({"tune_for": "pi"}, "there are no workers"),
        ({"workers": "tcp://a:1", "target": "cpu,vulkan"}, "several devices"),
        ({"workers": "tcp://a:1", "objective": "cold"}, "reads a disk"),
    ],
)
def test_what_workers_do_not_measure_is_refused(setting: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        _made(**setting)


@pytest.mark.parametrize("selector", ["greedy", "dprs", "pbqp"])
def test_a_selector_without_limits_keeps_no_error_budget(selector: str) -> None:
    CompileConfig(selector=selector)
    with pytest.raises(UsageError, match="knows no limit of error"):
        CompileConfig(selector=selector, precision=Precision.BF16)
