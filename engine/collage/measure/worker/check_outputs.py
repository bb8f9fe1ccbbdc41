"""Check a bound kernel's outputs: run it twice, and detect wrong, missing and stray writes.

The first run starts from outputs that are wrong everywhere, the second from the outputs of the first. The first
reveals elements that are never written, the second elements that are accumulated into.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.outcomes import Failed, Refused, Stage, Tolerance
from collage.measure.wire.values import decode_value
from collage.measure.wire.wire_values import WireValue
from collage.measure.worker.failing import Stopped, failing_as
from collage.measure.worker.staged import Staged
from collage.measure.worker.verdicts import aliased, judge, same_bits, spoil
from collage_core.contract import BoundCall, Buffer, KernelFunction, ValueKind
from collage_core.ir.operators.quantised import roundings

_OTHER_BITS = "it gave other bits when run again, and --deterministic asks for the same"


@dataclasses.dataclass(frozen=True, slots=True)
class Bound:
    """A kernel ready to be called.

    Attributes:
        call: The call.
        inputs: Its inputs, holding the given values.
        outputs: Its output buffers.
        staged: For a device kernel, its device buffers, of which `inputs` and `outputs` are the host counterparts.
        workspace: For a CPU kernel, its scratch memory; the kernel may retain only the address.
    """

    call: BoundCall
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    staged: Staged | None = None
    workspace: Buffer | None = None


def check_outputs(
    bound: Bound,
    run: Callable[[], None],
    given: Sequence[Any],
    expected: Sequence[WireValue | None],
    store: BlobStore,
    function: KernelFunction,
    *,
    tolerance: Tolerance,
    deterministic: bool,
) -> tuple[float, bool]:
    """Run a kernel twice and judge it.

    Args:
        bound: The kernel.
        run: Calls it; where that is on a device, with its values brought there and back.
        given: What its inputs hold.
        expected: What its outputs should hold; None for what the reference cannot say.
        store: Has the expected values.
        function: What it computes, with its roundings to quanta.
        tolerance: How far off outputs may be.
        deterministic: Whether both runs have to give the same bits.

    Returns:
        The larger error, and whether both gave the same bits.

    Raises:
        Stopped: If it is wrong, or may not be used.
    """
    rights = [None if value is None else decode_value(value, store) for value in expected]
    rounded = {str(value.name): count for value, count in roundings(function.model.graph).items()}

    def judged(when: str = "") -> float:
        with failing_as(Stage.CHECK):
            verdict = judge(bound.outputs, rights, tolerance, rounded)
        if isinstance(verdict, str):
            raise Stopped(Failed(stage=Stage.CHECK, reason=f"wrong numbers{when}: {verdict}"))
        return verdict

    for buffer, right in zip(bound.outputs, rights, strict=True):
        spoil(buffer, right)
    places = [buffer.value for buffer in (*bound.inputs, *bound.outputs)]
    run()
    with failing_as(Stage.CHECK):
        problem = aliased(bound.inputs, bound.outputs, places)
    if problem:
        raise Stopped(Failed(stage=Stage.CHECK, reason=problem))
    first = judged()
    kept = [_copied(buffer.value) for buffer in bound.outputs]
    for buffer, value in zip(bound.inputs, given, strict=True):
        if buffer.spec.kind is not ValueKind.FOREIGN and not same_bits(buffer.array, np.asarray(value)):
            raise Stopped(Failed(stage=Stage.CHECK, reason=f"it writes its input {buffer.spec.name!r}"))
    run()
    same = [same_bits(buffer.value, value) for buffer, value in zip(bound.outputs, kept, strict=True)]
    if all(same):
        return first, True
    # where the model itself asks for chance, which the reference cannot say, other bits are no fault
    if deterministic and not all(each or right is None for each, right in zip(same, rights, strict=True)):
        raise Stopped(Refused(reason=_OTHER_BITS))
    return max(first, judged(" when run again")), False


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value
