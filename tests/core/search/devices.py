"""Random problems over several devices, and an oracle that runs a plan kernel by kernel and notes every copy."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator
from typing import Any

from collage_core.contract.cost import INVALID
from collage_core.search import (
    DeviceCopies,
    SearchCandidate,
    SearchProblem,
    SearchTarget,
    SharedValue,
)
from tests.core.search.conftest import Instance, Plan, all_covers, is_acyclic, members, rank, targets_mix

HOST = "cpu"
Tensor = tuple[int, int]
"""Node and number of its output; node -1 stands for the graph's inputs."""


class SizedCosts:
    """A latency for each pair, something for each byte, and something for starting kernels on a device."""

    def __init__(
        self,
        latency_us: dict[tuple[str, str], float],
        us_per_byte: float,
        starts_us: dict[str, float] | None = None,
    ) -> None:
        self.latency_us = latency_us
        self.us_per_byte = us_per_byte
        self.starts_us = starts_us or {}

    def start_us(self, device: str) -> float:
        return self.starts_us.get(device, 0.0)

    def copy_us(self, source: str, destination: str, size_bytes: int | None) -> float:
        if size_bytes is None:
            return INVALID
        return self.latency_us.get((source, destination), INVALID) + self.us_per_byte * size_bytes


@dataclasses.dataclass(frozen=True)
class DeviceInstance(Instance):
    """A problem, and the graph's tensors as the oracle sees them.

    Attributes:
        reads: Per node, the tensors it reads; of a host node the one it is a view of, or none.
        sizes: Bytes of every tensor that is no view; None if not known.
        outputs: What the caller gets.
        homes: Device of each graph input; None where the caller gives it on any.
        outputs_home: Whether outputs have to end on the host.
        copy_costs: What copies cost.
    """

    reads: tuple[tuple[Tensor, ...], ...]
    sizes: dict[Tensor, int | None]
    outputs: tuple[Tensor, ...]
    homes: tuple[str | None, ...]
    outputs_home: bool
    copy_costs: SizedCosts

    def stored(self, tensor: Tensor) -> Tensor | None:
        """The tensor in whose memory a tensor is; None for a view of nothing."""
        node, _ = tensor
        while node >= 0 and self.host >> node & 1:
            if not self.reads[node]:
                return None
            [tensor] = self.reads[node]
            node, _ = tensor
        return tensor

    def copies_us(self, plan: Plan) -> float:
        """Runs an acyclic plan: what all copies cost together."""
        device_of = {target.name: target.device for target in self.problem.targets}
        present: dict[Tensor, list[str | None]] = {}  # where it is, the first being where it was made
        for number, home in enumerate(self.homes):
            present[-1, number] = [home]
        spent_us = 0.0
        given = sum(home is not None for home in self.homes)

        def bring(tensor: Tensor, device: str) -> None:
            nonlocal spent_us
            at = present[tensor]
            if at[0] is not None and device not in at:
                spent_us += self.copy_costs.copy_us(at[0], device, self.sizes[tensor])
                spent_us += self.copy_costs.start_us(device) / (given if tensor[0] < 0 else 1)
                at.append(device)

        waiting = list(plan)
        while waiting:
            for kernel in waiting:
                inside = members(kernel.nodes)
                needed = {self.stored(tensor) for node in inside for tensor in self.reads[node]}
                fetched = {t for t in needed if t is not None and (t[0] < 0 or t[0] not in inside)}
                if all(tensor in present for tensor in fetched):
                    break
            else:
                raise AssertionError("no kernel of the plan can run")
            waiting.remove(kernel)
            device = device_of[kernel.target]
            for tensor in fetched:
                bring(tensor, device)
            for tensor in self.sizes:
                if tensor[0] in inside:
                    present[tensor] = [device]
        if self.outputs_home:
            for output in self.outputs:
                ending = self.stored(output)
                if ending is not None:
                    bring(ending, HOST)
        return spent_us

    def with_values(self, change: Callable[[SharedValue], SharedValue]) -> DeviceInstance:
        """The same with every shared value changed; the oracle still sees what was."""
        assert self.problem.copies is not None
        values = tuple(map(change, self.problem.copies.values))
        copies = dataclasses.replace(self.problem.copies, values=values)
        return dataclasses.replace(self, problem=dataclasses.replace(self.problem, copies=copies))


def device_rank(instance: DeviceInstance, plan: Plan) -> tuple[Any, ...]:
    """As `rank`, copies included."""
    total, *rest = rank(instance, plan)
    return (total + instance.copies_us(plan) * 1e6, *rest)


def legal(instance: DeviceInstance) -> Iterator[Plan]:
    """Plans that can run, copies permitting or not; cheapest first as if copies were free."""
    for plan in sorted(all_covers(instance), key=lambda plan: rank(instance, plan)):
        if targets_mix(instance, plan) and is_acyclic(instance, plan):
            yield plan


def best_over_devices(instance: DeviceInstance) -> Plan | None:
    """The canonical best plan; None if there is none, or none whose copies are possible."""
    best: Plan | None = None
    least: tuple[Any, ...] = (INVALID,)
    for plan in legal(instance):
        if rank(instance, plan)[0] > least[0]:
            break  # copies only make it dearer
        now = device_rank(instance, plan)
        if now[0] < INVALID and now < least:
            best, least = plan, now
    return best


def random_device_instance(rng: random.Random, style: str) -> DeviceInstance:
    """`uniform`: anything. `adversarial`: sparse, ties, impossible copies, and most candidates have several exits."""
    adversarial = style == "adversarial"
    count = rng.randint(3, 8) if adversarial else rng.randint(1, 7)
    density = rng.uniform(0.1, 0.4) if adversarial else rng.uniform(0.1, 0.7)
    views = rng.choice([0.0, 0.15, 0.35])
    host = sum(1 << node for node in range(count) if rng.random() < views)
    homes = tuple(rng.choice([HOST, HOST, HOST, None]) for _ in range(rng.randint(1, 2)))
    sizes: dict[Tensor, int | None] = {(-1, n): rng.choice([1, 2, 8]) for n in range(len(homes))}
    odd = rng.random() < 0.1
    made: dict[int, list[Tensor]] = {}
    predecessors: list[tuple[int, ...]] = []
    reads: list[tuple[Tensor, ...]] = []
    for node in range(count):
        before = [source for source in range(node) if rng.random() < density]
        tensors = [tensor for s in before for tensor in rng.sample(made[s], rng.randint(1, len(made[s])))]
        tensors += [(-1, n) for n in range(len(homes)) if rng.random() < (0.3 if before else 0.7)]
        if host >> node & 1:
            tensors = rng.sample(tensors, min(1, len(tensors)))
            made[node] = [(node, 0)]
        else:
            made[node] = [(node, k) for k in range(rng.choice([1, 1, 2]))]
            sizes.update((t, None if odd and rng.random() < 0.3 else rng.choice([1, 2, 8])) for t in made[node])
        predecessors.append(tuple(before))
        reads.append(tuple(tensors))
    used = {tensor for each in reads for tensor in each}
    outputs = [t for each in made.values() for t in each if t not in used or rng.random() < 0.2]
    outputs += [(-1, n) for n in range(len(homes)) if rng.random() < 0.05]
    targets = _targets(rng)
    empty = SearchProblem.from_predecessors(predecessors, targets=targets, candidates=(), host=host)
    devices = sorted({target.device for target in targets} | {HOST})
    scale = rng.choice([1, 4, 4, 20])
    latency_us = {
        (a, b): rng.choice([0, 1, 1, 2, 4]) * scale / 4
        for a in devices
        for b in devices
        if rng.random() > (0.12 if adversarial else 0.04)
    }
    instance = DeviceInstance(
        predecessors=tuple(predecessors),
        host=host,
        problem=empty,
        costs_us={},
        reads=tuple(reads),
        sizes=sizes,
        outputs=tuple(outputs),
        homes=homes,
        outputs_home=rng.random() < 0.85,
        copy_costs=SizedCosts(latency_us, rng.choice([0.0, 0.0, 0.25])),
    )
    copies = DeviceCopies(values=shared_values(instance), costs=instance.copy_costs)
    instance = dataclasses.replace(instance, problem=dataclasses.replace(empty, copies=copies))
    instance = _with_candidates(instance, rng, adversarial)
    instance.copy_costs.starts_us.update({device: rng.choice([0, 1, 2, 4]) * scale / 4 for device in devices})
    return instance


def shared_values(instance: DeviceInstance) -> tuple[SharedValue, ...]:
    """What the search is told of the tensors."""
    ends = {instance.stored(output) for output in instance.outputs} if instance.outputs_home else set()
    found = []
    for tensor, size in instance.sizes.items():
        node, number = tensor
        home = instance.homes[number] if node < 0 else ""
        if home is None:
            continue
        readers = sum(
            1 << reader
            for reader, tensors in enumerate(instance.reads)
            if any(instance.stored(each) == tensor for each in tensors)
        )
        found.append(
            SharedValue(
                producer=None if node < 0 else node,
                readers=readers,
                size_bytes=size,
                starts_on=home,
                ends_on=HOST if tensor in ends else "",
            )
        )
    return tuple(found)


def _targets(rng: random.Random) -> list[SearchTarget]:
    targets = [
        SearchTarget(name="a", toolchain="a", dispatch_us=rng.choice([0.0, 1.0])),
        SearchTarget(name="b@x", toolchain="b", device="x"),
    ]
    if rng.random() < 0.4:
        targets.append(SearchTarget(name="a@x", toolchain="a", device="x", dispatch_us=rng.choice([0.0, 0.5])))
    if rng.random() < 0.4:
        targets.append(SearchTarget(name="b@y", toolchain="b", device="y"))
    if rng.random() < 0.15:
        targets.append(SearchTarget(name="c", toolchain="c", excludes=frozenset({rng.choice("ab")})))
    return targets


def _with_candidates(instance: DeviceInstance, rng: random.Random, adversarial: bool) -> DeviceInstance:
    count, host = instance.problem.node_count, instance.host
    candidates: list[SearchCandidate] = []
    costs_us: dict[tuple[str, str], float] = {}
    spread = rng.choice([2, 8, 40])

    def add(nodes: int, high: int) -> None:
        target = rng.choice(instance.problem.targets)
        candidate = SearchCandidate(nodes=nodes, target=target.name, key=f"k{len(candidates)}", label=rng.choice("pq"))
        if is_acyclic(instance, (candidate,)):
            candidates.append(candidate)
            costs_us[candidate.target, candidate.key] = INVALID if rng.random() < 0.03 else rng.randint(0, high) / 4

    for node in range(count):
        for _ in range(rng.choice([1, 1, 2, 2] if adversarial else [1, 2, 2])):
            add(1 << node, spread * 2)
    for _ in range(rng.randint(count // 2, 2 * count)):
        nodes = sum(1 << node for node in rng.sample(range(count), 2 if adversarial else rng.randint(1, count)))
        if host and rng.random() < 0.5:
            nodes |= host & rng.getrandbits(count)
        add(nodes, spread if adversarial else spread * nodes.bit_count())
    rng.shuffle(candidates)
    problem = dataclasses.replace(instance.problem, candidates=tuple(candidates))
    return dataclasses.replace(instance, problem=problem, costs_us=costs_us)
