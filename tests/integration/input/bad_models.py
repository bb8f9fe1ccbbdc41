"""Files that are no model, or none that can be used: one row each, with what the message has to hold."""

from __future__ import annotations

import dataclasses
import io
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info
from onnx.numpy_helper import from_array

from tests.integration.input.refusals import FAILURE, MISUSE

Make = Callable[[Path], Path]

EVERY_COMMAND = ("inspect", "optimize", "bench", "compare")
"""Those that take a model."""


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One file.

    Attributes:
        name: What is wrong with it.
        make: Writes it and what belongs to it into a folder.
        says: What the message holds, the file's name aside.
        status: How a command that is given it ends.
        commands: Those that do not work.
    """

    name: str
    make: Make
    says: Sequence[str]
    status: int = FAILURE
    commands: Sequence[str] = EVERY_COMMAND


X = make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
N = make_tensor_value_info("n", TensorProto.INT64, [2])
Y = make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])
WEIGHT = from_array(np.ones((2, 3), np.float32), "w")
ADD = make_node("Add", ["x", "w"], ["y"], name="plus")


def node(operator: str, reads: str, gives: str, name: str = "", **attributes: Any) -> onnx.NodeProto:
    return make_node(operator, reads.split(), gives.split(), name=name, **attributes)


def model(
    *nodes: onnx.NodeProto,
    inputs: Sequence[onnx.ValueInfoProto] = (X, N),
    outputs: Sequence[onnx.ValueInfoProto] = (Y,),
    weights: Sequence[TensorProto] = (),
    opsets: dict[str, int] | None = None,
    ir_version: int = 10,
) -> onnx.ModelProto:
    imports = [make_opsetid(*item) for item in ({"": 21} if opsets is None else opsets).items()]
    graph = make_graph(list(nodes), "g", list(inputs), list(outputs), list(weights))
    return make_model(graph, opset_imports=imports, ir_version=ir_version)


def file(content: bytes | str | onnx.ModelProto, name: str = "bad.onnx") -> Make:
    """Writes one file."""

    def make(folder: Path) -> Path:
        data = content.SerializeToString() if isinstance(content, onnx.ModelProto) else content
        (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)
        return folder / name

    return make


def folder(name: str) -> Make:
    def make(where: Path) -> Path:
        (where / name).mkdir()
        return where / name

    return make


def link_to_nothing(where: Path) -> Path:
    (where / "bad.onnx").symlink_to(where / "gone.onnx")
    return where / "bad.onnx"


def archive(*names: str) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as out:
        for name in names:
            out.writestr(name, b"1234")
    return written.getvalue()


def weight(**fields: Any) -> onnx.ModelProto:
    """A model with one weight made of these fields."""
    return model(ADD, weights=[TensorProto(name="w", **{"dims": [2, 3], "data_type": TensorProto.FLOAT, **fields})])


def constant(**fields: Any) -> onnx.ModelProto:
    """A model with a Constant of these fields."""
    made = node("Constant", "", "w", "held")
    tensor = TensorProto(**{"dims": [2, 3], "data_type": TensorProto.FLOAT, **fields})
    made.attribute.add(name="value", type=onnx.AttributeProto.TENSOR, t=tensor)
    return model(made, ADD)


def beside(data: bytes | None, **where: str) -> Make:
    """A model whose weight of 24 bytes is in a file beside it.

    Args:
        data: What the file holds; None if it is not there.
        **where: What the model says of the place; the file's right name unless given.
    """
    proto = weight(data_location=TensorProto.EXTERNAL)
    for key, value in {"location": "w.bin", **where}.items():
        proto.graph.initializer[0].external_data.add(key=key, value=value)

    def make(folder: Path) -> Path:
        if data is not None:
            (folder / "w.bin").write_bytes(data)
        return file(proto)(folder)

    return make


def linked_outside(where: Path) -> Path:
    (where.parent / "secret.bin").write_bytes(bytes(24))
    (where / "w.bin").symlink_to(where.parent / "secret.bin")
    return beside(None)(where)


def without_opset() -> onnx.ModelProto:
    return model(ADD, weights=[WEIGHT], opsets={})


def free(name: str, *dims: int | str) -> onnx.ModelProto:
    """A model with an input of these dimensions."""
    kind = [make_tensor_value_info(name, TensorProto.FLOAT, dims)]
    return model(node("Neg", name, "y"), inputs=kind, outputs=[make_tensor_value_info("y", TensorProto.FLOAT, None)])


def untyped() -> onnx.ModelProto:
    return model(node("Neg", "x", "y"), inputs=[onnx.ValueInfoProto(name="x"), N])


def of_no_element_type(number: int) -> onnx.ModelProto:
    value = onnx.ValueInfoProto(name="x")
    value.type.tensor_type.elem_type = number
    value.type.tensor_type.shape.dim.add(dim_value=2)
    return model(node("Neg", "x", "y"), inputs=[value, N])


def with_body(*nodes: onnx.NodeProto, gives: str) -> onnx.ModelProto:
    """An If whose first branch has these nodes."""
    bodies = {
        "then_branch": make_graph(list(nodes), "t", [], [make_tensor_value_info(gives, TensorProto.FLOAT, [2, 3])]),
        "else_branch": make_graph(
            [node("Neg", "x", "e")], "e", [], [make_tensor_value_info("e", TensorProto.FLOAT, [2, 3])]
        ),
    }
    is_it = from_array(np.array(True), "is_it")
    return model(node("If", "is_it", "y", "choice", **bodies), weights=[is_it])


NO_FILE = (
    Row("missing", lambda where: where / "gone.onnx", ["gone.onnx' does not exist"], MISUSE),
    Row("a folder", folder("bad.onnx"), ["bad.onnx' is a directory"], MISUSE),
    Row("a link to nothing", link_to_nothing, ["bad.onnx' does not exist"], MISUSE),
)

NO_MODEL = (
    Row("empty", file(b""), ["the file is empty"]),
    Row("text", file("to be\nor not to be\n"), ["it is text", ".textproto"]),
    Row("JSON under another name", file('{"irVersion": "10"}'), ["it is text", ".json"]),
    Row("a web page", file("<!DOCTYPE html>\n<html></html>"), ["a web page; download the file itself"]),
    Row("a Git LFS pointer", file("version https://git-lfs.github.com/spec/v1\n"), ["`git lfs pull`"]),
    Row("a pickle", file(b"\x80\x04\x95\x0b\0\0\0\0\0\0\0]."), ["a pickle, which is never opened"]),
    Row("a picture", file(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"), ["it is a picture"]),
    Row("an HDF5 file", file(b"\x89HDF\r\n\x1a\n\0\0"), ["HDF5", "tf2onnx"]),
    Row("a TensorFlow Lite model", file(b"\x1c\0\0\0TFL3\0\0"), ["TensorFlow Lite", "tf2onnx"]),
    Row("a NumPy array", file(b"\x93NUMPY\x01\0v\0{"), ["it is a NumPy array"]),
    Row("a ZIP archive", file(archive("a.onnx")), ["a ZIP archive; unpack it"]),
    Row("a damaged ZIP archive", file(archive("a.onnx")[:20]), ["a damaged ZIP archive"]),
    Row("a PyTorch file", file(archive("archive/data.pkl")), ["a PyTorch file", "torch.onnx.export"]),
    Row("a package", file(archive("manifest.json", "model.onnx")), ["it is a Collage package", "`collage run`"]),
    Row("noise", file(np.random.default_rng(0).bytes(5000)), ["cut off, damaged, or no ONNX model"]),
    Row("a model as JSON, damaged", file('{"irVersion": "10", ', "bad.json"), ["cut off, damaged, or no ONNX model"]),
    Row("bytes as JSON", file(b"\xff\xfe\x00", "bad.json"), ["cut off, damaged, or no ONNX model"]),
    Row("a model as text, damaged", file("graph { node {", "bad.textproto"), ["cut off, damaged, or no ONNX model"]),
    Row("a model in ONNX's syntax, damaged", file("<ir_version: 10> g (", "bad.onnxtxt"), ["no ONNX model"]),
    Row("a message without a graph", file(onnx.ModelProto(ir_version=10, producer_name="p")), ["holds no graph"]),
)

WEIGHTS_ELSEWHERE = (
    Row("external data missing", beside(None), ["'w'", "'w.bin'", "does not exist; put it beside the model"]),
    Row("external data cut off", beside(bytes(20)), ["'w'", "'w.bin'", "has 20 bytes, 24 are needed"]),
    Row("an offset beyond the end", beside(bytes(24), offset="8"), ["'w.bin'", "has 24 bytes, 32 are needed"]),
    Row("an offset beyond all files", beside(bytes(24), offset=str(2**70)), ["'w'", "offset", "no number of bytes"]),
    Row("a negative offset", beside(bytes(24), offset="-4"), ["'w'", "offset there is '-4'"]),
    Row("an offset that is no number", beside(bytes(24), offset="four"), ["'w'", "offset there is 'four'"]),
    Row("a length that is no number", beside(bytes(24), length="all"), ["'w'", "length there is 'all'"]),
    Row("a length below the shape's", beside(bytes(24), length="4"), ["'w'", "4 bytes", "[2,3] needs 24"]),
    Row("no location", beside(None, location=""), ["'w'", "does not say in which file"]),
    Row("a location no file can have", beside(None, location="a\0b"), ["'w'", "does not say in which file"]),
    Row("a folder as location", beside(None, location="."), ["'w'", "the file does not exist"]),
    Row("a path that leaves the folder", beside(None, location="../w.bin"), ["'w'", "outside the folder"]),
    Row("an absolute path", beside(None, location="/etc/passwd"), ["'w'", "'/etc/passwd'", "outside the folder"]),
    Row("a link that leaves the folder", linked_outside, ["'w'", "outside the folder"]),
)

TENSORS = (
    Row("a weight of fewer bytes than its shape has", file(weight(raw_data=bytes(20))), ["'w' holds fewer elements"]),
    Row("a weight of more", file(weight(raw_data=bytes(28))), ["'w' holds more elements than its shape [2, 3] has"]),
    Row("a weight of fewer numbers", file(weight(float_data=[1.0] * 4)), ["'w' holds fewer elements"]),
    Row("a weight of more numbers", file(weight(float_data=[1.0] * 8)), ["'w' holds more elements"]),
    Row("a weight of nothing", file(weight()), ["'w' holds fewer elements"]),
    Row("a weight of fewer texts", file(weight(data_type=8, string_data=[b"a"])), ["'w' holds fewer elements"]),
    Row("a negative extent", file(weight(dims=[-1, 3], raw_data=bytes(24))), ["'w' has a negative extent", "[-1, 3]"]),
    Row("a weight of no type", file(weight(data_type=0, raw_data=bytes(24))), ["'w' has no element type"]),
    Row("a weight of a type to come", file(weight(data_type=99, raw_data=bytes(24))), ["'w' is of element type 99"]),
    Row("a constant of fewer bytes", file(constant(raw_data=bytes(20))), ["'held' (Constant) holds fewer elements"]),
    Row("a constant of more", file(constant(raw_data=bytes(28))), ["'held' (Constant) holds more elements"]),
    Row("a constant of no type", file(constant(data_type=0)), ["'held' (Constant) has no element type"]),
)

PLUS_LATER = node("Add", "x later", "sum", "plus")
NEXT = node("Neg", "sum", "later", "minus")

GRAPHS = (
    Row(
        "nodes in a circle",
        file(model(PLUS_LATER, NEXT, node("Neg", "later", "y", "last"))),
        ["nodes go in a circle: 'minus' (Neg) -> 'plus' (Add) -> 'minus' (Neg)"],
    ),
    Row(
        "a node that reads itself",
        file(model(node("Add", "x y", "y", "self"))),
        ["nodes go in a circle: 'self' (Add) -> 'self' (Add)"],
    ),
    Row(
        "a circle in a branch",
        file(with_body(PLUS_LATER, NEXT, gives="later")),
        ["nodes go in a circle", "'plus' (Add)", "'minus' (Neg)"],
    ),
    Row(
        "a value given twice",
        file(model(node("Neg", "x", "a", "one"), node("Exp", "x", "a", "two"), node("Neg", "a", "y"))),
        ["'a' is given twice, by node 'one' (Neg) and by node 'two' (Exp)"],
    ),
    Row(
        "a node that gives an input",
        file(model(node("Neg", "n", "x", "one"), node("Exp", "x", "y"))),
        ["'x' is given twice, by an input and by node 'one' (Neg)"],
    ),
    Row(
        "a node that gives a weight",
        file(model(node("Neg", "x", "w", "one"), node("Exp", "w", "y"), weights=[WEIGHT])),
        ["'w' is given twice, by a weight and by node 'one' (Neg)"],
    ),
    Row("two inputs of one name", file(model(node("Neg", "x", "y"), inputs=[X, X, N])), ["inputs are named 'x'"]),
    Row("two weights of one name", file(model(ADD, weights=[WEIGHT, WEIGHT])), ["weights are named 'w'"]),
    Row(
        "a node that reads what nothing gives",
        file(model(node("Add", "x gone", "y", "plus"))),
        ["node 'plus' (Add) reads 'gone', which is no input, no weight and no output"],
    ),
    Row(
        "a branch that reads what nothing gives",
        file(with_body(node("Add", "x gone", "later", "plus"), gives="later")),
        ["node 'plus' (Add) reads 'gone'"],
    ),
    Row(
        "an output nothing gives",
        file(model(node("Neg", "x", "z"), outputs=[Y])),
        ["output 'y' is no input, no weight and no output of a node"],
    ),
    Row("no outputs", file(model(node("Neg", "x", "y"), outputs=[])), ["it has no outputs"]),
    Row("an input without a type", file(untyped()), ["input 'x' has no type"]),
    Row("an input of no element type", file(of_no_element_type(0)), ["input 'x' has no type"]),
    Row("an input of a type to come", file(of_no_element_type(99)), ["99"]),
    Row("a node of too many inputs", file(model(node("Neg", "x x", "y", "minus"))), ["'minus' (Neg) has 2 inputs"]),
    Row("a node of no inputs", file(model(node("Neg", "", "y", "minus"))), ["'minus' (Neg) has 0 inputs, 1 are"]),
    Row(
        "an attribute that is missing",
        file(model(node("Cast", "x", "y", "as_it_is"))),
        ["'as_it_is' (Cast) has no attribute 'to', which it needs"],
    ),
    Row(
        "an attribute of another type",
        file(model(node("Cast", "x", "y", "as_it_is", to="float"))),
        ["'as_it_is' (Cast) has an attribute 'to' of type STRING, not INT"],
    ),
)

VERSIONS = (
    Row("no opset", file(without_opset()), ["does not say of which opset its operators are", "'plus' (Add)"]),
    Row(
        "an opset of another domain only",
        file(model(ADD, weights=[WEIGHT], opsets={"ai.onnx.ml": 3})),
        ["does not say of which opset its operators are", "'plus' (Add)"],
    ),
    Row("opset 0", file(model(ADD, weights=[WEIGHT], opsets={"": 0})), ["there is no version 0 of ONNX's operators"]),
    Row("an opset to come", file(model(ADD, weights=[WEIGHT], opsets={"": 999})), ["opset 999", "newest known here"]),
    Row("an IR to come", file(model(ADD, weights=[WEIGHT], ir_version=99)), ["IR version 99", "newest known here"]),
)

ASKED = ("inspect", "optimize", "bench")
"""Those that can be told a shape; `compare` takes it from the package."""

SIZED = ("optimize", "bench")
"""Those that run the model; `inspect` leaves dimensions free."""

SHAPES = (
    Row(
        "a free dimension",
        file(free("image:0", "batch", 3)),
        ["input 'image:0': dimension batch", "is free; give the shape with --input-shapes image:0:[N,3]"],
        MISUSE,
        SIZED,
    ),
    Row(
        "a dimension without a name",
        file(free("x", "", 3)),
        ["input 'x': dimension", "--input-shapes x:[N,3]"],
        MISUSE,
        SIZED,
    ),
    Row(
        "an unknown rank",
        file(model(node("Neg", "x", "y"), inputs=[make_tensor_value_info("x", TensorProto.FLOAT, None)])),
        ["input 'x': its rank is unknown; give it with --input-shapes x:[...]"],
        MISUSE,
        SIZED,
    ),
    Row("a negative extent declared", file(free("x", -2, 3)), ["input 'x'", "negative extent"], commands=ASKED),
)

OF_THE_FILE = (*NO_FILE, *NO_MODEL, *WEIGHTS_ELSEWHERE, *TENSORS)
"""What is wrong with the file rather than with something in it that has a name."""

ROWS = (*OF_THE_FILE, *GRAPHS, *VERSIONS, *SHAPES)
