"""Mutations of ONNX models: of fields, names, types, shapes, nesting, cycles and external data."""

from __future__ import annotations

from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, defs

from sartor.onnx_model.graphs.walk import messages
from tests.hostile.mutations import NUMBERS, REALS, TEXTS, damage_bytes

LOCATIONS = (
    "inside.bin",
    "../secret.bin",
    "sub/../../secret.bin",
    "link.bin",
    "folder-link/secret.bin",
    "hard.bin",
    "pipe",
    "missing.bin",
    ".",
    "/etc/passwd",
    "/dev/zero",
    "/proc/self/mem",
    "..\\secret.bin",
    "C:\\secret.bin",
    "",
    "inside.bin\0x",
)
"""Locations of external data; the runner creates files and links at most of the relative ones."""

_INTEGERS = (
    *(FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64),
    *(FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_ENUM),
)
_FLOATS = (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE)
_NESTED = 25
_MOST_DOUBLED = 1 << 16
_COPIES = 300
_ATTRIBUTE_TYPES = (AttributeProto.INT, AttributeProto.GRAPH, AttributeProto.STRINGS, AttributeProto.UNDEFINED)
_OPERATORS = tuple(sorted({schema.name for schema in defs.get_all_schemas() if not schema.domain}))
_WIRE_LIMITS = {FieldDescriptor.TYPE_INT32: 31, FieldDescriptor.TYPE_ENUM: 31}


def damage_model(data: bytes, random: Random) -> bytes:
    """Return a serialised model with damaged messages or bytes."""
    if random.random() < 0.3:
        return damage_bytes(data, random)
    model = ModelProto.FromString(data)
    if random.random() < 0.06:
        return _nested(model, random)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        random.choice(_DAMAGES)(model, random)
    try:
        content = model.SerializeToString()
    except (ValueError, DecodeError):
        return damage_bytes(data, random)
    return damage_bytes(content, random) if random.random() < 0.1 else content


def _some(model: ModelProto, kind: type[Message], random: Random) -> Any:
    """Return a random message of a type, or None if the model has none."""
    found = [message for message, _ in messages(model) if isinstance(message, kind)]
    return random.choice(found) if found else None


def _field(model: ModelProto, random: Random) -> None:
    message = random.choice([each for each, _ in messages(model)])
    field: Any = random.choice(list(message.DESCRIPTOR.fields))
    if field.message_type is not None:
        _damage_messages(message, field, random)
    elif field.is_repeated:
        values = getattr(message, field.name)
        if values and random.random() < 0.4:
            del values[random.randrange(len(values))]
        elif (value := _scalar(field, model, random)) is not None:
            values.append(value)
    elif random.random() < 0.2:
        message.ClearField(field.name)
    elif (value := _scalar(field, model, random)) is not None:
        setattr(message, field.name, value)


def _damage_messages(message: Message, field: FieldDescriptor, random: Random) -> None:
    """Remove, repeat or add messages in a field."""
    value = getattr(message, field.name)
    if not field.is_repeated:
        value.SetInParent() if random.random() < 0.5 else message.ClearField(field.name)
    elif not value:
        value.add()
    elif random.random() < 0.5:
        del value[random.randrange(len(value))]
    else:
        copied = value[random.randrange(len(value))]
        value.extend([copied] * random.choice((1, 1, 1, _COPIES)))


def _scalar(field: FieldDescriptor, model: ModelProto, random: Random) -> Any:
    if field.type in _INTEGERS:
        limit = 1 << _WIRE_LIMITS.get(field.type, 63)
        value = random.choice(NUMBERS) if random.random() < 0.5 else random.randrange(-3, 30)
        if field.enum_type is not None:
            value = random.choice([each.number for each in field.enum_type.values])
        return value % limit if value >= limit or field.type == FieldDescriptor.TYPE_UINT64 else max(value, -limit)
    if field.type in _FLOATS:
        real = random.choice(REALS)
        return real if field.type == FieldDescriptor.TYPE_DOUBLE or abs(real) < 1e38 else float("inf")
    if field.type == FieldDescriptor.TYPE_STRING:
        return _name(model, random)
    return random.randbytes(random.choice((0, 1, 4, 24, 1000)))


def _name(model: ModelProto, random: Random) -> str:
    if random.random() < 0.4:
        return random.choice(TEXTS)
    names = [name for node in model.graph.node for name in (*node.input, *node.output, node.op_type)]
    return random.choice(names or TEXTS)


def _shape(model: ModelProto, random: Random) -> None:
    """Set random dimensions of a value, or add some."""
    value: ValueInfoProto | None = _some(model, ValueInfoProto, random)
    if value is None:
        return
    dims = value.type.tensor_type.shape.dim
    for dim in dims:
        if random.random() < 0.5:
            dim.dim_value = random.choice(NUMBERS)
    if random.random() < 0.2:
        dims.add(dim_param=random.choice(TEXTS))
    if random.random() < 0.1:
        for _ in range(_COPIES):
            dims.add(dim_value=1)


def _tensor(model: ModelProto, random: Random) -> None:
    """Change a tensor's dimensions, type or data, or make its data external."""
    tensor: TensorProto | None = _some(model, TensorProto, random)
    if tensor is None:
        tensor = model.graph.initializer.add(name="w", data_type=1)
    action = random.randrange(5)
    if action == 0:
        tensor.dims.append(random.choice(NUMBERS))
    elif action == 1:
        tensor.data_type = random.randrange(30)
    elif action == 2:
        tensor.raw_data = random.randbytes(random.choice((0, 1, 24, 64)))
    elif action == 3 and tensor.dims:
        tensor.dims[random.randrange(len(tensor.dims))] = random.choice(NUMBERS)
    else:
        _make_external(tensor, random)


def _make_external(tensor: TensorProto, random: Random) -> None:
    tensor.ClearField("raw_data")
    tensor.ClearField("float_data")
    tensor.ClearField("int64_data")
    del tensor.external_data[:]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=random.choice(LOCATIONS))
    if random.random() < 0.4:
        del tensor.dims[:]
        tensor.dims.append(4)
        tensor.data_type = TensorProto.FLOAT
    for key in ("offset", "length", "held"):
        if random.random() < 0.2:
            tensor.external_data.add(key=key, value=str(random.choice((0, 4, 16, -1, 10**9, 10**18, "x"))))


def _node(model: ModelProto, random: Random) -> None:
    """Change a node's operator, operands, results, domain or attributes."""
    node: NodeProto | None = _some(model, NodeProto, random)
    if node is None:
        return
    action = random.randrange(7)
    if action == 0:
        node.op_type = random.choice(_OPERATORS)
    elif action == 1 and node.input:
        node.input[random.randrange(len(node.input))] = _name(model, random)
    elif action == 2 and node.output:
        node.output[random.randrange(len(node.output))] = _name(model, random)
    elif action == 3:
        del node.input[random.randrange(len(node.input) + 1) :]
    elif action == 4:
        node.input.extend([_name(model, random)] * random.choice((1, 2, _COPIES)))
    elif action == 5:
        node.domain = random.choice(("com.microsoft", "ai.onnx.ml", "x", "ai.onnx"))
    else:
        _attribute(node, random)


def _attribute(node: NodeProto, random: Random) -> None:
    if not node.attribute:
        node.attribute.add(name=random.choice(("axis", "axes", "to", "perm", "pads", "kernel_shape", "body")))
    attribute = random.choice(node.attribute)
    action = random.randrange(5)
    if action == 0:
        attribute.type = random.choice(
            (AttributeProto.INT, AttributeProto.GRAPH, AttributeProto.STRINGS, AttributeProto.UNDEFINED)
        )
    elif action == 1:
        attribute.type, attribute.i = AttributeProto.INT, random.choice(NUMBERS)
    elif action == 2:
        attribute.type = AttributeProto.INTS
        attribute.ints.extend(random.choice(NUMBERS) for _ in range(random.choice((1, 4, _COPIES))))
    elif action == 3 and attribute.ints:
        attribute.ints[random.randrange(len(attribute.ints))] = random.choice(NUMBERS)
    else:
        del attribute.ints[:]


def _order(model: ModelProto, random: Random) -> None:
    nodes = list(model.graph.node)
    random.shuffle(nodes)
    copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)


def _circle(model: ModelProto, random: Random) -> None:
    nodes = [node for node in model.graph.node if node.input and node.output]
    if nodes:
        random.choice(nodes).input[0] = random.choice(nodes).output[0]


def _nested(model: ModelProto, random: Random) -> bytes:
    """Return a serialised model whose graph is nested in bodies, sometimes deeper than protobuf allows."""
    graph = model.graph.SerializeToString()
    for _ in range(random.choice((1, 2, _NESTED, 2 * _NESTED))):
        node = NodeProto(op_type=random.choice(("If", "Loop", "Scan")), name="nest", input=["c"])
        node.output.extend(value.name for value in model.graph.output)
        names = ("then_branch", "else_branch") if node.op_type == "If" and len(graph) < _MOST_DOUBLED else ("body",)
        attributes = b""
        for name in names:
            start = AttributeProto(name=name, type=AttributeProto.GRAPH).SerializeToString()
            attributes += _field_bytes(NodeProto, "attribute", start + _field_bytes(AttributeProto, "g", graph))
        outer = GraphProto(name="outer", input=model.graph.input, output=model.graph.output).SerializeToString()
        graph = outer + _field_bytes(GraphProto, "node", node.SerializeToString() + attributes)
    rest = ModelProto()
    rest.CopyFrom(model)
    rest.ClearField("graph")
    return rest.SerializeToString() + _field_bytes(ModelProto, "graph", graph)


def _field_bytes(kind: type[Message], name: str, content: bytes) -> bytes:
    """Return the encoding of a message as a field of another message."""
    number, length = kind.DESCRIPTOR.fields_by_name[name].number << 3 | 2, len(content)
    return _varint(number) + _varint(length) + content


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def _growth(model: ModelProto, random: Random) -> None:
    """Append a chain of nodes that may double their operand's size each time."""
    source = model.graph.input[0].name if model.graph.input else "x"
    kind = random.choice(("Concat", "Add", "Tile", "Expand", "ConstantOfShape", "Range", "Pad"))
    for index in range(random.choice((10, 40, 400))):
        node = model.graph.node.add(op_type=kind, name=f"grow{index}", input=[source, source])
        source = f"grown{index}"
        node.output.append(source)
        if kind == "Concat":
            node.attribute.add(name="axis", type=AttributeProto.INT, i=0)
    if model.graph.output:
        model.graph.output[0].name = source
        model.graph.output[0].type.tensor_type.ClearField("shape")


def _opset(model: ModelProto, random: Random) -> None:
    if model.opset_import:
        model.opset_import[0].version = random.choice((*NUMBERS, *range(1, 27)))


_DAMAGES = (
    *(_field, _field, _field, _shape, _tensor, _tensor, _node, _node, _node),
    *(_order, _circle, _growth, _opset),
)
