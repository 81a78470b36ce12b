"""A compiled module on a device, with inputs and outputs that stay there, as other runtimes are timed on a GPU.

``python -m benchmarks.gpu_module model.onnx model.vmfb cuda`` prints one object of JSON: seconds of an inference, the
smallest and the median, and the relative error against ONNX Runtime on this machine's CPU. ``sartor bench`` times what
a program does that has its data in the host's memory; on a GPU most of that may be transfers.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from benchmarks.gpu_peers import measured
from sartor.errors import SartorError
from sartor.reference.random_inputs import sample_inputs
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.module_facts import module_signature, session_signature
from sartor.runtime.output_error import relative_error
from sartor.runtime.session import Session

_FAILED = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_module", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("module", type=Path)
    parser.add_argument("device", help="as sartor bench has it")
    parser.add_argument("--signature", help="what the module takes and gives, if it does not say so itself")
    options = parser.parse_args(arguments)
    try:
        print(json.dumps(timed(options.model, options.module, options.device, options.signature)))
    except SartorError as error:
        print(error, file=sys.stderr)
        return _FAILED
    return 0


def timed(model: Path, module: Path, device: str, signature: str | None = None) -> Mapping[str, Any]:
    """Times of a module's inference on a device, and how far its outputs are off.

    Args:
        model: the ONNX file.
        module: compiled from it.
        device: as ``Session`` has it.
        signature: of a module that does not say it itself, as ``parse_signature`` reads it.

    Raises:
        SartorError: if the module or ONNX Runtime does not run.
    """
    feeds = sample_inputs(onnx.load(model), 0)
    known = session_signature(module, module_signature(module, signature))
    with Session(module, device=device, signature=known, keep_states=False) as session:
        session.settle()
        error = relative_error(session.run(None, dict(feeds)), ReferenceModel(model)(feeds))
        arrays = {name: session.to_device(feed) for name, feed in feeds.items()}
        return {"error": error, **measured(lambda: session.run_device(None, arrays))}


if __name__ == "__main__":
    sys.exit(main())
