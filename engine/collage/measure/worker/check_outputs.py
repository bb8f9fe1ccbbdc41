"""Check a bound kernel's outputs: detect wrong, missing, stale and stray writes.

The first run starts from outputs that are wrong everywhere, the second from the outputs of the first. The first
reveals elements that are never written, the second elements that are accumulated into. After the kernel was timed it
is judged once more, as plans use it.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx_ir

from collage.measure.wire.blobs import BlobStore, drop_pages
from collage.measure.wire.outcomes import Failed, Refused, Stage, Tolerance
from collage.measure.wire.values import decode_value
from collage.measure.wire.wire_values import WireValue
from collage.measure.worker.failing import Stopped, failing_as
from collage.measure.worker.guarded_memory import overrun
from collage.measure.worker.staged import Staged
from collage.measure.worker.verdicts import aliased, judged, same_bits, spoil
from collage.reference.choices import Behind
from collage.reference.judge import Judge
from collage_core.contract import BoundCall, Buffer, Kernel, KernelFunction, ValueKind
from collage_core.ir.values.content import constant_of

_LATE_S = 0.01
"""Seconds after a call at which its outputs are judged once more: a thread that it left behind may still write."""
_LARGE_BYTES = 256 << 20
"""Bytes of inputs and outputs beyond which a kernel is not bound a second time, which would double what it takes."""
_COUNTED = frozenset({"Compress", "NonMaxSuppression", "NonZero", "Unique"})
"""Operators that write as many results as their values ask for."""
_INDICES = frozenset({onnx_ir.DataType.INT32, onnx_ir.DataType.INT64, onnx_ir.DataType.UINT32, onnx_ir.DataType.UINT64})
"""Dtypes of values that may be indices."""
_OTHER_BITS = "it gave other bits when run again, and --deterministic asks for the same"


@dataclasses.dataclass(frozen=True, slots=True)
class Bound:
    """A kernel ready to be called.

    Attributes:
        kernel: What was bound.
        call: The call.
        inputs: Its inputs, holding the given values.
        outputs: Its output buffers.
        staged: For a device kernel, its device buffers, of which `inputs` and `outputs` are the host counterparts.
        workspace: For a CPU kernel, its scratch memory; the kernel may retain only the address.
    """

    kernel: Kernel
    call: BoundCall
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    staged: Staged | None = None
    workspace: Buffer | None = None


Another: TypeAlias = tuple[Bound, Callable[[], None]]
"""Another binding of a kernel, and what calls it."""


class OutputCheck:
    """Judges what a kernel writes.

    Args:
        given: What its inputs hold.
        expected: What its outputs should hold; None for what the reference cannot say.
        store: Has the expected values.
        function: What it computes, with its roundings to quanta.
        correct: Whether outputs have to be correct; otherwise only their error counts.
        tolerance: How large the error may be.
        quanta: Whether the function's roundings to quanta are the model's; otherwise their error counts.
        behind: Values inside the function that its choices are between, by name.
        deterministic: Whether all runs have to give the same bits.
        is_brief: Whether each kernel is judged once only, so that nothing is kept to compare further runs with.
    """

    def __init__(
        self,
        given: Sequence[Any],
        expected: Sequence[WireValue | None],
        store: BlobStore,
        function: KernelFunction,
        *,
        correct: bool,
        tolerance: Tolerance,
        deterministic: bool,
        quanta: bool = True,
        behind: Mapping[str, WireValue] | None = None,
        is_brief: bool = False,
    ) -> None:
        self._given = given
        self._is_brief = is_brief
        self._rights = [None if value is None else decode_value(value, store) for value in expected]
        self._conditioning = [None if value is None else value.conditioning for value in expected]
        graph = function.model.graph
        inputs = {spec.name: value for spec, value in zip(function.inputs, given, strict=True)}

        def between(value: onnx_ir.Value) -> Behind | None:
            if (constant := constant_of(value)) is not None:
                return constant.numpy(), None
            name = str(value.name)
            if name in inputs:
                return np.asarray(inputs[name]), None
            held = (behind or {}).get(name)
            return None if held is None else (np.asarray(decode_value(held, store)), held.conditioning)

        judge = functools.partial(
            Judge,
            graph,
            correct=correct,
            relative=tolerance.relative,
            mismatched=tolerance.mismatched,
            quanta=quanta,
        )
        self._judge, self._judge_of_itself = judge(behind=between), judge()
        self._right: list[Any] = []  # copies of the outputs that were found right last, and their error
        self._error = 0.0
        self._deterministic = deterministic
        bodies = [graph.all_nodes(), *(each.all_nodes() for each in function.model.functions.values())]
        self._may_vary = all(node.op_type not in _COUNTED for nodes in bodies for node in nodes)

    def once(self, bound: Bound, run: Callable[[], None]) -> float:
        """Run a kernel and judge it.

        Args:
            bound: The kernel.
            run: Calls it; where that is on a device, with its values brought there and back.

        Returns:
            The error.

        Raises:
            Stopped: If it is wrong.
        """
        self._spoil(bound)
        places = [buffer.value for buffer in (*bound.inputs, *bound.outputs)]
        run()
        with failing_as(Stage.CHECK):
            problem = aliased(bound.inputs, bound.outputs, places)
        if problem:
            raise Stopped(Failed(stage=Stage.CHECK, reason=problem))
        error = self._judged(bound)
        self._check_inputs(bound, self._given)
        for value in (*self._given, *self._rights):
            drop_pages(value)
        return error

    def twice(self, bound: Bound, run: Callable[[], None]) -> tuple[float, bool]:
        """Run a kernel twice and judge it.

        Args:
            bound: The kernel.
            run: As for `once`.

        Returns:
            The larger error, and whether both gave the same bits.

        Raises:
            Stopped: If it is wrong, or may not be used.
        """
        first, kept = self.once(bound, run), self._right
        run()
        same = [same_bits(buffer.value, value) for buffer, value in zip(bound.outputs, kept, strict=True)]
        if all(same):
            return first, True
        # where the model itself asks for chance, which the reference cannot say, other bits are no fault
        varies = [not each and right is not None for each, right in zip(same, self._rights, strict=True)]
        if self._deterministic and any(varies):
            raise Stopped(Refused(reason=_OTHER_BITS))
        return max(first, self._judged(bound, " when run again")), False

    def as_used(self, bound: Bound, run: Callable[[], None], another: Callable[[Sequence[Any]], Another]) -> float:
        """Check a kernel again after many calls, as plans use it: bound to other memory, and on other values.

        It is bound once more, with other values of its inputs in place, and both bindings run on these: they must
        agree. So one that keeps what its inputs held when it was bound or called first is found, though no reference
        was run on these values. Where their number of results depends on them, they stay the same: the memory of a plan
        may hold as many as the model says, and no more. A kernel of very large tensors is not bound once more.

        Args:
            bound: The kernel, after it was timed.
            run: Calls it.
            another: Binds the same kernel to other memory that holds these inputs; the second part calls that.

        Returns:
            The largest error on the given values.

        Raises:
            Stopped: If it is wrong, or may not be used.
        """
        self._spoil(bound)
        run()
        error = self._judged(bound, " after many calls")
        if sum(getattr(buffer.value, "nbytes", 0) for buffer in (*bound.inputs, *bound.outputs)) > _LARGE_BYTES:
            return error
        values = list(self._given)
        if self._may_vary:
            values = [_turned(buffer, value) for buffer, value in zip(bound.inputs, values, strict=True)]
        second, run_second = another(values)
        run_second()
        for buffer, value in zip(bound.inputs, values, strict=True):
            buffer.put(value)
        self._spoil(bound)
        run()
        agreed = [
            None if right is None else buffer.value  # copies of large results would double what a kernel takes
            for buffer, right in zip(second.outputs, self._rights, strict=True)
        ]
        self._judged(bound, " on other values, or bound to other memory: it disagrees with itself", agreed)
        self._check_inputs(bound, values)
        for buffer, value in zip(bound.inputs, self._given, strict=True):
            buffer.put(value)
        self._spoil(bound)
        run()
        time.sleep(_LATE_S)
        return max(error, self._judged(bound, " on the first values again, or later than its call"))

    def _spoil(self, bound: Bound) -> None:
        for buffer, right in zip(bound.outputs, self._rights, strict=True):
            spoil(buffer, right)

    def _judged(self, bound: Bound, when: str = "", agreed: Sequence[Any] | None = None) -> float:
        """Return the largest error of what a kernel wrote, and check that it wrote nowhere else.

        Args:
            bound: The kernel.
            when: For the message.
            agreed: What it should have written, if that is not the expected values but what it wrote elsewhere.
        """
        with failing_as(Stage.CHECK):
            if agreed is None:
                verdict = self._verdict(bound.outputs)
            elif all(
                right is None or _are_same(each.value, right) for each, right in zip(bound.outputs, agreed, strict=True)
            ):
                verdict = 0.0
            else:
                verdict = judged(self._judge_of_itself, bound.outputs, agreed, self._conditioning)
            over = [(buffer, overrun(buffer)) for buffer in (*bound.inputs, *bound.outputs)]
        for buffer, where in over:
            if where:
                raise Stopped(Failed(stage=Stage.CHECK, reason=f"it writes {where} the memory of {buffer.spec.name!r}"))
        if isinstance(verdict, str):
            raise Stopped(Failed(stage=Stage.CHECK, reason=f"wrong numbers{when}: {verdict}"))
        return verdict

    def _verdict(self, outputs: Sequence[Buffer]) -> float | str:
        """Return the largest error of outputs, or what is wrong; the bits that were judged last are not judged again.

        A judgement of 40 million elements takes a second, a comparison with them a hundredth of that.
        """
        values = [buffer.value for buffer in outputs]
        if self._right and all(map(_are_same, values, self._right)):
            return self._error
        verdict = judged(self._judge, outputs, self._rights, self._conditioning)
        keeps = not (self._is_brief or isinstance(verdict, str))
        self._right = [_copied(value) for value in values] if keeps else []
        self._error = 0.0 if isinstance(verdict, str) else verdict
        return verdict

    def _check_inputs(self, bound: Bound, values: Sequence[Any]) -> None:
        for buffer, value in zip(bound.inputs, values, strict=True):
            if buffer.spec.kind is not ValueKind.FOREIGN and not same_bits(buffer.array, np.asarray(value)):
                raise Stopped(Failed(stage=Stage.CHECK, reason=f"it writes its input {buffer.spec.name!r}"))


def _turned(buffer: Buffer, value: Any) -> Any:
    """Return other values that a kernel takes for an input, if there are.

    A tensor of at least two dimensions is moved by one along its first axis of several elements, but the last one: the
    corners of a box stay together. Vectors may be shapes and limits, and stay. So do integers of 32 and 64 bits: they
    may be indices, and those of one row out of range in another.
    """
    if buffer.spec.kind is not ValueKind.PLANNED or np.ndim(value) < 2 or buffer.spec.dtype in _INDICES:
        return value
    array = np.asarray(value)
    axis = next((axis for axis, extent in enumerate(array.shape[:-1]) if extent > 1), None)
    return value if axis is None else np.roll(array, 1, axis)


def _are_same(value: Any, agreed: Any) -> bool:
    """Return whether both have the same bits; False for values that have none, as text."""
    arrays = [each for each in (value, agreed) if isinstance(each, np.ndarray) and not each.dtype.hasobject]
    return len(arrays) == 2 and same_bits(*arrays)


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value
