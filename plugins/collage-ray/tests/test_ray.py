"""The runner of a Ray cluster, over real clusters of two nodes that are started and stopped here."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import pytest

pytest.importorskip("ray")

import ray
from ray.cluster_utils import Cluster

import collage
from collage.fleet.fleet_measurer import FleetMeasurer
from collage.fleet.runners import open_runner
from collage_core.contract import Runner
from collage_core.errors import RunnerError, UsageError
from collage_testing.kit.runners import RunnerConformance
from tests.from_source import metadata

pytestmark = pytest.mark.slow

SLEEP_S = 0.4
SLEEPER = f"""
import time
from collage.reference.plugin import ReferencePlugin
from collage_core.contract import Joins, Target
from collage_core.hookspecs import hookimpl

class Sleeper(ReferencePlugin):
    @hookimpl
    def collage_targets(self, host):
        return [Target(toolchain="sleeper", fingerprint="1", joins=Joins.ANY)]

    @hookimpl
    def collage_lower(self, function):
        time.sleep({SLEEP_S})
        yield from super().collage_lower(function)

plugin = Sleeper()
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A toolchain that takes its time, installed for this process and for the nodes that it starts."""
    folder = tmp_path_factory.mktemp("installed")
    metadata(folder, "sleeper", "1.0", {"collage.backends": {"sleeper": "sleeper:plugin"}})
    (folder / "sleeper.py").write_text(SLEEPER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
        patch.syspath_prepend(str(folder))
        yield


@pytest.fixture(scope="module")
def cluster(installed: None) -> Iterator[Cluster]:
    """Two nodes with one CPU each."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=1)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture
def name(cluster: Cluster) -> str:
    return f"ray:{cluster.address}"


class TestRayRunner(RunnerConformance):
    @pytest.fixture
    def runner(self, name: str) -> Iterator[Runner]:
        with contextlib.closing(open_runner(name)) as runner:
            yield runner


def model(path: Path, count: int = 8) -> Path:
    """A chain of sums and additions of different shapes, so that few kernels are equal."""
    nodes, initializers = [], []
    for i in range(count):
        weight = np.full((i + 2, 1), 1.0, np.float32)
        initializers.append(onnx.numpy_helper.from_array(weight, f"w{i}"))
        nodes.append(onnx.helper.make_node("Mul", [f"v{i}", "unit"], [f"m{i}"], name=f"mul{i}"))
        nodes.append(onnx.helper.make_node("ReduceSum", [f"m{i}", "axes"], [f"s{i}"], name=f"sum{i}", keepdims=1))
        nodes.append(onnx.helper.make_node("Add", [f"s{i}", f"w{i}"], [f"v{i + 1}"], name=f"add{i}"))
    initializers.append(onnx.numpy_helper.from_array(np.float32(1.0), "unit"))
    initializers.append(onnx.numpy_helper.from_array(np.array([0], np.int64), "axes"))
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [onnx.helper.make_tensor_value_info("v0", onnx.TensorProto.FLOAT, [1, 64])],
        [onnx.helper.make_tensor_value_info(f"v{count}", onnx.TensorProto.FLOAT, [count + 1, 64])],
        initializers,
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10), path)
    return path


def optimized(path: Path, database: Path, **options: Any) -> dict[str, Any]:
    """Facts of a search over all candidates, by what was measured."""
    found = collage.optimize(
        path,
        toolchains="sleeper",
        preset="quick",
        search="exact",
        threads=1,
        tuning_db=str(database),
        progress=False,
        **options,
    )
    return {"measured": found.record.search.measured, "seconds": found.record.search.seconds["measure"]}


def keys(database: Path) -> set[str]:
    """What a database has measurements of."""
    from collage.store import open_database

    with open_database(str(database), read_only=True) as store:
        return {
            json.dumps([record.key.structural_hash, record.key.target, record.key.timing, record.outcome])
            for record in store.all_records()
        }


def test_two_leases_measure_what_one_does_in_at_most_six_tenths_of_the_time(name: str, tmp_path: Path) -> None:
    path = model(tmp_path / "model.onnx")

    local = optimized(path, tmp_path / "local.sqlite3")
    fleet = optimized(path, tmp_path / "fleet.sqlite3", runner=name, split_hosts=True)

    assert keys(tmp_path / "fleet.sqlite3") == keys(tmp_path / "local.sqlite3")
    assert fleet["seconds"] <= 0.6 * local["seconds"]


def test_a_worker_that_is_killed_in_the_middle_changes_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = model(tmp_path / "model.onnx")
    optimized(path, tmp_path / "local.sqlite3")
    killed: list[int] = []
    over = threading.Event()

    def kill() -> None:
        while not over.wait(0.2):
            if killed or not (tmp_path / "fleet.sqlite3").exists() or not keys(tmp_path / "fleet.sqlite3"):
                continue  # measuring has not begun
            for process in psutil.process_iter(["cmdline"]):
                with contextlib.suppress(psutil.Error):
                    if any("ray::Lease" in word for word in process.cmdline()):
                        process.send_signal(signal.SIGKILL)
                        killed.append(process.pid)
                        break

    losses: list[str] = []
    lost = FleetMeasurer._lost

    def noted(self: FleetMeasurer, host: str, reason: str) -> None:
        losses.append(reason)
        lost(self, host, reason)

    monkeypatch.setattr(FleetMeasurer, "_lost", noted)
    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    try:
        optimized(path, tmp_path / "fleet.sqlite3", runner=name, split_hosts=True)
    finally:
        over.set()
        thread.join()

    assert len(killed) == len(losses) == 1
    assert keys(tmp_path / "fleet.sqlite3") == keys(tmp_path / "local.sqlite3")


@pytest.mark.parametrize("text", ["ray:", "ray://", "ray:/tmp"])
def test_what_names_no_cluster_is_misuse(text: str) -> None:
    with pytest.raises(UsageError, match="names no Ray cluster"):
        open_runner(text)


def test_a_cluster_that_is_not_there_is_an_error() -> None:
    with pytest.raises(RunnerError, match="Ray does not reach it"):
        open_runner("ray:127.0.0.1:1")
