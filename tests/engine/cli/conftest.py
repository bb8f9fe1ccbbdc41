"""The command line over a pipeline that notes what it is asked and answers at once."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from collage.cli import main
from collage.commands.optimizing import to_package
from collage.report.facts.bench_facts import BenchReport
from collage.report.facts.compare_facts import CompareReport, ValueComparison
from collage.report.facts.doctor_facts import DoctorReport
from collage.report.facts.inspect_facts import InspectReport, TargetCoverage
from collage.runtime import DeviceWork, Launch, SessionReport
from tests.engine.report.records import COMPARISON, HOST, MODEL, RECORD


class Options(types.SimpleNamespace):
    """Stands for `OptimizeOptions` and `BenchOptions`: keeps what it is given."""

    warmup = 5
    iterations = 3
    duration_s = 5.0
    rounds = 20


class FakeSession:
    """Doubles its input."""

    def get_inputs(self) -> list[Any]:
        return [types.SimpleNamespace(name="x", type="tensor(float)", shape=[1, 4])]

    def get_outputs(self) -> list[Any]:
        return [types.SimpleNamespace(name="file", type="tensor(float)", shape=[1, 4])]

    def run(self, names: None, feeds: dict[str, Any]) -> list[Any]:
        return [feeds["x"] * 2]

    def report(self) -> SessionReport:
        return SessionReport(kernels=(), verified=False)

    def device_work(self) -> DeviceWork:
        launch = Launch(device="cuda:0", steps=("k0000",), kernels=1, mode="eager", reason="it allocates")
        return DeviceWork(launches=(launch,), copies=2, synchronisations=1)

    def profile(self, feeds: dict[str, Any]) -> Any:
        step = types.SimpleNamespace(name="k0000", target="openvino", nodes=("a",), median_us=12.0)
        return types.SimpleNamespace(steps=(step,), chrome_trace=lambda: {"traceEvents": []})


class FakePipeline(types.ModuleType):
    """Answers every command; `failing` raises the error instead.

    Attributes:
        calls: Name of each function called, with its arguments.
        error: What every function raises; None to answer.
        copied_from: Package that makes every optimization unnecessary; None if there is none.
        remembered: What optimizations ended with: origins, package and database.
    """

    def __init__(self) -> None:
        super().__init__("pipeline")
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.error: BaseException | None = None
        self.OptimizeOptions = Options
        self.BenchOptions = Options
        self.copied_from: Path | None = None
        self.remembered: list[tuple[tuple[str, ...], Path, str | None]] = []
        self.compare_passes = True
        self.load_notes: tuple[str, ...] = ()

    @property
    def options(self) -> Any:
        """Options of the last call."""
        return self.calls[-1][1]["options"]

    def _note(self, name: str, **arguments: Any) -> None:
        self.calls.append((name, arguments))
        if self.error is not None:
            raise self.error

    def late(self, name: str) -> Callable[..., Any]:
        """A function that is looked up when it is called, as tests replace some."""

        def call(*arguments: Any, **options: Any) -> Any:
            return getattr(self, name)(*arguments, **options)

        return call

    def optimize(self, model: Path, options: Any, *, progress: Any) -> Any:
        progress.phase("measuring", 2)
        progress.advance()
        self._note("optimize", model=model, options=options)
        return types.SimpleNamespace(
            record=RECORD,
            origin="ab12",
            save=lambda path: path.write_bytes(b"0" * 2048),
            save_plan=lambda path: path.write_text("a plan"),
        )

    def up_to_date(self, model: Path, each: Any, output: Path) -> Any:
        if self.copied_from is None:
            return None
        output.write_bytes(b"1" * 1024)
        elsewhere = self.copied_from if output != self.copied_from else None
        return types.SimpleNamespace(records=(RECORD,), copied_from=elsewhere)

    def remember(self, origins: tuple[str, ...], package: Path, made: Any, tuning_db: str | None) -> None:
        self.remembered.append((origins, package, tuning_db))

    def inspect(self, model: Path, options: Any) -> InspectReport:
        self._note("inspect", model=model, options=options)
        coverage = TargetCoverage(target="openvino", toolchain="openvino", claimed_nodes=11)
        return InspectReport(model=MODEL, kernel_nodes=13, operators={"Conv": 4}, targets=(coverage,))

    def doctor(self) -> DoctorReport:
        self._note("doctor")
        return DoctorReport(collage_version="0.1.0", host=HOST, toolchains=RECORD.toolchains)

    def bench(self, paths: tuple[Path, ...], options: Any, *, progress: Any) -> BenchReport:
        self._note("bench", paths=paths, options=options)
        return BenchReport(model=MODEL, host=HOST, threads=2, comparison=COMPARISON)

    def compare(
        self, model: Path, package: Path, *, rtol: float | None, atol: float, seed: int, **rest: Any
    ) -> CompareReport:
        self._note("compare", model=model, package=package, rtol=rtol, atol=atol, seed=seed, **rest)
        value = ValueComparison(name="y", place="output", error=0.5, passed=self.compare_passes)
        return CompareReport(
            model=model.name, package=package.name, rtol=rtol or 1e-5, atol=atol, seed=seed, values=(value,)
        )

    def load(
        self,
        path: Path,
        *,
        threads: int | None = None,
        verify: bool | Path = False,
        strict: bool = False,
        tell: Callable[[str], None] | None = None,
    ) -> FakeSession:
        self._note("load", path=path, threads=threads, verify=verify, strict=strict)
        for note in self.load_notes:
            assert tell is not None
            tell(note)
        return FakeSession()


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> FakePipeline:
    fake = FakePipeline()
    for name in ("optimize", "inspect", "doctor", "bench", "compare", "load", "optimizing.up_to_date"):
        monkeypatch.setitem(sys.modules, f"collage.commands.{name}", fake)
    monkeypatch.setattr(to_package, "optimize", fake.late("optimize"))
    monkeypatch.setattr(to_package, "remember", fake.late("remember"))
    monkeypatch.setitem(sys.modules, "collage.options", fake)
    return fake


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"not read by the fake")
    return path


@pytest.fixture
def package(tmp_path: Path) -> Path:
    path = tmp_path / "model.collage"
    path.write_bytes(b"not read by the fake")
    return path


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    path = tmp_path / "x.npz"
    np.savez(path, x=np.ones((1, 4), np.float32))
    return path


@pytest.fixture
def collage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs the command in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def invoke(*arguments: object, stdin: str | None = None) -> Result:
        return CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin)

    return invoke
