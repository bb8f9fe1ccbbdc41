"""The process that prepares and evaluates models: `python -m collage.measure.models.model_main --memory BYTES`.

What a model makes expensive happens here, so that it costs this process and not the driver. An allocation beyond the
limit fails here, where it is known which node asked for it; the driver watches the resident size as well.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx_ir as ir

from collage.errors import WireError
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.channel import Channel, prepare_process
from collage.measure.wire.function_codec import FunctionEncoder, decode_function
from collage.measure.wire.messages import Hello, Message
from collage.measure.wire.model_messages import (
    AT_NODE,
    AskNode,
    AskPrepareModel,
    AskReference,
    ModelFailed,
    ModelPrepared,
    NodeValues,
    ReferenceValues,
)
from collage.measure.wire.values import decode_value, encode_value
from collage.prepare.exchange import read_given, write_prepared
from collage.prepare.steps import prepare
from collage.reference.evaluator import check_size, evaluate
from collage_core.contract import KernelFunction
from collage_core.errors import CollageError
from collage_core.ir.graph.dataflow import DataflowGraph

_NAME_CHARACTERS = 200
_STDERR = 2
_FACTS = (str, int, float, bool, tuple, list, type(None))


class ModelMain:
    """Answers requests one at a time.

    Args:
        channel: To the driver.
        memory_bytes: Most memory that this process may take.
    """

    def __init__(self, channel: Channel, memory_bytes: int) -> None:
        self._channel = channel
        self._memory_bytes = memory_bytes
        self._request = 0
        self._model: tuple[tuple[str, str], ir.Model] | None = None

    def serve(self) -> None:
        """Answer requests until the driver disconnects.

        Raises:
            WireError: If the driver sends an invalid message.
        """
        while (frame := self._channel.receive()) is not None:
            self._request = frame.id
            message = self._channel.codec.decode(frame)
            try:
                answer = self._answer(message)
            except WireError:
                raise
            except Exception as error:  # whatever a model causes is an answer
                answer = _failed(error)
            self._say(answer)
            gc.collect()  # models are full of cycles

    def _answer(self, message: Message) -> Message:
        match message:
            case AskPrepareModel():
                folder = Path(message.folder)
                prepared = prepare(read_given(folder), input_shapes=message.input_shapes, keep_free=message.keep_free)
                for node in prepared.graph:  # libraries that are asked about the model compute what is constant
                    check_size(node, self._memory_bytes)
                with contextlib.suppress(Exception):  # what is wrong with the graph is told in the driver
                    DataflowGraph(prepared)  # the driver builds it, too; here it is held to the limits
                write_prepared(prepared, folder)
                return ModelPrepared()
            case AskReference():
                return self._evaluated(message)
        raise WireError(f"{type(message).__name__} is no request")

    def _evaluated(self, ask: AskReference) -> ReferenceValues:
        store = BlobStore(Path(ask.store))
        place = (ask.store, ask.model.model)  # its weights are read there when they are needed
        if self._model is None or self._model[0] != place:
            self._model = (place, decode_function(ask.model, store).model)
        encoder = FunctionEncoder(store)

        def fallback(model: ir.Model, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
            function = KernelFunction(name="node", model=model, inputs=(), outputs=())
            values = {name: encode_value(value, store) for name, value in inputs.items()}
            self._say(AskNode(model=encoder.encode(function), inputs=values))
            frame = self._channel.receive()
            answer = None if frame is None else self._channel.codec.decode(frame)
            if not isinstance(answer, NodeValues):
                raise WireError(f"{type(answer).__name__} is no answer to AskNode")
            if answer.failure:
                raise CollageError(answer.failure)
            return {name: decode_value(value, store) for name, value in answer.values.items()}

        evaluation = evaluate(
            self._model[1],
            {name: decode_value(value, store) for name, value in ask.inputs.items()},
            fallback=fallback if ask.has_fallback else None,
            deadline_s=ask.deadline_s,
            keep=None if ask.keep is None else frozenset(ask.keep).__contains__,
            kept_as=lambda value: encode_value(value, store),
            memory_bytes=self._memory_bytes,
            begun=_note,
            conditioned=ask.conditioned,
        )
        values = {
            name: dataclasses.replace(value, conditioning=evaluation.conditioning.get(name))
            for name, value in evaluation.values.items()
        }
        return ReferenceValues(values=values, unchecked=evaluation.unchecked)

    def _say(self, message: Message) -> None:
        self._channel.send(self._channel.codec.encode(message, self._request))


def _note(node: ir.Node) -> None:
    """Leave the name of a node as the last words of this process, in place of the one before."""
    with contextlib.suppress(OSError):  # standard error may be a terminal
        os.ftruncate(_STDERR, 0)
    with contextlib.suppress(OSError):  # its disk may be full
        os.write(_STDERR, f"{AT_NODE}{str(node.name)[:_NAME_CHARACTERS]!r} ({node.op_type})\n".encode())


def _failed(error: Exception) -> ModelFailed:
    own = isinstance(error, CollageError)
    facts = {name: value for name, value in vars(error).items() if isinstance(value, _FACTS)} if own else None
    system = None
    if isinstance(error, OSError) and error.errno is not None:
        file = None if error.filename is None else str(error.filename)
        system = (error.errno, str(error.strerror), file)
    return ModelFailed(kind=type(error).__name__, message=str(error), facts=facts, system=system)


def limit_data(nbytes: int) -> None:
    """Have allocations fail that would take this process's data beyond what it has now and `nbytes` more.

    The limit is on memory of its own: mapped files, such as weights, do not count.
    """
    with contextlib.suppress(ImportError, OSError, ValueError):  # where there are no such limits
        import resource

        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        held = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:"))
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (held + nbytes, hard))


def main() -> None:
    """Answer until the driver exits."""
    parser = argparse.ArgumentParser(prog="python -m collage.measure.models.model_main", description=__doc__)
    parser.add_argument("--kernel-kills", action="store_true")
    parser.add_argument("--memory", type=int, required=True, metavar="BYTES")
    options = parser.parse_args()
    prepare_process(kernel_kills=options.kernel_kills)
    channel = Channel.take_standard_streams()
    channel.die_with_driver()
    limit_data(options.memory)
    channel.send(channel.codec.encode(Hello(toolchain=""), 0))
    ModelMain(channel, options.memory).serve()


if __name__ == "__main__":
    main()
