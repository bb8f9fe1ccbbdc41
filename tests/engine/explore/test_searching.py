from __future__ import annotations

import dataclasses

import pytest

from collage.explore.exhaustive import begun
from collage.explore.measuring import measured
from collage.explore.searching import confirmed
from collage.measure.wire.outcomes import Failed, Refused
from collage_core.fusion import CandidateKernel
from tests.engine.explore.halves import GRAPH, A, B
from tests.engine.exploring import FakeSource, empty_pool, kernel, rule_of, setup_of

FIRST, SECOND = GRAPH.names[:6], GRAPH.names[6:]


@pytest.mark.parametrize(("slow", "kernels"), [(1.02, [6, 6]), (1.2, [3, 3, 6])])
def test_a_simple_plan_that_is_almost_the_cheapest_is_measured_again_beside_it(slow: float, kernels: list[int]) -> None:
    """Two neighbours as one kernel were measured in a slow second, their parts as they usually are."""
    joined = kernel(GRAPH, A, *FIRST)
    parts = [kernel(GRAPH, A, *FIRST[:3]), kernel(GRAPH, A, *FIRST[3:]), kernel(GRAPH, B, *SECOND)]

    def truth(candidate: CandidateKernel) -> float | Refused | Failed:
        again = ("a", FIRST) in source.measured
        usual = 10.0 * len(candidate.sub_graph.names)
        return usual * (0.95 if again else slow) if candidate is joined else usual

    source = FakeSource(truth)
    setup = setup_of(source, [rule_of(A), rule_of(B)])
    exploration = begun(setup, empty_pool(GRAPH, source, dispatch_us=0.0))
    exploration = dataclasses.replace(exploration, pool=exploration.pool.with_candidates([joined, *parts]))
    exploration = measured(exploration, "measuring", [joined, *parts])

    alone, _ = confirmed(exploration)
    _, found = confirmed(exploration, with_simple=True)

    assert not alone.pool.costs.confirmed & {alone.pool.cache_key(joined)}
    assert [chosen.nodes.bit_count() for chosen in found.candidates] == kernels
