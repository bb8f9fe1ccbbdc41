"""Model device copies in the search: their cost, when they are charged, and their part of a state.

The cost of a plan's copies depends only on which devices compute and read each value, not on the order of decisions:

    sum, over values v and devices d other than the one that computes v,
    of the cost of bringing v there, if anything on d reads v or v has to end there.

The cost of a copy includes a share of starting the kernels that wait for it (`CopyCosts.start_us`): the full cost
if a kernel computed the value; an equal part for each value provided by the caller, since those all arrive before
the first kernel. A copy starts where the value was computed, so the order of copies does not matter. The search
decides in the order of lowest uncovered nodes, and may decide a reader before the kernel that computes its input
(decision 4b). So a copy is charged as soon as both of its ends are known: by the reader if the value has been
computed, else by its producer, for all devices that need it by then. Each `(v, d)` is charged once, by the first
move that makes it due.

A state records, for each value that an uncovered node may still read, or that was read but not computed yet, where it
was computed and on which other devices it is needed; only as far as this affects future charges. The key leaves out
values already available on the device of every possible reader, and values about which nothing has been decided.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from collage_core.contract.cost import INVALID, Cost, checked_cost
from collage_core.ir.graph.masks import mask_of, union_of
from collage_core.search.copies import DeviceCopies, DeviceCopy, SharedValue
from collage_core.search.costs import PICOSECONDS_PER_US
from collage_core.search.problem import SearchProblem, bits

TOUCHES, READS, MAKES = range(3)
"""Relations of a kernel to a value. It touches a value if one of its nodes is among the last readers.

Inner nodes count, too.
"""

NOBODY = -1
"""Stands for the device of a value whose producer has not been chosen yet."""

Place = tuple[int, int, int]
"""Value, device that computed it or `NOBODY`, and mask of the other devices that need it."""
Places = tuple[Place, ...]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """Relation of a candidate to values; equal traffics of a problem are one object.

    Candidates with equal shape and traffic are interchangeable.

    Attributes:
        device: Number of its device.
        parts: Values with the candidate's relation to each, ascending.
    """

    device: int
    parts: tuple[tuple[int, int], ...]


class CopyModel:
    """Copies of a problem; each cost is queried once.

    Args:
        problem: A problem with `copies`.

    Attributes:
        devices: Names of the devices, by number.
        free: Whether copies cost nothing; impossible copies remain impossible.

    Raises:
        ValueError: If a cost is NaN or negative.
    """

    def __init__(self, problem: SearchProblem, copies: DeviceCopies, *, free: bool = False) -> None:
        values = self._values = copies.values
        self._problem = problem
        self._copies = copies
        self.free = free
        of_target = {target.name: target.device for target in problem.targets}
        at_rim = {device for value in values for device in (value.starts_on, value.ends_on) if device}
        self.devices = tuple(sorted({*of_target.values(), *at_rim}))
        number = {name: at for at, name in enumerate(self.devices)}
        self._device_of = {name: number[device] for name, device in of_target.items()}
        self._starts = [number[value.starts_on] if value.starts_on else NOBODY for value in values]
        self._ends = [1 << number[value.ends_on] if value.ends_on else 0 for value in values]
        self._producers = [-1 if value.producer is None else value.producer for value in values]
        # per node, masks of the values it computes, reads, and is among the last to read
        self._made_by = [0] * problem.node_count
        self._read_by = [0] * problem.node_count
        self._ending = [0] * problem.node_count
        for at, value in enumerate(values):
            if value.producer is not None:
                self._made_by[value.producer] |= 1 << at
            for node in bits(value.readers):
                self._read_by[node] |= 1 << at
        self._costs_us = self._asked()
        self._fees = [
            [[None if us == INVALID else round(us * PICOSECONDS_PER_US) for us in row] for row in rows]
            for rows in self._costs_us
        ]
        # Nodes of which one uncovered means that somebody may still read the value, and on which devices that may be.
        self._last = [value.readers & problem.needs_kernel for value in values]
        self._possible = [0] * len(values)
        for candidate in problem.candidates:
            inside = candidate.nodes & problem.needs_kernel
            made, read = self._made_and_read(candidate.nodes)
            for at in bits(read & ~made):
                self._possible[at] |= 1 << self._device_of[candidate.target]
                if not inside & values[at].readers:  # through a view that only leaves it
                    self._last[at] |= inside
        for at, nodes in enumerate(self._last):
            for node in bits(nodes):
                self._ending[node] |= 1 << at

    def without_costs(self) -> CopyModel:
        """Return the same model with every possible copy free."""
        return type(self)(self._problem, self._copies, free=True)

    def _asked(self) -> list[list[list[Cost]]]:
        known: dict[tuple[int, int, int | None], Cost] = {}
        every = range(len(self.devices))

        def cost(source: int, destination: int, size: int | None) -> Cost:
            key = (source, destination, size)
            if key not in known:
                pair = self.devices[source], self.devices[destination]
                try:
                    known[key] = checked_cost(self._copies.costs.copy_us(*pair, size))
                except ValueError as error:
                    raise ValueError(f"copy of {size} bytes from {pair[0]} to {pair[1]}: {error}") from None
                if self.free and known[key] != INVALID:
                    known[key] = 0.0
            return known[key]

        starts_us = [self._start_us(device) for device in self.devices]

        def whole(value: SharedValue, source: int, destination: int) -> Cost:
            if source == destination:
                return 0.0
            return cost(source, destination, value.size_bytes) + starts_us[destination] / self._sharing(value)

        return [[[whole(value, a, b) for b in every] for a in every] for value in self._values]

    def _sharing(self, value: SharedValue) -> int:
        """Return the number of values, this one included, that share the cost of starting kernels."""
        return 1 if value.producer is not None else sum(each.producer is None for each in self._values)

    def _start_us(self, device: str) -> float:
        try:
            found = checked_cost(self._copies.costs.start_us(device))
            if found == INVALID:
                raise ValueError("it is not finite")
        except ValueError as error:
            raise ValueError(f"start of kernels on {device}: {error}") from None
        return 0.0 if self.free else found

    def traffics(self) -> tuple[Traffic | None, ...]:
        """Return each candidate's traffic, its role for every value; None for a candidate that covers nothing."""
        known: dict[tuple[int, tuple[tuple[int, int], ...]], Traffic] = {}
        found: list[Traffic | None] = []
        for candidate in self._problem.candidates:
            if not candidate.nodes & self._problem.needs_kernel:
                found.append(None)
                continue
            key = self._device_of[candidate.target], self._parts(candidate.nodes)
            found.append(known.setdefault(key, Traffic(*key)))
        return tuple(found)

    def _parts(self, nodes: int) -> tuple[tuple[int, int], ...]:
        made, read = self._made_and_read(nodes)
        touched = union_of(self._ending[node] for node in bits(nodes & self._problem.needs_kernel))
        inside = mask_of(at for at in bits(made) if not self._ends[at] and not self._last[at] & ~nodes)
        return tuple(
            (at, MAKES if made >> at & 1 else READS if read >> at & 1 else TOUCHES)
            for at in bits((made | read | touched) & ~inside)
        )

    def _made_and_read(self, nodes: int) -> tuple[int, int]:
        """Compute masks of the values that nodes compute, and of those they read, their own included."""
        made = read = 0
        for node in bits(nodes):
            made |= self._made_by[node]
            read |= self._read_by[node]
        return made, read

    def cost_us(self, value: int, source: int, destination: int) -> Cost:
        """Return the cost of copying a value between devices, which are given by number."""
        return self._costs_us[value][source][destination]

    def start_of(self, value: int) -> int:
        """Return the number of the device on which a value is provided; `NOBODY` if a node computes it."""
        return self._starts[value]

    # In the sweep

    def start(self) -> tuple[int | None, Places]:
        """Return the cost due before any choice, in picoseconds (None: impossible), and the places of inputs."""
        due = 0
        places: list[Place] = []
        for at, source in enumerate(self._starts):
            if source == NOBODY:
                continue
            wanted = self._ends[at] & ~(1 << source)
            fee = self._fee(at, source, wanted)
            if fee is None:
                return None, ()
            due += fee
            self._keep(places, at, source, wanted, self._last[at])
        return due, tuple(places)

    def advance(self, places: Places, traffic: Traffic, low: int, covered: int) -> tuple[int, Places] | None:
        """Charge the copies that become due when a kernel is chosen, and update the places.

        Args:
            places: The places before the choice.
            traffic: The kernel's traffic.
            low: Lowest node that was uncovered.
            covered: Nodes covered with the kernel, relative to `low`; those below `low` are covered.

        Returns:
            Picoseconds and places; None if an impossible copy would be needed.
        """
        device = traffic.device
        here = 1 << device
        known = {place[0]: place for place in places}
        due = 0
        after: list[Place] = []
        for at, role in traffic.parts:
            place = known.pop(at, None)
            if place is not None:
                _, source, wanted = place
            elif role == TOUCHES or (role == READS and self._is_settled(at, low, covered)):
                continue
            else:
                source, wanted = NOBODY, self._ends[at]
            if role == MAKES:
                source = device
                wanted &= ~here
                fee = self._fee(at, device, wanted)
                if fee is None:
                    return None
                due += fee
            elif role == READS and source != device and not wanted & here:
                wanted |= here
                if source != NOBODY:
                    fee = self._fees[at][source][device]
                    if fee is None:
                        return None
                    due += fee
            self._keep(after, at, source, wanted, self._last[at] >> low & ~covered)
        if after:
            known.update((place[0], place) for place in after)
        return due, tuple(sorted(known.values()))

    def _is_settled(self, at: int, low: int, covered: int) -> bool:
        """Return whether no further cost can fall due for a value that is not among the places."""
        producer = self._producers[at]
        return producer < low or bool(covered >> (producer - low) & 1)

    def _fee(self, at: int, source: int, wanted: int) -> int | None:
        """Sum the cost of copying a value to several devices, in picoseconds; None if it is impossible."""
        due = 0
        for device in bits(wanted):
            fee = self._fees[at][source][device]
            if fee is None:
                return None
            due += fee
        return due

    def _keep(self, places: list[Place], at: int, source: int, wanted: int, readers: int) -> None:
        """Append a place if it affects the costs that can still fall due."""
        if source == NOBODY:
            if wanted != self._ends[at]:
                places.append((at, source, wanted))
        elif readers:
            wanted &= self._possible[at]
            if self._possible[at] & ~(wanted | 1 << source):
                places.append((at, source, wanted))

    def at_most_more(self, places: Places, other: Places) -> int | None:
        """Bound how many more picoseconds can fall due at `places` than at `other`; None for no bound.

        Both are places of states with the same nodes covered.
        """
        theirs = {place[0]: place for place in other}
        more = 0
        for place in places:
            at, source, wanted = place
            against = theirs.pop(at, None)
            if place == against:
                continue
            fee = self._fee_more(at, source, wanted, against)
            if fee is None:
                return None
            more += fee
        # what only the other tells: computed, it costs nothing any more here; not computed, it is wanted there only
        return more

    def _fee_more(self, at: int, source: int, wanted: int, other: Place | None) -> int | None:
        fees = self._fees[at]
        more = 0
        if source == NOBODY:  # for the other as well: it is wanted on its devices by all means
            for device in bits(wanted & ~(self._ends[at] if other is None else other[2])):
                column = [row[device] for row in fees]
                if None in column:
                    return None
                more += max(fee for fee in column if fee is not None)
            return more
        for device in bits(self._possible[at] & ~(wanted | 1 << source)):
            fee = fees[source][device]
            if other is None or other[1] == device or other[2] >> device & 1:
                less: int | None = 0
            else:
                less = fees[other[1]][device]
            if less is None:  # the other cannot go on where this could
                continue
            if fee is None:
                return None
            more += max(0, fee - less)
        return more

    # Of a whole plan

    def copies_of(self, plan: Iterable[Traffic | None]) -> tuple[DeviceCopy, ...]:
        """List the copies of a whole plan, by value; `INVALID` ones included."""
        sources = list(self._starts)
        wanted = list(self._ends)
        for traffic in plan:
            if traffic is None:
                continue
            for at, role in traffic.parts:
                if role == MAKES:
                    sources[at] = traffic.device
                elif role == READS:
                    wanted[at] |= 1 << traffic.device
        return tuple(
            DeviceCopy(
                value=at,
                source=self.devices[source],
                destination=self.devices[device],
                cost_us=self._costs_us[at][source][device],
            )
            for at, source in enumerate(sources)
            if source != NOBODY
            for device in bits(wanted[at] & ~(1 << source))
        )


def copies_of(problem: SearchProblem) -> tuple[DeviceCopy, ...]:
    """List the copies of the plan made of all the problem's candidates, by value; `INVALID` ones included."""
    if problem.copies is None:
        return ()
    copy_model = CopyModel(problem, problem.copies)
    return copy_model.copies_of(copy_model.traffics())
