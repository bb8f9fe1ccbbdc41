"""The three backends that run ONNX's node tests, with ONNX's backend interface."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import onnx
import onnx.reference
from onnx.backend.base import Backend, BackendRep

from collage.commands.compiler import Compiler
from collage.onnx_backend import CollageBackend, CollageRep
from collage.setup.settings import PRIVATE, SetupChoices
from collage.setup.toolchains import Toolchains

TOOLCHAINS = "onnxruntime,openvino,reference"
THREADS = 2


class Alone(BackendRep):  # type: ignore[misc]  # onnx has no types
    """A model run by one library.

    Args:
        model: The model.
        run: Takes output names, None for all, and inputs by name.
    """

    def __init__(self, model: onnx.ModelProto, run: Callable[[Any, Mapping[str, Any]], Sequence[Any]]) -> None:
        known = {tensor.name for tensor in model.graph.initializer}
        self._names = [value.name for value in model.graph.input if value.name not in known]
        self._run = run

    def run(self, inputs: Sequence[Any], **_: Any) -> tuple[Any, ...]:
        """Run the model on inputs in order."""
        return tuple(self._run(None, dict(zip(self._names, inputs, strict=True))))


class OnnxRuntimeAlone(Backend):  # type: ignore[misc]
    """ONNX Runtime with its defaults."""

    toolchains = ("onnxruntime",)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether the device is the CPU."""
        return device == "CPU"

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> Alone:
        """Create a session for a model."""
        import onnxruntime  # where it is not installed, its cases are all that cannot be run

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = THREADS
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return Alone(model, session.run)


class ReferenceAlone(Backend):  # type: ignore[misc]
    """ONNX's evaluator, unmodified."""

    toolchains = ("onnx",)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether the device is the CPU."""
        return device == "CPU"

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> Alone:
        """Create an evaluator for a model."""
        return Alone(model, onnx.reference.ReferenceEvaluator(model).run)


@contextlib.contextmanager
def backend(name: str) -> Iterator[tuple[type[Backend], Callable[[], tuple[str, ...]]]]:
    """Yield a backend and a function that returns which toolchains ran the model it prepared last."""
    if name == "onnxruntime":
        yield OnnxRuntimeAlone, lambda: OnnxRuntimeAlone.toolchains
    elif name == "reference":
        yield ReferenceAlone, lambda: ReferenceAlone.toolchains
    else:
        with Toolchains(SetupChoices(toolchains=TOOLCHAINS, tuning_db=PRIVATE, threads=THREADS)) as toolchains:
            shared = CollageBackend.sharing(Compiler(toolchains))
            prepared: list[CollageRep] = []

            class Remembering(shared):  # type: ignore[misc,valid-type]
                """Keeps what it prepared last."""

                @classmethod
                def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> CollageRep:
                    prepared[:] = [super().prepare(model, device, **options)]
                    return prepared[0]

            yield Remembering, lambda: prepared[0].toolchains if prepared else ()
