"""Makes the small files of ONNX Runtime's own tools that tests compile.

    python3.11 -m venv /tmp/tools && /tmp/tools/bin/pip install -r tools/onnx_runtime_files/requirements.txt
    /tmp/tools/bin/python -m tools.onnx_runtime_files tests/onnx_runtime_files

Networks of tiny configurations with seeded weights are exported by PyTorch, then optimised and quantised by ONNX
Runtime. Weights are left out of the files: tests draw them from the names of the tensors.
"""
