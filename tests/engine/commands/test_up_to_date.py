"""A package is up to date if the last such optimization made it, and copied from where that left it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import onnx_ir as ir
import pytest

from collage.commands.optimizing.origin import origin_of
from collage.commands.optimizing.up_to_date import Concluded, UpToDate, remember, up_to_date
from collage.options import OptimizeOptions
from collage.report.documents.codec import to_jsonable
from collage.runtime.package import TrustedPackages, load_package
from collage.store import open_database
from tests.engine.report.records import RECORD
from tests.engine.runtime.packages import save, three_products


class Case:
    """A model, a package of it, and a database that knows of both."""

    def __init__(self, folder: Path, parsed: Callable[[str], ir.Model]) -> None:
        self.model, self.package, self.database = folder / "m.onnx", folder / "m.collage", folder / "tuning.sqlite"
        self.options = OptimizeOptions(tuning_db=str(self.database))
        made = three_products(parsed)
        ir.save(made, self.model)
        self.weight = made.graph.initializers["w"].const_value.tobytes()  # type: ignore[union-attr]
        save(self.package, made, record=to_jsonable(RECORD))
        TrustedPackages().add(load_package(self.package).digest, self.package, "written")
        with open_database(self.database):
            pass
        origin = origin_of(self.model, self.options)
        assert origin is not None
        self.origin: str = origin
        remember([origin], self.package, [RECORD], str(self.database))

    def found(self, output: Path, options: OptimizeOptions | None = None) -> UpToDate | None:
        return up_to_date(self.model, [options or self.options], output)


@pytest.fixture
def case(tmp_path: Path, parsed: Callable[[str], ir.Model]) -> Case:
    return Case(tmp_path, parsed)


def test_what_is_there_is_kept(case: Case) -> None:
    before = case.package.read_bytes()

    assert case.found(case.package) == UpToDate(records=(RECORD,), copied_from=None)
    assert case.package.read_bytes() == before


@pytest.mark.parametrize("already", [None, b"something else"], ids=["nothing", "something else"])
def test_what_is_elsewhere_is_copied(already: bytes | None, case: Case, tmp_path: Path) -> None:
    output = tmp_path / "other.collage"
    if already is not None:
        output.write_bytes(already)

    assert case.found(output) == UpToDate(records=(RECORD,), copied_from=case.package)
    assert output.read_bytes() == case.package.read_bytes()
    assert load_package(output).digest in TrustedPackages()


@pytest.mark.guards(
    "a package that others changed lies where the last optimization saved its own, with the same record",
    "it is not taken to be up to date, nor copied",
    area="packages and files",
)
def test_a_package_with_the_record_that_was_not_written_here_is_not_taken(case: Case, tmp_path: Path) -> None:
    TrustedPackages().remove(load_package(case.package).digest)

    assert case.found(case.package) is None
    assert case.found(tmp_path / "other.collage") is None
    assert not (tmp_path / "other.collage").exists()


def test_the_package_of_another_optimization_is_not_taken(
    case: Case, tmp_path: Path, parsed: Callable[[str], ir.Model]
) -> None:
    document = {**to_jsonable(RECORD), "created": "2020-01-01T00:00:00+00:00"}
    save(case.package, three_products(parsed), record=document)

    assert case.found(case.package) is None
    assert case.found(tmp_path / "other.collage") is None
    assert not (tmp_path / "other.collage").exists()


def test_a_damaged_package_is_not_taken(case: Case, tmp_path: Path) -> None:
    data = bytearray(case.package.read_bytes())
    data[data.index(case.weight)] ^= 1
    case.package.write_bytes(data)

    assert case.found(case.package) is None
    assert case.found(tmp_path / "other.collage") is None


@pytest.mark.parametrize(
    "options", [{"seed": 1}, {"budget_s": 60.0}, {"tuning_db": "none.sqlite"}, {"retry_failed": True}]
)
def test_another_optimization_finds_nothing(
    options: dict[str, object], case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert case.found(case.package, OptimizeOptions(**{"tuning_db": str(case.database), **options})) is None  # type: ignore[arg-type]
    assert not (tmp_path / "none.sqlite").exists()


def test_a_model_that_changed_or_is_gone_finds_nothing(case: Case) -> None:
    made = ir.load(case.model)
    made.graph.name = "renamed"
    ir.save(made, case.model)
    assert case.found(case.package) is None

    case.model.unlink()
    assert case.found(case.package) is None


def test_an_output_that_cannot_be_written_is_left_to_the_optimization_to_say(case: Case, tmp_path: Path) -> None:
    assert case.found(tmp_path / "no folder" / "out.collage") is None


def test_what_another_process_saved_there_is_not_remembered(case: Case) -> None:
    others = dataclasses.replace(RECORD, seed=RECORD.seed + 1)
    remember(["another origin"], case.package, [others], str(case.database))
    with open_database(str(case.database)) as database:
        assert database.get_document(Concluded, "another origin") is None

    remember(["another origin"], case.package, [RECORD], str(case.database))
    with open_database(str(case.database)) as database:
        assert database.get_document(Concluded, "another origin") is not None


def test_what_cannot_be_remembered_does_not_fail(case: Case, tmp_path: Path) -> None:
    remember([case.origin], tmp_path / "no.collage", [RECORD], str(case.database))
    assert case.found(case.package) == UpToDate(records=(RECORD,), copied_from=None)

    case.database.write_bytes(b"no database" * 100)
    remember([case.origin], case.package, [RECORD], str(case.database))
    assert case.found(case.package) is None
