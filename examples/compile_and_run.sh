#!/usr/bin/env bash
# Compile a network for this machine and run it under stock IREE, from a checkout after `make test` or `make demo`:
#   examples/compile_and_run.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PATH="$PWD/.venv/bin:$PATH"
mkdir -p build/example

# Any ONNX file will do; LeNet-5 is small and built on the spot, nothing is downloaded.
python -m benchmarks.zoo lenet5 -o build/example
compile-to-vmfb build/example/lenet5.onnx -o build/example/lenet5.vmfb

# Sartor is not needed from here on: the weights are in the file, and its entry is called main_graph.
python -c "import numpy; numpy.save('build/example/input.npy', numpy.ones((1, 1, 32, 32), numpy.float32))"
iree-run-module --device=local-task --module=build/example/lenet5.vmfb --function=main_graph \
    --input=@build/example/input.npy
