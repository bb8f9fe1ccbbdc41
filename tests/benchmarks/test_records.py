"""What a tuning database says that building kernels took."""

from __future__ import annotations

from pathlib import Path

from benchmarks.records import built_in
from collage.store import RecordKey, SqliteStore, TuningRecord


def record(number: int, target: str, build_s: float | None, *, works: bool = True) -> TuningRecord:
    key = RecordKey(
        structural_hash=str(number), target=target, fingerprint="f", host="c", threads=2, launch="eager", timing="t"
    )
    return TuningRecord(
        key=key,
        outcome="measured" if works else "failed",
        purpose="select",
        created="2026-01-01T00:00:00+00:00",
        samples_us=(1.0,) if works else (),
        reason="" if works else "it did not compile in time",
        extra={} if build_s is None else {"build_s": build_s},
    )


def test_seconds_are_counted_by_toolchain(tmp_path: Path) -> None:
    records = [
        record(0, "halide", 1.5),
        record(1, "halide", 30.0, works=False),
        record(2, "onnxruntime", 0.25),
        record(3, "onnxruntime(spin=true)", 0.5),
        record(4, "openvino", None),
    ]
    with SqliteStore(tmp_path / "tuning.sqlite") as store:
        store.append_all(records)

    assert built_in(tmp_path / "tuning.sqlite") == {
        "halide": {"kernels": 2, "failed": 1, "seconds": 31.5, "longest": 30.0},
        "onnxruntime": {"kernels": 2, "failed": 0, "seconds": 0.75, "longest": 0.5},
        "openvino": {"kernels": 1, "failed": 0, "seconds": 0.0, "longest": 0.0},
    }
