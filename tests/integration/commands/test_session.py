"""A saved mixed plan over real libraries, run hard: many threads, many runs, other libraries' tensors."""

from __future__ import annotations

import gc
import itertools
import json
import random
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from collage.commands.load import load
from collage.commands.optimize import optimize
from collage.options import OptimizeOptions
from collage.runtime.calling.lending import IDLE_BLOCKS
from collage.runtime.session import Session
from collage_testing.graphs import GraphBuilder
from tests.integration.commands.conftest import BOTH, TINY, Collage, alternating
from tests.integration.commands.models import written

pytestmark = pytest.mark.plugins

THREADS, RUNS = 8, 1000


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small convolutional network, its kernels shared between both toolchains."""
    folder = tmp_path_factory.mktemp("session")
    with alternating():
        optimized = optimize(
            written("cnn", folder), OptimizeOptions(toolchains=BOTH, tuning_db="memory:", threads=1, **TINY)
        )
    assert {region.toolchain for region in optimized.record.regions} == {"onnxruntime", "openvino"}
    optimized.save(folder / "cnn.collage")
    return folder / "cnn.collage"


@pytest.fixture
def session(package: Path) -> Session:
    return load(package, threads=1)


def image(seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal((1, 3, 16, 16), dtype=np.float32)


@pytest.mark.guards(
    "one session in eight threads, a thousand runs each; eight clones", "the same bits as alone", area="sessions"
)
@pytest.mark.parametrize("part", [lambda session: session, Session.clone], ids=["one session", "clones"])
def test_eight_threads_of_a_thousand_runs_get_the_same_bits(
    part: Callable[[Session], Session], session: Session
) -> None:
    images = [image(seed) for seed in range(THREADS)]
    expected = [session.run(None, {"x": x})[0].tobytes() for x in images]

    def work(number: int) -> int:
        mine = part(session)
        return sum(mine.run(None, {"x": images[number]})[0].tobytes() != expected[number] for _ in range(RUNS))

    with ThreadPoolExecutor(THREADS) as threads:
        wrong = list(threads.map(work, range(THREADS)))

    assert wrong == [0] * THREADS
    assert len(set(expected)) == THREADS


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mixed plan whose input and outputs are 1 MiB each: read in place and lent."""
    folder = tmp_path_factory.mktemp("dense")
    g = GraphBuilder("dense")
    a = g.op("Relu", g.input("x", 1, 4, 256, 256))
    y, z = g.op("Exp", a), g.op("Neg", g.op("Sigmoid", a))
    with alternating():
        optimized = optimize(g.model(y, z), OptimizeOptions(toolchains=BOTH, tuning_db="memory:", threads=1, **TINY))
    assert {region.toolchain for region in optimized.record.regions} == {"onnxruntime", "openvino"}
    optimized.save(folder / "dense.collage")
    return folder / "dense.collage"


@pytest.mark.guards("eight threads hold their results for random times, of one session and of clones")
@pytest.mark.parametrize("part", [lambda session: session, Session.clone], ids=["one session", "clones"])
def test_eight_threads_hold_large_results_for_random_times(part: Callable[[Session], Session], dense: Path) -> None:
    session = load(dense, threads=1)
    images = [np.random.default_rng(n).standard_normal((1, 4, 256, 256), dtype=np.float32) for n in range(THREADS)]
    expected = [[value.tobytes() for value in session.run(None, {"x": x})] for x in images]

    def work(number: int) -> int:
        mine, rng, wrong = part(session), random.Random(number), 0
        held: list[tuple[int, list[np.ndarray[Any, Any]]]] = []
        for _ in range(40):
            image = rng.randrange(THREADS)
            held.append((image, mine.run(None, {"x": images[image]})))
            while held and rng.random() < 0.45:
                del held[rng.randrange(len(held))]
            wrong += sum([value.tobytes() for value in values] != expected[image] for image, values in held[-4:])
        wrong += sum([value.tobytes() for value in values] != expected[image] for image, values in held)
        return wrong

    with ThreadPoolExecutor(THREADS) as threads:
        wrong = list(threads.map(work, range(THREADS)))

    assert wrong == [0] * THREADS
    assert session.output_bytes <= 2 * IDLE_BLOCKS * images[0].nbytes


@pytest.mark.guards(
    "ten thousand runs of one session",
    "no Python object more than after a thousand, and in one of three stretches less than 230 bytes a run",
    area="sessions",
)
def test_ten_thousand_runs_take_no_more_memory_than_a_thousand(session: Session) -> None:
    x = image(0)

    def held(runs: int) -> tuple[int, int]:
        for _ in range(runs):
            session.run(None, {"x": x})
        gc.collect()
        return sys.getallocatedblocks(), psutil.Process().memory_info().rss

    after = [held(1000), *(held(3000) for _ in range(3))]
    (blocks, _), *_, (more_blocks, _) = after

    assert more_blocks - blocks < 900  # one object kept in ten runs would be as many
    # What Python does not count: an output is 40 bytes, an input 3 KiB, and 3,000 of them would be 9 MB. What is kept
    # of each run shows in each stretch; an allocator that takes a few megabytes more does so in one.
    assert min(later - before for (_, before), (_, later) in itertools.pairwise(after)) < (2 << 20) / 3


@pytest.mark.guards(
    "another library's tensors are given to a session",
    "read and returned by DLPack, uncopied from `run_bound` (with PyTorch where it is installed)",
    area="sessions",
)
def test_an_output_comes_from_and_goes_to_another_librarys_tensors(session: Session) -> None:
    torch = pytest.importorskip("torch")
    x = image(3)

    [from_torch] = session.run(None, {"x": torch.from_numpy(x.copy())})

    np.testing.assert_array_equal(from_torch, session.run(None, {"x": x})[0])
    assert torch.from_dlpack(from_torch).tolist() == from_torch.tolist()
    [uncopied] = session.run_bound()
    shared = torch.from_dlpack(uncopied)
    session.set_inputs({"x": image(4)})
    session.run_bound()
    assert shared.tolist() == uncopied.tolist()  # one memory: the tensor sees the next run


@pytest.mark.guards("another library's tensors are given to a session")
def test_dlpack_without_a_library(session: Session) -> None:
    class Tensor:
        """Speaks DLPack and nothing else."""

        def __init__(self, array: np.ndarray[Any, Any]) -> None:
            self._array = array

        def __dlpack__(self, **options: Any) -> Any:
            return self._array.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self._array.__dlpack_device__()

    [y] = session.run(None, {"x": Tensor(image(5))})

    np.testing.assert_array_equal(y, session.run(None, {"x": image(5)})[0])
    np.testing.assert_array_equal(np.from_dlpack(y), y)


@pytest.mark.guards(
    "a session is profiled", "one event per kernel and run, in the format of chrome://tracing", area="sessions"
)
def test_a_profile_has_an_event_of_every_kernel_and_run(package: Path, collage: Collage, tmp_path: Path) -> None:
    ran = collage("run", package, "--profile", "trace.json", folder=tmp_path)

    assert ran.returncode == 0, ran.stderr
    trace = json.loads((tmp_path / "trace.json").read_text())
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    profile = load(package).profile(runs=3)
    assert {event["name"] for event in events} == {step.name for step in profile.steps}
    assert {event["cat"] for event in events} >= {"onnxruntime", "openvino"}
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in events)
    rows = {event["tid"]: event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"}
    assert all(rows[event["tid"]] == event["cat"] for event in events)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A package per toolchain of a model with 64 MiB of weights."""
    folder = tmp_path_factory.mktemp("wide")
    g = GraphBuilder("wide")
    y = g.op("MatMul", g.op("MatMul", g.input("x", 1, 2048), g.weight("up", 2048, 4096)), g.weight("down", 4096, 2048))
    model, packages = g.model(y), {}
    for toolchain in ("onnxruntime", "openvino"):
        optimized = optimize(
            model.clone(), OptimizeOptions(toolchains=toolchain, tuning_db="memory:", threads=1, **TINY)
        )
        packages[toolchain] = folder / f"{toolchain}.collage"
        optimized.save(packages[toolchain])
    return packages


@pytest.mark.guards(
    "a session is cloned",
    "clones share reentrant kernels and their weights: four take less memory than one copy of the weights",
    area="sessions",
)
@pytest.mark.slow
@pytest.mark.parametrize("toolchain", ["onnxruntime", "openvino"])
def test_clones_share_the_weights(toolchain: str, wide: dict[str, Path]) -> None:
    session = load(wide[toolchain], threads=1)
    x = np.ones((1, 2048), np.float32)
    [expected] = session.run(None, {"x": x})
    before = psutil.Process().memory_info().rss

    clones = [session.clone() for _ in range(4)]

    for clone in clones:
        np.testing.assert_array_equal(clone.run(None, {"x": x})[0], expected)
    assert psutil.Process().memory_info().rss - before < 32 << 20  # four copies would be 256 MiB
