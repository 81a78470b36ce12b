#!/usr/bin/env bash
# torch.onnx.export writes nodes that ONNX does not have, for an LSTM with a projection and for an inverse transform.
#
# Versions: torch 2.14.1, onnxscript 0.7.2, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: ONNX's LSTM has no projection. The exporter (dynamo=True) writes one all the same for nn.LSTM with
# proj_size: its hidden_size is that of the projection, the projection's weight is read by nothing, and ONNX Runtime
# loads the file and fails when it runs. Of torch.istft it writes a ScatterND whose indices are int32, where ONNX has
# int64 alone, so that ONNX Runtime refuses the file. Both exports succeed, and onnx.checker accepts the first.
# Output seen: "LSTM of 5, projected to 3: hidden_size 3, tensors of the projection's shape read 0, checker accepts,
# loaded, run FAIL; istft: ScatterND's indices INT32, ONNX Runtime refused: INVALID_GRAPH".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.14.1 onnxscript==0.7.2 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import re

import onnx
import onnxruntime
import torch

onnxruntime.set_default_logger_severity(4)


class Inverse(torch.nn.Module):
    def forward(self, x):
        return torch.istft(torch.view_as_complex(x), n_fft=16, hop_length=4, win_length=16, window=torch.ones(16))


def exported(module, x):
    torch.onnx.export(module.eval(), (x,), "m.onnx", dynamo=True, opset_version=18, verbose=False)
    return onnx.load("m.onnx")


def outcome(x):
    """How far ONNX Runtime comes with the file, and with which error it ends."""
    reached = "refused"
    try:
        session = onnxruntime.InferenceSession("m.onnx", providers=["CPUExecutionProvider"])
        reached = "loaded"
        session.run(None, {session.get_inputs()[0].name: x.numpy()})
        return "loaded", "runs"
    except Exception as error:
        return reached, re.search(r"\d : ([A-Z_]+) :", str(error)).group(1)


x = torch.randn(7, 2, 6)
model = exported(torch.nn.LSTM(6, 5, proj_size=3), x)
(node,) = [node for node in model.graph.node if node.op_type == "LSTM"]
hidden = next(attribute.i for attribute in node.attribute if attribute.name == "hidden_size")
read = {name for node in model.graph.node for name in node.input}
used = sum(tensor.name in read and list(tensor.dims) in ([3, 5], [5, 3]) for tensor in model.graph.initializer)
onnx.checker.check_model(model)
reached, failed = outcome(x)

spectrum = torch.randn(1, 9, 12, 2)
model = exported(Inverse(), spectrum)
kinds = {value.name: value.type.tensor_type.elem_type for value in model.graph.value_info}
kinds |= {tensor.name: tensor.data_type for tensor in model.graph.initializer}
scatters = [node for node in model.graph.node if node.op_type == "ScatterND"]
indices = {onnx.TensorProto.DataType.Name(kinds[node.input[1]]) for node in scatters}
refused, reason = outcome(spectrum)
print(
    f"LSTM of 5, projected to 3: hidden_size {hidden}, tensors of the projection's shape read {used}, checker accepts, "
    f"{reached}, run {failed}; istft: ScatterND's indices {', '.join(indices)}, ONNX Runtime {refused}: {reason}"
)
assert hidden == 3 and used == 0 and (reached, failed) == ("loaded", "FAIL")
assert indices == {"INT32"} and (refused, reason) == ("refused", "INVALID_GRAPH")
PYTHON
