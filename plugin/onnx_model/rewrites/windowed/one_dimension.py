"""Computes signals, [N, C, W], as images of one row, [N, C, 1, W], from one windowed operator to the next."""

from __future__ import annotations

from onnx import ModelProto, NodeProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, editors, optional_input
from sartor.onnx_model.graphs.infer import infer_shapes

_SIGNAL_RANK = 3
_ROW_AXIS = 2
_FILTERED = ("Conv", "ConvTranspose")
_WINDOWED = (*_FILTERED, "AveragePool", "MaxPool", "LpPool")
# Attributes of one number per spatial dimension, and the number for the row.
_PER_DIMENSION = {"kernel_shape": 1, "strides": 1, "dilations": 1, "output_padding": 0, "output_shape": 1}
_UNARY = (
    *("Abs", "Ceil", "Celu", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log"),
    *("Mish", "Neg", "Reciprocal", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign", "Sqrt", "Tanh"),
)
_BROADCAST = ("Add", "Div", "Max", "Min", "Mul", "PRelu", "Pow", "Sub", "Sum")
# Operators whose further operands are scalars or one number per channel.
_BY_CHANNEL = ("BatchNormalization", "Clip", "InstanceNormalization")


def lift_signals(model: ModelProto) -> tuple[str, ...]:
    """Replace windowed operators over signals by those over images of one row; returns the names of the replaced nodes.

    All kernels for images then compute signals too. Elementwise operators and concatenations between them are lifted as
    well, so that no reshape lies between a layer and its activation.
    """
    changed: list[str] = []
    for editor in editors(model.graph):
        if any(_is_root(node, editor) for node in editor.nodes):
            changed += _Lifting(editor).run()
    if changed:
        infer_shapes(model)
    return tuple(changed)


def _is_root(node: NodeProto, editor: GraphEditor) -> bool:
    """Whether a node is a windowed operator over a signal of known shape."""
    if node.domain or node.op_type not in _WINDOWED or len([name for name in node.output if name]) > 1:
        return False
    shape = editor.shape(node.input[0])
    known = node.op_type not in _FILTERED or editor.rank(node.input[1]) == _SIGNAL_RANK
    return shape is not None and len(shape) == _SIGNAL_RANK and known


class _Lifting:
    """Rewrites one graph in the order of its nodes, and knows which values there are as images too."""

    def __init__(self, editor: GraphEditor) -> None:
        self._editor = editor
        self._images: dict[str, str] = {}
        self._raised: dict[str, str] = {}

    def run(self) -> tuple[str, ...]:
        return self._editor.rewrite(self._rewritten)

    def _rewritten(self, node: NodeProto) -> list[NodeProto] | None:
        emit = Emitter(self._editor, node)
        if _is_root(node, self._editor):
            return self._root(emit)
        if node.domain or len(node.output) != 1 or not any(name in self._images for name in node.input):
            return None
        if node.op_type in _UNARY:
            return self._lifted(emit, [self._image(emit, node.input[0])])
        if node.op_type in _BY_CHANNEL:
            return self._lifted(emit, [self._image(emit, node.input[0]), *node.input[1:]])
        if node.op_type in _BROADCAST and all(self._is_narrow(name) for name in node.input):
            return self._lifted(emit, [self._operand(emit, name) for name in node.input])
        if node.op_type == "Concat" and all(name in self._images for name in node.input):
            axis = attributes(node)["axis"] % _SIGNAL_RANK
            return self._lifted(emit, [self._images[name] for name in node.input], axis=axis + (axis >= _ROW_AXIS))
        return self._padded(emit) if node.op_type == "Pad" else None

    def _is_narrow(self, name: str) -> bool:
        """Whether a value is known to have no more dimensions than a signal."""
        rank = self._editor.rank(name)
        return rank is not None and rank <= _SIGNAL_RANK

    def _root(self, emit: Emitter) -> list[NodeProto]:
        node = emit.node
        inputs = [self._image(emit, node.input[0]), *node.input[1:]]
        if node.op_type in _FILTERED:
            inputs[1] = self._with_row(emit, node.input[1])
        settings = attributes(node)
        changed = {name: [one, *settings[name]] for name, one in _PER_DIMENSION.items() if name in settings}
        if "pads" in settings:
            begin, end = settings["pads"]
            changed["pads"] = [0, begin, 0, end]
        return self._lifted(emit, inputs, **changed)

    def _padded(self, emit: Emitter) -> list[NodeProto] | None:
        """A Pad of all axes by known amounts."""
        node = emit.node
        pads = self._editor.constant(optional_input(node, 1))
        if pads is None or optional_input(node, 3) or len(pads) != 2 * _SIGNAL_RANK:
            return None
        low, high = ([*half[:_ROW_AXIS], 0, *half[_ROW_AXIS:]] for half in (pads[:3].tolist(), pads[3:].tolist()))
        inputs = [self._image(emit, node.input[0]), emit.constant([*low, *high], "pads"), *node.input[2:]]
        return self._lifted(emit, inputs)

    def _lifted(self, emit: Emitter, inputs: list[str], **changed: object) -> list[NodeProto]:
        """Emit the node on images, and its result without the row; the latter is dropped if nothing reads it."""
        node = emit.node
        settings = attributes(node) | changed
        image = emit(node.op_type, *inputs, **settings)
        emit("Squeeze", image, emit.constant([_ROW_AXIS], "row"), part="signal", output=node.output[0])
        self._images[node.output[0]] = image
        return emit.nodes

    def _image(self, emit: Emitter, signal: str) -> str:
        """The image of a signal."""
        if signal not in self._images:
            self._images[signal] = emit("Unsqueeze", signal, emit.constant([_ROW_AXIS], "row"), part="image")
        return self._images[signal]

    def _operand(self, emit: Emitter, name: str) -> str:
        """An operand that is broadcast to a signal, such that it is broadcast to the image."""
        rank = self._editor.rank(name) or 0
        if rank < _ROW_AXIS:
            # A number, or one for each position along the last axis, which is the last one of the image too.
            return name
        return self._image(emit, name) if rank == _SIGNAL_RANK else self._with_row(emit, name, axis=1)

    def _with_row(self, emit: Emitter, name: str, axis: int = _ROW_AXIS) -> str:
        """Filters ``[O, I, K]`` or an operand ``[C, W]`` with an axis of one element for the row."""
        if name not in self._raised:
            known = self._editor.constant(name)
            if known is None:
                self._raised[name] = emit("Unsqueeze", name, emit.constant([axis], "row"), part="row")
            else:
                shape = (*known.shape[:axis], 1, *known.shape[axis:])
                self._raised[name] = emit.constant(known.reshape(shape), "row")
        return self._raised[name]
