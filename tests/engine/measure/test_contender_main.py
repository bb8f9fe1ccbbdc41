"""A contender's turn: how often it calls what it times."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import pytest

from collage.measure.contenders.contender_main import ContenderMain
from collage.measure.wire.messages import AskBurst, Burst


class Counted(functools.partial[Any]):
    """A call with another way to call it, as packages have."""

    as_called: Callable[[], Any]


@pytest.mark.parametrize(("call_s", "untimed"), [(0.0, 1), (0.03, 0)])
def test_a_long_run_need_not_be_warmed_up_for_again_before_it_is_timed_as_users_call_it(
    call_s: float, untimed: int
) -> None:
    calls: list[int] = []
    contender = ContenderMain()
    contender._call = call = Counted(time.sleep, call_s)
    call.as_called = lambda: calls.append(1)
    ask = AskBurst(duration_s=0.0, min_runs=2, warmup_s=0.02, as_called=True, in_parts=False, calibration_threads=0)

    burst = contender.answer(ask)

    assert isinstance(burst, Burst)
    assert len(burst.called_us) == 2
    assert len(calls) == 2 + untimed
