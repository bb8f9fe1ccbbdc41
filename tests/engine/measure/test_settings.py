"""The protocol of brief measurements."""

from __future__ import annotations

import pytest

from collage.measure.driver.settings import MeasureSettings
from collage.measure.wire.outcomes import BuildSettings
from collage_core.contract import Protocol


def brief_of(protocol: Protocol) -> Protocol:
    return MeasureSettings(build=BuildSettings(threads=1), protocol=protocol).brief


def test_brief_is_the_same_for_fewer_blocks() -> None:
    whole = Protocol(warmup_runs=7, warmup_s=0.3, min_samples=10, max_samples=200, duration_s=0.5, blocks=5)

    assert brief_of(whole) == Protocol(
        warmup_runs=7, warmup_s=0.3, min_samples=4, max_samples=80, duration_s=0.2, blocks=2
    )


@pytest.mark.parametrize("blocks", [1, 2])
def test_what_has_few_blocks_stays_as_it_is(blocks: int) -> None:
    assert brief_of(Protocol(blocks=blocks)) == Protocol(blocks=blocks)


def test_there_is_always_a_sample() -> None:
    brief = brief_of(Protocol(min_samples=1, max_samples=1, blocks=5))

    assert (brief.min_samples, brief.max_samples) == (1, 1)
