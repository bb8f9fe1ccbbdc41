"""`collage trust`: packages are accepted, listed and forgotten by their content."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx_ir as ir
import pytest
from click.testing import CliRunner, Result

from collage.cli import main
from collage.runtime.package import TrustedPackages, load_package
from tests.engine.runtime.packages import save, three_products

Parse = Callable[[str], ir.Model]


@pytest.fixture
def package(parsed: Parse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return save(tmp_path / "m.collage", three_products(parsed))


def trust(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["trust", *map(str, arguments)])


def test_what_is_accepted_is_listed_until_it_is_forgotten(package: Path) -> None:
    digest = load_package(package).digest

    accepted = trust(package)

    assert accepted.exit_code == 0, accepted.output
    assert accepted.output == f"{package}: accepted, with its kernels of mock\n"
    [line] = trust("--list").output.splitlines()
    assert line.startswith(f"{digest} accepted 2")
    assert line.endswith(f" {package}")
    assert trust("--forget", package).output == f"{package}: trusted no longer\n"
    assert trust("--list").output == ""
    again = trust("--forget", digest)
    assert again.exit_code == 2
    assert f"{digest} is not trusted; `collage trust --list` shows what is" in again.output


def test_a_copy_is_trusted_and_a_changed_package_is_not(package: Path, parsed: Parse) -> None:
    trust(package)
    copy = package.with_name("copy.collage")
    copy.write_bytes(package.read_bytes())
    other = save(package.with_name("other.collage"), three_products(parsed), model_name="another")

    assert load_package(copy).digest in TrustedPackages()
    assert load_package(other).digest not in TrustedPackages()


def test_a_damaged_package_is_not_accepted(package: Path) -> None:
    data = bytearray(package.read_bytes())
    data[data.index(b'"decision"')] ^= 1
    package.write_bytes(data)

    refused = trust(package)

    assert refused.exit_code == 1
    assert "the checksum of entry 'record.json' does not match" in refused.output
    assert list(TrustedPackages()) == []


@pytest.mark.parametrize("arguments", [[], ["--forget"], ["--list", "x.collage"], ["--list", "--forget", "x.collage"]])
def test_what_says_nothing_is_misuse(arguments: list[str]) -> None:
    assert trust(*arguments).exit_code == 2


def test_a_folder_that_cannot_be_written_is_one_error(package: Path, tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"a file")

    refused = trust(package)

    assert refused.exit_code == 1
    assert "cannot remember a trusted package in" in refused.output


def test_other_files_in_the_folder_are_no_packages(package: Path, tmp_path: Path) -> None:
    folder = tmp_path / "state" / "collage" / "trusted-packages"
    folder.mkdir(parents=True)
    (folder / ("0" * 64)).write_bytes(b"no JSON")
    (folder / "notes").write_bytes(b"")

    [only] = TrustedPackages()

    assert (only.digest, only.how) == ("0" * 64, "unknown")
    assert "../" + "0" * 64 not in TrustedPackages()
