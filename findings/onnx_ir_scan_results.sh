#!/usr/bin/env bash
# onnx-ir's pass that drops Identity nodes gives both results of a Scan's body one name.
#
# Versions: onnx-ir 1.1.0, onnx 1.23.2.
# Behaviour: A body that returns its state also as what it collects copies it by Identity, as ONNX's own examples of
# Scan do. IdentityEliminationPass keeps an Identity between a graph's input and its output, but not one between two
# outputs: it renames the state to the collected output. The body then lists one name twice, which the single
# assignment of ONNX's format rules out for values of a graph; onnx.checker accepts the file.
# Output seen: "outputs of the body before the pass ['after', 'collected'], afterwards ['collected', 'collected'];
# onnx.checker accepts both".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx-ir==1.1.0 onnx==1.23.2 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import onnx
import onnx_ir
from onnx import TensorProto, helper
from onnx_ir.passes.common import IdentityEliminationPass


def value(name, *shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


body = helper.make_graph(
    [helper.make_node("Add", ["before", "step"], ["after"]), helper.make_node("Identity", ["after"], ["collected"])],
    "body",
    [value("before", 2), value("step", 2)],
    [value("after", 2), value("collected", 2)],
)
node = helper.make_node("Scan", ["start", "steps"], ["last", "all"], num_scan_inputs=1, body=body)
graph = helper.make_graph([node], "g", [value("start", 2), value("steps", 3, 2)], [value("last", 2), value("all", 3, 2)])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def results(proto):
    onnx.checker.check_model(proto)
    (body,) = (attribute.g for attribute in proto.graph.node[0].attribute if attribute.name == "body")
    return [output.name for output in body.output]


before = results(model)
changed = onnx_ir.from_proto(model)
IdentityEliminationPass()(changed)
after = results(onnx_ir.to_proto(changed))
print(f"outputs of the body before the pass {before}, afterwards {after}; onnx.checker accepts both")
assert before == ["after", "collected"]
assert after == ["collected", "collected"]
PYTHON
