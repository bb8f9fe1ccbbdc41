"""Copies and waits between the steps of a run, against what a count over the partitioning says."""

from __future__ import annotations

import random
from collections.abc import Callable

import onnx_ir as ir
import pytest

from collage.runtime.arena import plan_arena
from collage.runtime.schedule import Compute, CopyOut, Place, Schedule, Synchronise, Transfer, schedule
from collage.runtime.wiring import Wirings
from collage_core.contract import ValueKind
from collage_core.errors import KernelLoadError
from collage_core.passes.call_sites import call_sites
from tests.engine.runtime.fakes import CPU, on, random_split, split, targets_of

Parse = Callable[[str], ir.Model]
FAKES = [on("fake:0"), on("fake:1")]


def scheduled(model: ir.Model, given: dict[str, str] | None = None) -> Schedule:
    sites = call_sites(model)
    wiring = Wirings(model, sites).at()
    devices = {name: target.device for name, target in targets_of(model, FAKES).items()}
    rim = {
        value: (given or {})[value.name] for value in (*wiring.inputs, *wiring.outputs) if value.name in (given or {})
    }
    return schedule(wiring, devices, rim)


def random_schedule(random_model: Callable[..., ir.Model], seed: int) -> Schedule:
    rng = random.Random(seed)
    model = random_split(random_model(seed, 10), seed, [CPU, *FAKES])
    names = [str(value.name) for value in (*model.graph.inputs, *model.graph.outputs)]
    return scheduled(model, {name: rng.choice(["cpu", "cpu", "fake:0", "fake:1"]) for name in names})


def told(found: Schedule) -> list[str]:
    words = []
    for action in found.actions:
        match action:
            case Compute():
                words.append(",".join(action.step.nodes))
            case Transfer():
                words.append(f"{action.root.name}>{action.target}")
            case CopyOut():
                words.append(f"out {action.output.name}")
            case Synchronise():
                words.append(f"wait {action.device}")
    return words


SPLIT = """g (float[2,3] x) => (float[2,3] y) {
    [a] a = Relu(x)
    [b] b = Neg(a)
    [c] c = Exp(b)
    [d] d = Add(c, a)
    [e] y = Neg(d)
}"""


def test_a_kernel_of_the_cpu_amid_those_of_a_device(parsed: Parse) -> None:
    found = scheduled(split(parsed(SPLIT), dict.fromkeys("abde", FAKES[0])))

    assert told(found) == [
        "x>fake:0", "a", "b", "b>cpu", "wait fake:0", "c", "c>fake:0", "d", "e", "y>cpu", "wait fake:0",
    ]  # fmt: skip


def test_nothing_is_copied_where_the_caller_s_arrays_are_on_the_device(parsed: Parse) -> None:
    model = split(parsed(SPLIT), dict.fromkeys("abcde", FAKES[0]))

    assert told(scheduled(model, {"x": "fake:0", "y": "fake:0"})) == ["a", "b", "c", "d", "e", "wait fake:0"]


def test_a_value_goes_from_one_device_to_another_through_the_host_once(parsed: Parse) -> None:
    model = split(parsed(SPLIT), {**dict.fromkeys("abe", FAKES[0]), **dict.fromkeys("cd", FAKES[1])})

    assert told(scheduled(model)) == [
        "x>fake:0", "a", "b", "b>cpu", "wait fake:0", "b>fake:1", "c", "a>cpu", "wait fake:0", "a>fake:1", "d",
        "d>cpu", "wait fake:1", "d>fake:0", "e", "y>cpu", "wait fake:0",
    ]  # fmt: skip


def test_without_devices_there_is_nothing_but_kernels(parsed: Parse) -> None:
    assert told(scheduled(split(parsed(SPLIT), {}))) == list("abcde")


def test_a_value_of_unknown_shape_is_refused_on_a_device(parsed: Parse) -> None:
    model = parsed("g (float[2,3] x) => (int64[2,n] y) { [a] y = NonZero(x) }")

    with pytest.raises(KernelLoadError, match=r"'y' is .*; on fake:0 are values of static shape only"):
        scheduled(split(model, {"a": FAKES[0]}))


def copies_by_count(found: Schedule) -> int:
    """Each value is once on every device that reads it; what is on two devices beside the CPU is on the CPU too."""
    wiring = found.wiring
    on_devices: dict[ir.Value, set[str]] = {}
    home = {value: found.given.get(value, "cpu") for value in wiring.inputs}
    device_of = {action.step.name: action.device for action in found.actions if isinstance(action, Compute)}
    for step in wiring.steps:
        for value in step.reads:
            on_devices.setdefault(wiring.roots[value], set()).add(device_of[step.name])
        home.update(dict.fromkeys(step.writes, device_of[step.name]))
    for value in wiring.outputs:
        on_devices.setdefault(wiring.roots[value], set()).add(found.given.get(value, "cpu"))
    count = 0
    for root, at in home.items():
        there = on_devices.get(root, set()) | {at}
        count += len(there | {"cpu"} if at != "cpu" and there - {at} else there) - 1
    return count


@pytest.mark.parametrize("seed", range(20))
def test_copies_are_as_many_as_the_partitioning_needs(random_model: Callable[..., ir.Model], seed: int) -> None:
    found = random_schedule(random_model, seed)

    assert sum(isinstance(action, Transfer) for action in found.actions) == copies_by_count(found)


@pytest.mark.parametrize("seed", range(20))
def test_the_host_waits_only_for_what_it_reads_next(random_model: Callable[..., ir.Model], seed: int) -> None:
    found = random_schedule(random_model, seed)
    on_their_way: dict[str, set[Place]] = {}
    last = max((i for i, action in enumerate(found.actions) if not isinstance(action, Synchronise)), default=-1)

    for index, action in enumerate(found.actions):
        reads, writes = found.touched(action)
        if isinstance(action, Transfer) and action.target == "cpu":
            on_their_way.setdefault(action.source, set()).update(writes)
        elif isinstance(action, Synchronise):
            awaited = on_their_way.pop(action.device, set())
            if index < last:
                follows = next(a for a in found.actions[index:] if not isinstance(a, Synchronise))
                at_end = isinstance(follows, CopyOut)
                assert at_end or awaited & set(found.touched(follows)[0])
        if not (isinstance(action, Transfer) and action.target == "cpu"):
            for missing in on_their_way.values():
                assert not missing & set(reads)
    assert not any(on_their_way.values())


@pytest.mark.parametrize("seed", range(20))
def test_what_is_alive_together_never_overlaps_on_any_device(random_model: Callable[..., ir.Model], seed: int) -> None:
    found = random_schedule(random_model, seed)
    roots = {
        found.wiring.specs[root].name: root for root in set(found.wiring.roots.values()) if root in found.wiring.specs
    }

    for device in found.devices:
        plan = plan_arena(found.blocks(device, {}), 64)
        spans: dict[str, tuple[int, int]] = {}
        for name in plan.offsets:
            used = [i for i, a in enumerate(found.actions) if (roots[name], device) in sum(found.touched(a), ())]
            for index in list(used):  # an enqueued copy reads the host's memory at the latest when it is waited for
                action = found.actions[index]
                if isinstance(action, Transfer) and device == action.source == "cpu":
                    wait = Synchronise(device=action.target)
                    used.append(found.actions.index(wait, index))
            spans[name] = min(used), max(used)
        for one, (first, last) in spans.items():
            for other, (begin, end) in spans.items():
                if one < other and first <= end and begin <= last:
                    a, b = plan.offsets[one], plan.offsets[other]
                    sizes = found.wiring.specs[roots[one]].nbytes, found.wiring.specs[roots[other]].nbytes
                    assert a + sizes[0] <= b or b + sizes[1] <= a


@pytest.mark.parametrize("seed", range(20))
def test_all_that_a_kernel_reads_inside_has_a_place(random_model: Callable[..., ir.Model], seed: int) -> None:
    found = random_schedule(random_model, seed)
    wiring = found.wiring
    rim = {(value, found.given.get(value, "cpu")) for value in wiring.inputs} | set(found.owned)

    for device in found.devices:
        placed = {block.name for block in found.blocks(device, {})}
        for action in found.actions:
            for root, where in sum(found.touched(action), ()):
                constant = root.producer() is None and root.const_value is not None
                if where == device and not constant and (root, where) not in rim:
                    assert wiring.specs[root].kind is not ValueKind.PLANNED or wiring.specs[root].name in placed
