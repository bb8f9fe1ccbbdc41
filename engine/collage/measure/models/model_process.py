"""The driver's end of the process that prepares and evaluates models, with a memory limit and deadlines."""

from __future__ import annotations

import functools
import math
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import onnx_ir as ir

import collage.errors
import collage_core.errors
from collage.disk_space import is_full
from collage.errors import ModelCostError, WireError, WorkerError
from collage.measure.driver import memory
from collage.measure.driver.child import KERNEL_KILLED, ChildProcess
from collage.measure.models import idle
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.codec import Codec
from collage.measure.wire.function_codec import FunctionEncoder, decode_function
from collage.measure.wire.messages import Hello, Message
from collage.measure.wire.model_messages import AT_NODE, AskNode, AskReference, ModelFailed, NodeValues, ReferenceValues
from collage.measure.wire.values import decode_value, encode_value
from collage.measure.wire.wire_values import WireFunction, WireValue
from collage.reference import Fallback
from collage_core.contract import KernelFunction
from collage_core.errors import CollageError, DeadlineExceededError, InvalidModelError, NodeMemoryError, UsageError

MEMORY_VARIABLE = "COLLAGE_MODEL_MEMORY"
"""Environment variable: memory in GiB that preparing or evaluating a model may take beside its weights and inputs."""

MEMORY_GIB = 1.5
_STEP_BYTES = 16 << 20
"""What is allowed beside is rounded up to this, so that one process serves for models of about one size."""
_START_S = 120.0
_GRACE_S = 2.0
"""Seconds after its deadline in which the process may say itself that time is up."""
MEMORY_ERRORS = ("MemoryError", "_ArrayMemoryError")
"""Python's own and NumPy's."""


def weights_bytes(model: ir.Model) -> int:
    """Return the size of a model's weights."""
    return sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value is not None)


def memory_allowance() -> int:
    """Return the bytes that preparing or evaluating a model may take beside its weights and inputs.

    Raises:
        UsageError: If the environment variable does not hold a positive number.
    """
    text = os.environ.get(MEMORY_VARIABLE, "").strip() or str(MEMORY_GIB)
    try:
        gib = float(text)
    except ValueError:
        gib = math.nan
    if not 0 < gib < math.inf:
        raise UsageError(f"{MEMORY_VARIABLE} is a number of GiB above 0, not {text!r}")
    return int(gib * 2**30)


class ModelProcess:
    """Prepares and evaluates models in a process of its own, which is started when it is first needed.

    After a failure the next request starts another. One without a failure is kept for the next `ModelProcess`.

    Args:
        allowance_bytes: Most memory beside weights and inputs; what the environment says if None.
    """

    def __init__(self, *, allowance_bytes: int | None = None) -> None:
        self._allowance = memory_allowance() if allowance_bytes is None else allowance_bytes
        self._codec = Codec()
        self._child: ChildProcess | None = None
        self._limit = 0
        self._began_in: object = None
        self._requests = 0
        self._encoded: tuple[ir.Model, Path, WireFunction] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """Process identifier while it runs."""
        return None if self._child is None else self._child.pid

    def close(self) -> None:
        """Give the process up; it is kept for another, or ended."""
        if self._child is not None:
            idle.keep(self._child, self._limit, self._began_in)
            self._child = None

    def _kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None

    def evaluate(
        self,
        model: ir.Model,
        inputs: Mapping[str, Any],
        store: BlobStore,
        *,
        keep: Collection[str] | None = None,
        fallback: Fallback | None = None,
        deadline_s: float,
        conditioned: bool = True,
    ) -> ReferenceValues:
        """Evaluate a prepared model with the reference.

        Args:
            model: The prepared model.
            inputs: A value for each of its inputs.
            store: Receives the values; `decode_value` maps them.
            keep: Names of the values to return; all if None.
            fallback: Computes nodes that the reference cannot, in this process.
            deadline_s: Seconds it may take.
            conditioned: Whether to find out what rounding does to the values.

        Raises:
            EvaluationError: If a node cannot be computed.
            ModelCostError: If it takes too much memory or time.
        """
        ask = AskReference(
            store=str(store.directory),
            model=self._wire(model, store),
            inputs={name: encode_value(value, store) for name, value in inputs.items()},
            keep=None if keep is None else tuple(sorted(keep)),
            deadline_s=deadline_s,
            has_fallback=fallback is not None,
            conditioned=conditioned,
        )
        what = "the reference run of the model"
        known = weights_bytes(model) + sum(map(_wire_bytes, ask.inputs.values()))
        answered = functools.partial(_computed, fallback=fallback, store=store)
        answer = self.ask(ask, what, deadline_s, known, answered)
        if isinstance(answer, ModelFailed):
            self.fail(answer, what, deadline_s)
        if not isinstance(answer, ReferenceValues):
            raise WireError(f"{type(answer).__name__} is no answer to AskReference")
        return answer

    def _wire(self, model: ir.Model, store: BlobStore) -> WireFunction:
        """Encode a model once for each store."""
        if self._encoded is None or self._encoded[:2] != (model, store.directory):
            function = KernelFunction(name="model", model=model, inputs=(), outputs=())
            self._encoded = (model, store.directory, FunctionEncoder(store).encode(function))
        return self._encoded[2]

    def ask(
        self,
        message: Message,
        what: str,
        deadline_s: float,
        known_bytes: int,
        answered: Callable[[AskNode], NodeValues] | None = None,
    ) -> Message:
        """Send a request and return the answer.

        Args:
            message: The request.
            what: Name of the work, for errors.
            deadline_s: Seconds it may take.
            known_bytes: Size of the weights and inputs, beside which the process may take memory.
            answered: Answers the process's own requests.

        Raises:
            CollageError: If the process takes too much memory or time, or ends.
        """
        try:
            child = self._started(known_bytes)
            self._requests += 1
            deadline = child.deadline(deadline_s + _GRACE_S)
            child.send(self._codec.encode(message, self._requests), deadline)
            while True:
                answer = self._codec.decode(child.receive(deadline))
                if answered is None or not isinstance(answer, AskNode):
                    return answer
                began = time.monotonic()
                values = answered(answer)
                deadline += time.monotonic() - began  # that has a deadline of its own
                child.send(self._codec.encode(values, self._requests), deadline)
        except WorkerError as error:
            self._kill()
            if error.kind == "deadline" and self._requests:
                raise ModelCostError.late(what, deadline_s, _place(error)) from error
            if error.reason.startswith(KERNEL_KILLED):
                raise ModelCostError.killed(what, _place(error)) from error
            if error.kind == "memory":
                raise ModelCostError.large(what, self._limit, MEMORY_VARIABLE, _place(error)) from error
            if error.kind == "crash" and self._requests and error.reason.startswith("killed"):
                if error.reason.startswith(f"killed by {signal.SIGKILL.name}"):  # no model's code ends like that
                    raise ModelCostError.killed(what, _place(error), known=False) from error
                if "bad_alloc" in error.reason:
                    raise ModelCostError.large(what, self._limit, MEMORY_VARIABLE) from error
                raise InvalidModelError(f"{what} ends the process: {error.reason}") from error
            raise
        except BaseException:  # an interrupted conversation cannot be taken up again
            self._kill()
            raise

    def _started(self, known_bytes: int) -> ChildProcess:
        """Return the process, another one if the limit of this one is lower than what is now allowed."""
        beside = -(-3 * known_bytes // _STEP_BYTES) * _STEP_BYTES
        limit = min(memory.limit_bytes(), self._allowance + beside)
        if self._child is not None and (not self._child.alive or self._limit < limit):
            self._kill()
        if self._child is None:
            self._limit, self._requests = limit, 0
            self._began_in = idle.surroundings()
            self._child = idle.take(limit)
        if self._child is None:
            # the margin is what the process's own imports may take
            self._child = ChildProcess(
                "reference",
                "collage.measure.models.model_main",
                ["--memory", str(limit)],
                memory_limit_bytes=limit + (256 << 20),
            )
            hello = self._codec.decode(self._child.receive(self._child.deadline(_START_S)))
            if not isinstance(hello, Hello):
                raise WireError(f"its first words were {type(hello).__name__}")
        return self._child

    def fail(self, failed: ModelFailed, what: str, deadline_s: float) -> NoReturn:
        """Raise what the process raised.

        Raises:
            CollageError: Always.
        """
        if failed.kind in (*MEMORY_ERRORS, NodeMemoryError.__name__):
            raise ModelCostError.large(what, self._limit, MEMORY_VARIABLE, failed.message)
        if failed.kind == "RecursionError":
            raise InvalidModelError(f"{what} fails because functions or graphs are nested too deeply")
        if failed.kind == DeadlineExceededError.__name__:
            raise ModelCostError.late(what, deadline_s, failed.message.partition(" did not")[0])
        if failed.system is not None:
            cause = OSError(*failed.system)
            raise system_error(what, cause) from cause
        kind = getattr(collage_core.errors, failed.kind, None) or getattr(collage.errors, failed.kind, None)
        if failed.facts is None or not isinstance(kind, type) or not issubclass(kind, CollageError):
            raise CollageError(f"{what} failed: {failed.kind}: {failed.message}")
        error = kind.__new__(kind)
        Exception.__init__(error, failed.message)
        for name, value in failed.facts.items():
            setattr(error, name, tuple(value) if isinstance(value, list) else value)
        raise error


def system_error(what: str, error: OSError) -> CollageError:
    """Return an error of the operating system as one of Collage's, with what to do about a full disk."""
    advice = " Make room, or set TMPDIR to a folder on a larger disk." if is_full(error) else ""
    return CollageError(f"{what} failed: {error}.{advice}")


def _computed(ask: AskNode, fallback: Fallback | None, store: BlobStore) -> NodeValues:
    if fallback is None:
        return NodeValues(values={}, failure="there is no fallback")
    inputs = {name: decode_value(value, store) for name, value in ask.inputs.items()}
    try:
        values = fallback(decode_function(ask.model, store).model, inputs)
    except CollageError as error:
        return NodeValues(values={}, failure=getattr(error, "reason", str(error)))
    return NodeValues(values={name: encode_value(value, store) for name, value in values.items()})


def _place(error: WorkerError) -> str:
    """Return at which node the process was; empty if it did not say."""
    words = error.reason.rpartition(" | ")[2].rpartition("its last words: ")[2]
    return words if words.startswith(AT_NODE) else ""


def _wire_bytes(value: WireValue) -> int:
    if value.kind == "sequence":
        return sum(map(_wire_bytes, value.items))
    if value.kind != "tensor":
        return 0
    return math.prod(value.shape) * ir.DataType[value.dtype].bitwidth // 8
