"""Code that becomes wrong between two compilations never publishes a wrong file, whatever the database remembers.

The package is copied, compiled with once, and compiled with again on the same database after a fault was planted in one
of its files. Faults are planted in a package whose keys do not notice, so that every stored verdict is stale and only
the published file itself can tell; and one in a package as it is.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from sartor.codegen.source_digest import locate
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.output_error import relative_error
from sartor.runtime.session import Session
from tests.copied_package import copied_package

_COMPILE = "from sartor.cli.main import compile_main; compile_main()"
# Every kind of code takes part: Winograd's and other kernels, conversions between layouts, and stock lowering.
_PINS = (
    "conv1=cpu:f32/conv2d.fused_winograd{*height=4,*unroll=1,*",
    "conv2=cpu:f32/conv2d.direct_blocked{*unroll=1,*",
    "depthwise=cpu:f32/depthwise.window{*",
    "pool=cpu:f32/pool.nhwc",
    "fc=cpu:f32/matmul.product{*unroll=1,*",
)


@dataclass(frozen=True)
class Fault:
    """A change of one file: ``old`` stands in it once."""

    file: str
    old: str
    new: str

    def plant(self, tree: Path) -> None:
        path = tree / self.file
        source = path.read_text(encoding="utf-8")
        assert source.count(self.old) == 1, f"the fault does not fit {self.file} any more"
        path.write_text(source.replace(self.old, self.new), encoding="utf-8")


UNNOTICED = Fault(
    "codegen/source_digest.py",
    "    return digest_of_sources(modules, locate, _read)\n",
    '    return "always the same"\n',
)
PACKING = Fault(
    "codegen/ir/packing.py",
    "        return array.transpose(self.order)\n",
    "        return array.transpose(self.order) * array.dtype.type(1.5)\n",
)
FAULTS = (
    PACKING,
    Fault("codegen/ir/winograd.py", "both = np.kron(rows, columns)", "both = 1.01 * np.kron(rows, columns)"),
    Fault(
        "codegen/linking/stitching.py",
        "packing.apply(self._stitching.weights[name])",
        "packing.apply(np.flip(self._stitching.weights[name], 0))",
    ),
    Fault(
        "codegen/linking/adapts.py",
        "for axis in chosen.order\n",
        "for axis in (chosen.order if layout == 'nchw' else [{2: 3, 3: 2}.get(each, each) for each in chosen.order])\n",
    ),
    Fault(
        "codegen/kernels/windows/window.py",
        "asm.multiply_add(pixel, tap, total)",
        "asm.multiply_add(pixel, pixel, total)",
    ),
    Fault(
        "codegen/kernels/isa/microkernel.py",
        "asm.add(lhs.start, asm.mul(index, multiplier.group), step * multiplier.group)",
        "asm.add(lhs.start, step * multiplier.group)",
    ),
    Fault(
        "codegen/kernels/winograd/transforms.py",
        "columns.append(transform(asm, self._rows, pixels))",
        "columns.append(transform(asm, self._rows, pixels[::-1]))",
    ),
    Fault(
        "codegen/kernels/loops/epilogue.py",
        "ir.Operation.create(op.name, results=kinds",
        'ir.Operation.create(op.name.replace("addf", "subf"), results=kinds',
    ),
    Fault(
        "dialect_passes/fold_weights.py",
        "return weights[_parameter(op)].view(_type(value).numpy_dtype)",
        "return -weights[_parameter(op)].view(_type(value).numpy_dtype)",
    ),
    Fault("plugin/onnx_model/rewrites/structure/fold_batch_norm.py", "beta - scale * mean", "beta + scale * mean"),
    Fault(
        "tuning/networks/build_job.py",
        "        weights=weights,\n",
        "        weights={name: 2 * each for name, each in weights.items()},\n",
    ),
)


@dataclass(frozen=True)
class Copied:
    """A copy of the package, and a network that was compiled with it."""

    tree: Path
    model: Path
    database: Path

    def again(self, folder: Path) -> Copied:
        """The same somewhere else, to plant a fault in."""
        tree = shutil.copytree(self.tree, folder / "tree", symlinks=True)
        return Copied(tree, self.model, Path(shutil.copyfile(self.database, folder / "tuning.db")))

    def compile(self, output: Path) -> subprocess.CompletedProcess[str]:
        pins = [option for pin in _PINS for option in ("--pin", pin)]
        options = ["--threads", "1", "--tuning-db", str(self.database), "-o", str(output), *pins]
        return subprocess.run(
            [sys.executable, "-c", _COMPILE, str(self.model), *options],
            env=os.environ | {"PYTHONPATH": str(self.tree / "package")},
            capture_output=True,
            text=True,
            timeout=600,
        )

    def error_of(self, module: Path) -> float:
        feeds = {"x": np.random.default_rng(7).normal(size=(1, 16, 24, 24)).astype(np.float32)}
        with Session(module, threads=1) as session:
            return relative_error(session.run(None, dict(feeds)), ReferenceModel(self.model, threads=1)(feeds))


def network(path: Path) -> Path:
    """Convolutions, a normalisation, a residual, a depthwise convolution, a pooling and a product."""
    random = np.random.default_rng(0)
    shapes = {"w1": (16, 16, 3, 3), "w2": (16, 16, 3, 3), "w3": (16, 1, 3, 3), "w4": (16 * 144, 10)}
    shapes |= dict.fromkeys(("scale", "shift", "mean"), (16,))
    weights = {name: 0.3 * random.normal(size=shape) for name, shape in shapes.items()}
    weights["variance"] = 0.5 + np.abs(random.normal(size=16))
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], name="conv1", pads=[1] * 4),
        helper.make_node("BatchNormalization", ["c1", "scale", "shift", "mean", "variance"], ["n1"], name="norm"),
        helper.make_node("Relu", ["n1"], ["r1"], name="relu1"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], name="conv2", pads=[1] * 4),
        helper.make_node("Add", ["c2", "x"], ["a2"], name="add"),
        helper.make_node("Relu", ["a2"], ["r2"], name="relu2"),
        helper.make_node("Conv", ["r2", "w3"], ["c3"], name="depthwise", pads=[1] * 4, group=16),
        helper.make_node("MaxPool", ["c3"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"], name="flat"),
        helper.make_node("Gemm", ["f", "w4"], ["y"], name="fc"),
    ]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 16, 24, 24]), ("y", [1, 10]))
    ]
    arrays = [numpy_helper.from_array(weight.astype(np.float32), name) for name, weight in weights.items()]
    graph = helper.make_graph(nodes, "faults", values[:1], values[1:], arrays)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture(scope="module")
def unnoticed(tmp_path_factory: pytest.TempPathFactory) -> Copied:
    """A package whose keys do not change with its code, and a network that it compiled."""
    folder = tmp_path_factory.mktemp("unnoticed")
    copied = Copied(copied_package(folder), network(folder / "net.onnx"), folder / "tuning.db")
    UNNOTICED.plant(copied.tree)
    done = copied.compile(folder / "net.vmfb")
    assert done.returncode == 0, done.stderr
    assert copied.error_of(folder / "net.vmfb") < 1e-5
    return copied


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.file)
def test_a_file_that_became_wrong_is_not_published(unnoticed: Copied, fault: Fault, tmp_path: Path) -> None:
    copied, output = unnoticed.again(tmp_path), tmp_path / "net.vmfb"
    fault.plant(copied.tree)
    done = copied.compile(output)
    assert done.returncode == 4, done.stdout + done.stderr
    assert re.search("no plan is right: relative error .* in output '", done.stderr), "the file was never run"
    assert not output.exists()


def test_keys_notice_a_fault_so_that_variants_are_verified_anew(unnoticed: Copied, tmp_path: Path) -> None:
    copied, output = unnoticed.again(tmp_path), tmp_path / "net.vmfb"
    (copied.tree / UNNOTICED.file).write_bytes((locate("sartor.codegen.source_digest") or Path()).read_bytes())
    PACKING.plant(copied.tree)
    done = copied.compile(output)
    assert done.returncode in (4, 5), done.stdout + done.stderr
    assert "the best plan is not what it was measured as" not in done.stderr
    assert not output.exists()
