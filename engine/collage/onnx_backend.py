"""Collage as an ONNX backend: `prepare(model).run(inputs)`, as `onnx.backend.base` describes it.

    from collage_core import onnx_backend

    [y] = onnx_backend.prepare(onnx.load("model.onnx")).run([x])

A model is compiled when it is run first, since its kernels are checked on the values it is run on. Nothing is timed end
to end: for the fastest plan, and to save it, use `collage.optimize`.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

from collage.commands.compiler import Compiled, Compiler
from collage.process_guard import plugins_guarded
from collage.setup.settings import SetupChoices
from collage.setup.toolchains import Toolchains
from collage_core.errors import FeedError, UsageError
from collage_core.ir.io.model_io import model_from_bytes
from collage_core.registry import Registry


class CollageRep(BackendRep):  # type: ignore[misc]  # onnx has no types
    """A model that runs through Collage.

    Args:
        model: The model.
        compiler: Compiles the model.
    """

    def __init__(self, model: onnx.ModelProto, compiler: Compiler) -> None:
        self._model = model_from_bytes(model.SerializeToString())
        self._names = [str(value.name) for value in self._model.graph.inputs if not value.is_initializer()]
        self._compiler = compiler
        self._compiled: dict[object, Compiled] = {}

    def run(self, inputs: Any, **options: Any) -> tuple[Any, ...]:
        """Run the model; compile it first if it has not been run on inputs of these shapes.

        Args:
            inputs: A value for each input of the model, in order; or a mapping by name.
            **options: No options are supported.

        Raises:
            CollageError: If the inputs do not fit, or the model cannot be compiled or run.
        """
        if options:
            raise UsageError(f"run takes no {', '.join(options)}")
        feeds = self._named(inputs)
        return tuple(self.compiled(feeds).session.run(None, feeds))

    def compiled(self, feeds: Mapping[str, Any]) -> Compiled:
        """Return the model compiled for inputs of these shapes.

        Args:
            feeds: Values by name.
        """
        key = tuple((name, _shape(value)) for name, value in sorted(feeds.items()))
        if key not in self._compiled:
            self._compiled[key] = self._compiler.compile(self._model, feeds)
        return self._compiled[key]

    @property
    def toolchains(self) -> tuple[str, ...]:
        """Toolchains of the kernels compiled so far, sorted."""
        return tuple(sorted({name for each in self._compiled.values() for name in each.assembled.plan.toolchains}))

    def _named(self, inputs: Any) -> dict[str, Any]:
        if isinstance(inputs, Mapping):
            return dict(inputs)
        values = list(inputs) if isinstance(inputs, Sequence) else [inputs]
        if len(values) != len(self._names):
            raise FeedError("inputs", f"{len(values)} values for the {len(self._names)} inputs {self._names}")
        return dict(zip(self._names, values, strict=True))


class CollageBackend(Backend):  # type: ignore[misc]  # onnx has no types
    """The backend; each prepared model has its own workers unless a compiler is shared.

    Attributes:
        compiler: Compiler of prepared models; None to make one for each.
    """

    compiler: ClassVar[Compiler | None] = None

    @classmethod
    def sharing(cls, compiler: Compiler) -> type[CollageBackend]:
        """Return a backend class that uses existing workers, to share them between many models."""
        return type(cls.__name__, (cls,), {"compiler": compiler})

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether the device is supported; so far only the CPU is."""
        return device.partition(":")[0] == "CPU"

    @classmethod
    @plugins_guarded()
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> CollageRep:
        """Prepare a model to be run.

        Args:
            model: The ONNX model.
            device: `"CPU"`.
            **options: Where no compiler is shared, `toolchains`: comma-separated targets; by default every installed
                toolchain, with `reference` for operators that no other computes.

        Raises:
            UsageError: If the device or an option is unknown, or no toolchain is usable.
            ModelError: If it is not a valid model.
        """
        if not cls.supports_device(device):
            raise UsageError(f"the backend runs on the CPU, not on {device}")
        named = options.pop("toolchains", None)
        if options:
            raise UsageError(f"prepare takes no {', '.join(options)}")
        if cls.compiler is not None:
            return CollageRep(model, cls.compiler)
        registry = Registry.discover()
        wanted = named or ",".join(registry.toolchains)
        toolchains = Toolchains(SetupChoices(toolchains=wanted), registry=registry)
        prepared = CollageRep(model, Compiler(toolchains))
        weakref.finalize(prepared, toolchains.close)
        return prepared

    @classmethod
    def run_node(
        cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None, **options: Any
    ) -> tuple[Any, ...]:
        """Run one operator.

        Args:
            node: Node that holds the operator.
            inputs: A value for each of its inputs, except omitted ones.
            device: `"CPU"`.
            outputs_info: Ignored: types and shapes of outputs are inferred.
            **options: `opset_version` of the node's domain, the newest by default; others as in `prepare`.
        """
        version = options.pop("opset_version", None) or onnx.defs.onnx_opset_version()
        names = [name for name in node.input if name]
        values = list(inputs.values()) if isinstance(inputs, Mapping) else list(inputs)
        typed = [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype), np.shape(value)
            )
            for name, value in zip(names, values, strict=True)
        ]
        outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], node.op_type, typed, outputs)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid(node.domain, version)])
        return cls.prepare(model, device, **options).run(values)


def _shape(value: Any) -> object:
    """Return the part of a value that a compiled model depends on.

    For tensors that is the shape; for other values, which have no shape to depend on, the name of the type.
    """
    return np.shape(value) if isinstance(value, np.ndarray | np.generic) else type(value).__name__


prepare = CollageBackend.prepare
run_model = CollageBackend.run_model
run_node = CollageBackend.run_node
supports_device = CollageBackend.supports_device
