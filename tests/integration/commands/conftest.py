"""Real runs over real toolchains, made short: little is measured, and what is measured decides nothing."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from collage.decide import shortlist
from collage.decide.races import race
from collage.measure.contenders.interleaved import Contender
from collage.measure.driver.source import MeasuringCostSource
from collage.runtime.package import load_package
from collage_core.contract import INVALID, Cost, KernelProfile, ProfiledPart, Unmeasured
from collage_core.fusion import CandidateKernel
from collage_core.ir.graph.masks import iterate_bits
from collage_core.passes.call_sites import call_sites
from tests.integration.short import COMMAND

ROOT = Path(__file__).parents[3]
TINY: Mapping[str, Any] = {"preset": "quick", "warmup": 1, "iterations": 3, "duration_s": 0.001}
"""Options of `optimize` that measure next to nothing."""
TINY_ARGUMENTS = ("--preset", "quick", "--warmup", "1", "--iterations", "3", "--duration", "0.001")
BOTH = "onnxruntime,openvino"

Collage: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]


@contextlib.contextmanager
def alternating() -> Iterator[None]:
    """Of what works, every other pair of nodes is cheap on one toolchain; of whole plans that of most kernels wins.

    So plans are mixed, as no measurement of a small model would have them, and the same in every run. Everything is
    built, checked and run as always.
    """
    measured = MeasuringCostSource.cost

    def node_us(candidate: CandidateKernel, index: int) -> float:
        return 2.0 if (index // 2 % 2 == 0) == (candidate.target.toolchain == "openvino") else 8.0

    def profile(source: MeasuringCostSource, candidate: CandidateKernel) -> KernelProfile:
        sub_graph = candidate.sub_graph
        parts = [
            ProfiledPart(nodes=(name,), time_us=node_us(candidate, sub_graph.graph.index_of(name)))
            for name in sub_graph.names
        ]
        return KernelProfile(parts=tuple(parts))

    def cost(source: MeasuringCostSource, candidate: CandidateKernel, *, confirmed: bool = True) -> Cost | Unmeasured:
        known = measured(source, candidate, confirmed=confirmed)
        if isinstance(known, Unmeasured) or known == INVALID:
            return known
        return 1.0 + sum(node_us(candidate, index) for index in iterate_bits(candidate.sub_graph.nodes))

    def medians_us(
        source: MeasuringCostSource, candidate: CandidateKernel, *, confirmed: bool = True
    ) -> tuple[float, ...]:
        # those of a busy machine are far apart, and then less is worth measuring
        known = cost(source, candidate, confirmed=confirmed)
        return () if isinstance(known, Unmeasured) or known == INVALID else (known,) * 5

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MeasuringCostSource, "cost", cost)
        patch.setattr(MeasuringCostSource, "medians_us", medians_us)
        patch.setattr(MeasuringCostSource, "profile", profile)
        patch.setattr(shortlist, "WITHIN", float("inf"))
        patch.setattr(race, "interleaved", _untimed)
        yield


@pytest.fixture
def alternating_costs() -> Iterator[None]:
    """See `alternating`."""
    with alternating():
        yield


def _untimed(contenders: Sequence[Contender], *, rounds: int, **_: Any) -> dict[str, Any]:
    """Stands for the timing of whole plans: the more kernels, the faster."""
    found = {}
    for contender in contenders:
        kernels = len(call_sites(load_package(str(contender.arguments["package"])).plan.model))
        found[contender.name] = tuple((1000.0 / kernels,) * 3 for _ in range(rounds))
    return found


@pytest.fixture(scope="session")
def collage() -> Collage:
    """The command in a process of its own."""

    def run(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
        known = os.environ.get("PYTHONPATH")
        path = os.pathsep.join([str(ROOT), *([known] if known else [])])
        environment = {**os.environ, "PYTHONPATH": path, "COLLAGE_TUNING_DB": str(folder / "tuning.sqlite")}
        return subprocess.run(
            [sys.executable, "-P", "-c", COMMAND, *map(str, arguments)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def check(actual: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Outputs are those of the reference."""
    assert list(actual) == list(expected)
    for name, right in expected.items():
        assert actual[name].dtype == right.dtype
        np.testing.assert_allclose(actual[name], right, rtol=1e-4, atol=1e-5, err_msg=name)
