"""Which kernels a plan's error comes from, by hand."""

from __future__ import annotations

import pytest

from collage.precision.blame import blamed
from collage.precision.sensitivity.sensitivities import Sensitivities
from collage_core.candidates.plan import Plan
from collage_core.fusion import CandidateKernel, Partitioning
from tests.engine.precision.chains import BF16, INT8, PLAIN, chain, sensitivities

GRAPH = chain(4)


def plan(*kernels: CandidateKernel) -> Plan:
    return Plan(
        name="p", single=False, partitioning=Partitioning(GRAPH, kernels), costs_us=(1.0,) * len(kernels), dispatch_us=0
    )


def kernels(found: Sensitivities) -> tuple[CandidateKernel, ...]:
    """One that quantises two of two products, one in bfloat16, one in the model's types."""
    return (
        found.quantised(GRAPH, 0b0011, INT8, [0]),
        found.quantised(GRAPH, 0b0100, BF16, []),
        found.quantised(GRAPH, 0b1000, PLAIN, []),
    )


def test_each_kernel_has_its_share_and_the_one_that_quantises_names_what_would_be_next() -> None:
    found = sensitivities([3.0, 12.0, 100.0, 100.0], [1.0, 1.0, 4.0, 1.0])
    eight, rounded, exact = kernels(found)

    facts = blamed(plan(eight, rounded, exact), found)

    assert exact not in facts
    assert facts[eight].int8 == (GRAPH.names[0],)
    assert (facts[eight].products, facts[rounded].products) == (2, 1)
    assert (facts[eight].error, facts[rounded].error) == (3.0, 4.0)
    assert facts[eight].share == pytest.approx(9 / 25)
    assert facts[eight].stopped == (GRAPH.names[1],)
    assert facts[eight].stopped_error == pytest.approx(13.0)
    assert facts[rounded].stopped == ()


def test_nothing_is_blamed_where_nothing_was_found_out() -> None:
    found = sensitivities([3.0, 12.0, 100.0, 100.0])

    assert blamed(plan(*kernels(found)), None) == {}
