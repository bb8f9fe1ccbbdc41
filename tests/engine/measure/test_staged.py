"""Places of a kernel on a device: what several kernels bound to them share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collage.measure.worker.staged import Staged
from collage_core.contract import BoundCall, Buffer, buffer_over
from collage_testing.kit import FakeDevice


class Noting:
    """A kernel that does nothing and notes where it is bound."""

    def __init__(self) -> None:
        self.bound: list[tuple[int, ...]] = []

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        places = (*inputs, *outputs, *([] if workspace is None else [workspace]))
        self.bound.append(tuple(place.pointer for place in places))
        return lambda: None


def test_kernels_that_run_one_after_the_other_are_bound_to_the_same_places_and_one_workspace() -> None:
    device = FakeDevice("fake:0")
    staged = Staged(
        device.open("fake:0"),
        [buffer_over("x", np.zeros(8, np.float32))],
        [buffer_over("y", np.zeros(8, np.float32))],
    )
    kernel = Noting()

    for _ in range(3):
        staged.bind(kernel, 1 << 20)

    assert len(set(kernel.bound)) == 1
    assert len(kernel.bound[0]) == 3
    assert device.allocated < 2 << 20


def test_a_kernel_that_needs_more_workspace_than_the_one_before_has_it_and_one_that_needs_none_gets_none() -> None:
    device = FakeDevice("fake:0")
    staged = Staged(device.open("fake:0"), [buffer_over("x", np.zeros(8, np.float32))], [])
    kernel = Noting()

    for nbytes in (256, 4096, 0):
        staged.bind(kernel, nbytes)

    [(_, small), (_, large), without] = kernel.bound
    assert len(without) == 1
    assert small != large
    assert device.allocated >= 256 + 4096
