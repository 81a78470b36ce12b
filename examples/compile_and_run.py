"""Compile an ONNX model for this machine, then run the result: ``python compile_and_run.py model.onnx``."""

from __future__ import annotations

import sys
from pathlib import Path

import sartor
from sartor.errors import SartorError


def main(model: Path) -> None:
    """Write the module to the working directory and print what one inference takes and gives."""
    artifact = sartor.compile(model, sartor.CompileConfig(threads=2), output=model.stem + ".vmfb")
    plan = artifact.plan
    print(f"{artifact.path}: {artifact.size:,} bytes, {len(plan.layers)} layers, error {artifact.error:.1e}")
    if plan.measured and plan.baseline:
        print(f"{plan.measured * 1e3:.2f} ms an inference, stock IREE {plan.baseline * 1e3:.2f} ms")

    with sartor.Session(artifact.path, threads=2) as session:
        # Zeros of the right type and shape; numpy arrays do as well, and are copied to the device once.
        feeds = {spec.name: session.allocate(spec.name) for spec in session.get_inputs()}
        outputs = session.run(None, feeds)
        for spec, output in zip(session.get_outputs(), outputs, strict=True):
            print(f"{spec.name}: {spec.type} {output.shape}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        main(Path(sys.argv[1]))
    except SartorError as error:
        sys.exit(str(error))
