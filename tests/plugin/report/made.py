"""Reports made of invented plans and measurements, without compiling anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sartor.codegen.ir.variants.candidates import Rejection
from sartor.first_inference.sample import FirstRun
from sartor.report.evidence import Evidence
from sartor.report.subject import LayerErrors, Subject
from sartor.runtime.driver.signature import TensorSpec
from sartor.runtime.manifest import Manifest
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status
from sartor.tuning.records.network import Network, NetworkLayer, StoredTensor
from sartor.tuning.records.plan import AdaptChoice, ComparedPlan, LayerChoice, Plan
from sartor.tuning.store.tasks import TaskResult, task_results

HOSTILE = "</script><script>alert(1)</script><!-- &amp; \u2028 \"'`"
"""A name that ends elements, opens a comment, and is an entity, if it is not escaped."""

FAST, SLOW, WRONG = "cpu:f32/conv2d.direct{columns=8}", "cpu:f32/conv2d.stock", "cpu:f32/conv2d.winograd"


def choice(name: str, variant: str = FAST, seconds: float | None = 1e-3, nodes: Sequence[str] = ()) -> LayerChoice:
    """A layer of a plan, of a million operations, of ONNX nodes named after it."""
    listed = tuple(nodes) or (f"node of {name}",)
    return LayerChoice(name, listed, "task", variant, f"layer_{name}", seconds, None, 10**6, "f32", None, None)


def plan_of(*layers: LayerChoice, adapts: Sequence[AdaptChoice] = ()) -> Plan:
    """A plan of layers for the CPU."""
    total = sum(layer.seconds or 0.0 for layer in layers)
    return Plan(
        model_sha256="0" * 64,
        target="cpu:host",
        threads=1,
        unsplit=False,
        layers=layers,
        adapts=tuple(adapts),
        objective="latency",
        solver="dprs",
        optimal=True,
        gap=0.0,
        predicted=total,
        measured=total * 1.1,
        baseline=total * 4,
        memory=1 << 20,
        first=None,
        peak=1e11,
        versions={},
        compared=(ComparedPlan(total * 1.2, total * 1.3, {layers[0].layer: SLOW}),) if layers else (),
    )


def adapt(producer: str, consumer: str, seconds: float = 1e-4) -> AdaptChoice:
    """A conversion before the first activation of a layer."""
    return AdaptChoice(producer, consumer, 0, "cpu:f32@nchw", "cpu:f32@nchw16c", "adapt", seconds, None)


def chain(names: Sequence[str], task: str = "task") -> Network:
    """Layers that read one another."""
    tensor = StoredTensor("1x16x8x8xf32", "cpu:f32@nchw16c", 4096)
    layers = tuple(
        NetworkLayer(
            name, (f"node of {name}",), "convolution", task, ((index - 1, 0),), (tensor,), (tensor,), (tensor,)
        )
        for index, name in enumerate(names)
    )
    return Network(layers, 1, ((len(names) - 1, 0),))


def measurement(
    variant: str, times: Sequence[float], status: Status = Status.OK, message: str = "", stock: float = 4e-3
) -> Measurement:
    """A measurement of a variant, in a run in which candidate 0 took ``stock`` seconds."""
    key = MeasurementKey("task", variant, "source", "machine", 1, "versions", "cpu:host/0")
    beside = () if variant == SLOW or not times else (stock,) * 4
    return Measurement(key, status, tuple(times), beside, error=1e-6, message=message)


def result() -> TaskResult:
    """A fast variant, candidate 0, and one that is wrong."""
    listed = [
        measurement(FAST, (1e-3, 1.1e-3, 1.2e-3, 1.3e-3)),
        measurement(SLOW, (4e-3,) * 4),
        measurement(WRONG, (), Status.WRONG_RESULT, "off by 0.5"),
    ]
    return next(iter(task_results(listed)))


def subject(count: int = 3, name: str = "model.vmfb", variant: str = FAST, prefix: str = "layer") -> Subject:
    """A chain of layers, with everything that a report may show of it."""
    names = [f"{prefix} {index}" for index in range(count)]
    spec = TensorSpec(f"x {prefix}", "float32", (1, 16, 8, 8))
    out = TensorSpec("y", "float32", (1, 16, 8, 8))
    layers = [replace(choice(each, variant), in_place=1.2e-3 + 1e-5 * index) for index, each in enumerate(names)]
    plan = plan_of(*layers, adapts=[adapt("input:x", names[0]), adapt(names[-1], "output:y", 0.0)])
    manifest = Manifest(
        model=f"{prefix}.onnx",
        model_sha256="0" * 64,
        entry="main_graph",
        inputs=(spec,),
        outputs=(out,),
        devices=("cpu",),
        levels=("host",),
        sartor_version="0.1.0",
        iree_version="3.13.0",
        plan=plan.to_json(),
    )
    return Subject(
        name=name,
        manifest=manifest,
        plan=plan,
        network=chain(names),
        evidence=Evidence({"task": result()}, 2e10, "machine"),
        rejections=(Rejection("task", "window", "not a pooling"),),
        times={"sartor": (1e-3, 1.1e-3, 1.05e-3), "onnxruntime": (2e-3, 2.2e-3, 2.1e-3)},
        errors={each: LayerErrors(1e-6 * (index + 1), 1e-6 * index, 1e-7) for index, each in enumerate(names)},
        cold={("sartor", "dropped"): FirstRun(0.02, 0.1, 0.01, (4e-3, 2e-3), (("read", 0.0, 0.012, 1 << 20),))},
    )
