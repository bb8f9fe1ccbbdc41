"""Write an ONNX graph node by node; weights are only declared, and `weights.fill` gives them values.

A declared weight is an initializer with a name, a shape and a dtype but no data. The exported
skeletons have the same form, so one place determines the values of weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
IR_VERSION = 8


def declare(name: str, shape: Sequence[int]) -> TensorProto:
    """Create a float32 initializer of the given shape without data."""
    return TensorProto(name=name, data_type=TensorProto.FLOAT, dims=list(shape))


class GraphWriter:
    """Appends nodes to a graph; every method returns the name of the tensor it defines.

    Names are `<op>_<n>`, numbered per operator in the order of the calls, so they are the same in
    each build. Image tensors are N, C, H, W (or N, C, D, H, W).
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._initializers: list[TensorProto] = []
        self._counts: dict[str, int] = {}
        self._channels: dict[str, int] = {}

    def input(self, name: str, shape: Sequence[int | str], dtype: int = TensorProto.FLOAT) -> str:
        """Declare a graph input; a string in `shape` is a symbolic dimension."""
        self._inputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))
        if len(shape) > 1 and isinstance(shape[1], int):
            self._channels[name] = shape[1]
        return name

    def constant(self, value: np.ndarray[Any, Any], name: str) -> str:
        """Add an initializer with these values."""
        name = self._number(name)
        self._initializers.append(numpy_helper.from_array(value, name))
        return name

    def ints(self, *values: int) -> str:
        """Add a one-dimensional int64 initializer: a shape, axes, pads, starts or ends."""
        return self.constant(np.array(values, dtype=np.int64), "ints")

    def weight(self, name: str, *shape: int) -> str:
        """Declare a float32 weight, to be filled later."""
        name = self._number(name)
        self._initializers.append(declare(name, shape))
        return name

    def op(self, op_type: str, *inputs: str, channels: int | None = None, **attributes: Any) -> str:
        """Append a node with one output.

        Args:
            op_type: An operator of the default domain.
            *inputs: Input tensors; "" leaves an optional input out.
            channels: Channels (dimension 1) of the output, where it is not that of the first input.
            **attributes: Attributes of the node.
        """
        return self.ops(op_type, 1, *inputs, channels=channels, **attributes)[0]

    def ops(
        self,
        op_type: str,
        n_outputs: int,
        *inputs: str,
        channels: int | None = None,
        **attributes: Any,
    ) -> list[str]:
        """Append a node with several outputs, as `op` does."""
        name = self._number(op_type.lower())
        outputs = [name] if n_outputs == 1 else [f"{name}_{i}" for i in range(n_outputs)]
        self._nodes.append(helper.make_node(op_type, list(inputs), outputs, name, **attributes))
        known = channels or self._channels.get(inputs[0] if inputs else "")
        if known:
            self._channels.update(dict.fromkeys(outputs, known))
        return outputs

    def channels(self, tensor: str) -> int:
        """Return the number of channels (dimension 1) of a tensor."""
        return self._channels[tensor]

    def conv(
        self,
        x: str,
        out: int,
        kernel: int | Sequence[int] = 1,
        *,
        stride: int | Sequence[int] = 1,
        dilation: int = 1,
        group: int = 1,
        bias: bool = True,
        pad: bool = True,
    ) -> str:
        """Append a convolution, 2-D unless `kernel` says else; `pad` keeps the size (at stride 1)."""
        sizes = [kernel, kernel] if isinstance(kernel, int) else list(kernel)
        strides = [stride] * len(sizes) if isinstance(stride, int) else list(stride)
        pads = [dilation * (size // 2) if pad else 0 for size in sizes]
        parameters = [self.weight("conv_weight", out, self.channels(x) // group, *sizes)]
        if bias:
            parameters.append(self.weight("conv_bias", out))
        return self.op(
            "Conv",
            x,
            *parameters,
            channels=out,
            kernel_shape=sizes,
            strides=strides,
            dilations=[dilation] * len(sizes),
            pads=pads + pads,
            group=group,
        )

    def batch_norm(self, x: str) -> str:
        """Append an inference BatchNormalization."""
        roles = ("scale", "bias", "mean", "var")
        parameters = [self.weight(f"bn_{role}", self.channels(x)) for role in roles]
        return self.op("BatchNormalization", x, *parameters, epsilon=1e-5)

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        """Append MatMul and Add: a dense layer over the last axis."""
        product = self.op("MatMul", x, self.weight("matmul_weight", inputs, outputs))
        return self.op("Add", product, self.weight("add_bias", outputs))

    def model(self, *outputs: str, rename: Sequence[str] = ()) -> onnx.ModelProto:
        """Finish: the model with these outputs, whose types shape inference supplies.

        Args:
            *outputs: Tensors that become graph outputs.
            rename: Names the outputs get instead of their own.
        """
        renamed = dict(zip(outputs, rename, strict=True)) if rename else {}
        for node in self._nodes:
            for names in (node.input, node.output):
                names[:] = [renamed.get(name, name) for name in names]
        finals = [renamed.get(name, name) for name in outputs]
        graph = helper.make_graph(
            self._nodes,
            self._name,
            self._inputs,
            [onnx.ValueInfoProto(name=name) for name in finals],
            self._initializers,
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="collage-benchmarks",
        )
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        del graph.output[:]
        graph.output.extend(inferred.graph.output)
        model.graph.CopyFrom(graph)
        return model

    def _number(self, stem: str) -> str:
        count = self._counts.get(stem, 0)
        self._counts[stem] = count + 1
        return f"{stem}_{count}"
