"""What is known of a model or a target goes, wherever it is kept; everything else stays."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from collage.build.verifying.verify import Verified
from collage.commands.optimizing.up_to_date import Concluded
from collage.commands.stores.forget import is_meant, known_of
from collage.decide.races.saved_races import SavedRace
from collage.measure.profiling.saved_profiles import SavedProfile, document_name
from collage.report.facts.device_facts import DeviceWorkFacts
from collage.setup.queries import QUERIES
from collage.store import (
    BlobSpace,
    KernelOfModel,
    MachineSpeed,
    MemoryStore,
    ModelKernels,
    RecordKey,
    StoredDocument,
    TuningRecord,
    TuningStore,
    export_lines,
    plan_name,
)
from collage_core.contract import TargetSpelling
from collage_core.errors import UsageError

TARGETS = ("a", "a(precision=bf16)", "b@cuda:0")
MINE, SHARED, OTHERS = "1" * 64, f"{'2' * 64}+0123", "3" * 64
"""Kernels of one model, of both, of the other."""
KEY = RecordKey(structural_hash="", target="", fingerprint="lib 1", host="c", threads=2, launch="e", timing="t")
FAILURE = SavedProfile(variant="", seconds=1.0, parts=(), unattributed=(), failure="no", deadline_s=1.0)
RACE = SavedRace(timed={}, called={}, calibrations_us={}, parts_us={}, failed={})
VERIFIED = Verified(max_error=0.0, measured_us={}, site_errors={}, unchecked={}, work=DeviceWorkFacts())


def filled(models: Mapping[str, tuple[str, ...]], targets: tuple[str, ...]) -> TuningStore:
    """A store with everything there is about models, with their kernels, and targets."""
    store = MemoryStore()
    store.put_document("here", MachineSpeed(calibration_us=1.0))
    for model, kernels in models.items():
        for kernel in kernels:
            ModelKernels(store, model).note([kernel])
            for target in targets:
                fill(store, kernel, target)
        for target in targets:
            name = plan_name(model, [target], "0" * 64)
            store.put_document(name, RACE)
            store.put_document(name, VERIFIED)
            concluded = Concluded(package="p", record="r", model=model, targets=(target,))
            store.put_document(hashlib.sha256(name.encode()).hexdigest(), concluded)
    return store


def fill(store: TuningStore, kernel: str, target: str) -> None:
    key, function = dataclasses.replace(KEY, structural_hash=kernel, target=target), kernel.partition("+")[0]
    for number in range(2):
        store.append(
            TuningRecord(
                key=key,
                outcome="measured",
                purpose="select",
                created="2026-01-01T00:00:00+00:00",
                samples_us=(1.0 + number,),
            )
        )
    store.begin_attempt(key)
    store.put_document(document_name(key), FAILURE)
    store.put_blob(BlobSpace(toolchain=QUERIES, fingerprint="lib 1"), f"{target}/{function}/p/failed", b"")
    store.put_blob(BlobSpace(toolchain=target[0], fingerprint="lib 1"), f"{function}/x", b"")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"model")
    return path


@pytest.fixture
def models(model: Path) -> Mapping[str, tuple[str, ...]]:
    return {hashlib.sha256(model.read_bytes()).hexdigest(): (MINE, SHARED), "other": (SHARED, OTHERS)}


@pytest.fixture
def store(models: Mapping[str, tuple[str, ...]]) -> Iterator[TuningStore]:
    with filled(models, TARGETS) as store:
        yield store


def content(store: TuningStore) -> set[str]:
    return {*export_lines(store), *map(str, store.attempt_keys())}


@pytest.mark.parametrize("named", ["file", "hash"])
def test_of_a_model_its_kernels_go_and_all_about_its_plans(
    named: str, store: TuningStore, model: Path, models: Mapping[str, tuple[str, ...]]
) -> None:
    store.remove(known_of(store, str(model) if named == "file" else next(iter(models))))

    left = filled({"other": (OTHERS,)}, TARGETS)
    ModelKernels(left, "other").note([SHARED])
    assert content(store) == content(left)


@pytest.mark.parametrize(
    ("spelling", "left"),
    [
        ("a(precision=bf16)", ("a", "b@cuda:0")),
        ("a", ("b@cuda:0",)),
        ("a@cpu", ("b@cuda:0",)),
        ("b", ("a", "a(precision=bf16)")),
        ("b@cuda:0", ("a", "a(precision=bf16)")),
        ("b@cuda:1", TARGETS),
        ("c", TARGETS),
    ],
)
def test_of_a_target_all_goes_and_of_a_whole_toolchain_its_cache(
    spelling: str, left: tuple[str, ...], store: TuningStore, models: Mapping[str, tuple[str, ...]]
) -> None:
    store.remove(known_of(store, spelling))

    def uncached(lines: set[str]) -> set[str]:
        return {line for line in lines if '"toolchain":"a"' not in line and '"toolchain":"b"' not in line}

    assert uncached(content(store)) == uncached(content(filled(models, left)))
    caches = {space.toolchain for space, _ in store.blob_keys()} - {QUERIES}
    assert caches == {"a", "b"} - {spelling}


def test_a_file_counts_before_a_target_of_its_name(
    store: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"a model nobody knows")
    monkeypatch.chdir(tmp_path)

    assert not known_of(store, "a")


@pytest.mark.parametrize("what", ["model.onnx?", "a(b", "", "no/such/model.onnx"])
def test_what_can_be_neither_is_misuse(what: str, store: TuningStore) -> None:
    with pytest.raises(UsageError, match="no target either"):
        known_of(store, what)


@pytest.mark.parametrize(
    ("spelling", "target", "meant"),
    [
        ("a", "a(x=1)@cuda:0", True),
        ("a@cuda:0", "a(x=1)@cuda:0", True),
        ("a@cuda:0", "a(x=1)", False),
        ("a(x=1)", "a(x=1)@cuda:0", True),
        ("a(x=1)", "a(x=1,y=2)", False),
        ("a(y=2,x=1)", "a(x=1,y=2)", True),
        ("a", "ab", False),
        ("a", "what is it?", False),
    ],
)
def test_which_targets_a_spelling_means(spelling: str, target: str, meant: bool) -> None:
    assert is_meant(TargetSpelling.parse(spelling), target) == meant


def test_documents_of_another_version_do_not_matter(store: TuningStore) -> None:
    for kind in (Concluded.KIND, SavedRace.KIND, KernelOfModel.KIND, "later"):
        store.put_stored(StoredDocument(kind=kind, name="?", version=99, body={"more": 1}))

    assert not known_of(store, "c")
