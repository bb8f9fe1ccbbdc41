"""Place every operator on a target, by what each is believed to take there and by what it costs to change targets.

This is the exact search once more: the candidates are single operators, every target counts as a device of its own, and
a value that another target reads is copied. So what plans may be, which targets mix, and how values are charged once
for each reader follow from the search itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from collage_core.contract.cost import INVALID, Cost
from collage_core.search.copies import CopyCosts, DeviceCopies, SharedValue
from collage_core.search.costs import CostTable
from collage_core.search.exact import ExactSearch, SearchLimits
from collage_core.search.problem import SearchCandidate, SearchProblem

LIMITS = SearchLimits(max_states=100_000, plain_states=10_000, widths=(32, 256))
"""A placement only proposes regions, so it need not be the best."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Crossings:
    """What it costs that a value is read by another target than the one that computes it.

    Attributes:
        value_us: Of each value, in microseconds: kernels of their own begin and end there.
        byte_us: Of each byte, in microseconds: layouts have to be changed.
        devices: Device of each target.
        copies: Costs of copies between devices; None if there is one device only.
    """

    value_us: float
    byte_us: float
    devices: Mapping[str, str]
    copies: CopyCosts | None = None

    def copy_us(self, source: str, destination: str, size_bytes: int | None) -> Cost:
        """See `CopyCosts`; the devices are targets here."""
        between = self.value_us + self.byte_us * (size_bytes or 0)
        one, other = self.devices[source], self.devices[destination]
        if one == other:
            return between
        return INVALID if self.copies is None else between + self.copies.copy_us(one, other, size_bytes)

    def start_us(self, device: str) -> float:
        """See `CopyCosts`; starting is part of what a value costs."""
        return 0.0


def place(
    problem: SearchProblem,
    operators: Sequence[int],
    times_us: Mapping[str, Sequence[Cost]],
    values: Sequence[SharedValue],
    crossings: Crossings,
) -> dict[str, list[int]]:
    """Place operators so that the sum of their times and of what crosses between targets is least.

    Args:
        problem: The graph and the targets; its candidates are ignored.
        operators: Masks of nodes that stay together; disjoint, and together they cover what needs a kernel.
        times_us: Time of each operator by target, in microseconds; `INVALID` where it cannot run.
        values: Tensors that operators compute and read.
        crossings: What it costs to change targets.

    Returns:
        The operators of each target, in the order given; targets without any are left out.

    Raises:
        NoCoverError: If some operator can run nowhere, or no targets that mix run all.
    """
    targets = [dataclasses.replace(each, device=each.name, dispatch_us=0.0) for each in problem.targets]
    candidates = [
        SearchCandidate(nodes=nodes, target=name, key=str(at))
        for name, times in times_us.items()
        for at, (nodes, time) in enumerate(zip(operators, times, strict=True))
        if time != INVALID
    ]
    costs = {(name, str(at)): time for name, times in times_us.items() for at, time in enumerate(times)}
    computed = tuple(
        dataclasses.replace(value, ends_on="")
        for value in values
        if value.producer is not None  # what the caller gives is there for every target
    )
    search = SearchProblem(
        node_count=problem.node_count,
        needs_kernel=problem.needs_kernel,
        ancestors=problem.ancestors,
        descendants=problem.descendants,
        targets=tuple(target for target in targets if target.name in times_us),
        candidates=tuple(candidates),
        copies=DeviceCopies(values=computed, costs=crossings),
    )
    found = ExactSearch(search, CostTable(costs), limits=LIMITS).run()
    placed: dict[str, list[int]] = {}
    for chosen in sorted(found.candidates, key=lambda c: int(c.key)):
        placed.setdefault(chosen.target, []).append(chosen.nodes)
    return placed
