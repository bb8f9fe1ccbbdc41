"""Packages where they are used: in processes without the search, on machines other than the one they were made on."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import collage
from collage.cli import main
from collage.commands.optimize import optimize
from collage.errors import SubstituteWarning
from collage.options import OptimizeOptions
from collage.runtime.package import load_package
from collage_core.errors import KernelLoadError
from tests.hardship import ORDINARY, run_python
from tests.integration.commands.conftest import TINY, check
from tests.integration.commands.models import Arrays, inputs, reference, written
from tests.valid_json import valid

pytestmark = pytest.mark.plugins


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package over ONNX Runtime, beside its model."""
    folder = tmp_path_factory.mktemp("made")
    model = written("cnn", folder)
    optimized = optimize(model, OptimizeOptions(toolchains="onnxruntime", tuning_db="memory:", **TINY))
    optimized.save(folder / "cnn.collage")
    np.savez(folder / "in.npz", **inputs(model))  # type: ignore[arg-type]
    return folder / "cnn.collage"


@pytest.fixture
def feeds(made: Path) -> Arrays:
    return inputs(made.with_name("cnn.onnx"))


def test_the_manifest_names_library_and_plugin_with_version_and_licence(made: Path) -> None:
    libraries = {each.name: each for each in load_package(made).manifest.libraries}

    assert {"collage-core", "collage-onnxruntime", "onnxruntime"} <= set(libraries)
    assert libraries["onnxruntime"].version == importlib.metadata.version("onnxruntime")
    assert libraries["onnxruntime"].license == "MIT License"
    assert libraries["collage-onnxruntime"].license == "Apache-2.0"


ALONE = """
import json, os, sys
import numpy as np
{how}
loaded = sorted({{name.split(".")[1] for name in sys.modules if name.startswith(("collage.", "collage_core."))}})
modules = sorted(name for name in sys.modules if name.startswith("collage.commands."))
print(json.dumps([loaded, modules, os.path.exists(os.environ["COLLAGE_TUNING_DB"])]))
"""

AS_A_LIBRARY = """
import collage
session = collage.load(sys.argv[1])
np.savez(sys.argv[3], *session.run(None, dict(np.load(sys.argv[2]))))
"""

AS_A_COMMAND = """
from collage.cli import main
main(["run", sys.argv[1], "--inputs", sys.argv[2], "--save-outputs", sys.argv[3]], standalone_mode=False)
"""


def is_right(outputs: Path, made: Path, feeds: Arrays) -> None:
    """The package's only output is the reference's."""
    [right] = reference(made.with_name("cnn.onnx"), feeds).values()
    with np.load(outputs) as found:
        [name] = found.files
        np.testing.assert_allclose(found[name], right, rtol=1e-4, atol=1e-5)


@pytest.mark.guards(
    "a package is run without tuning database, search and workers",
    "works; none of their code is imported",
    area="packages and files",
)
@pytest.mark.parametrize("how", [AS_A_LIBRARY, AS_A_COMMAND], ids=["library", "command"])
def test_a_package_runs_without_the_search_its_database_and_its_workers(
    how: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, feeds: Arrays
) -> None:
    monkeypatch.setenv("COLLAGE_TUNING_DB", str(tmp_path / "never.sqlite3"))

    done = run_python(ALONE.format(how=how), made, made.with_name("in.npz"), tmp_path / "out.npz")

    assert done.returncode == 0, done.stderr
    packages, modules, database = json.loads(done.stdout.splitlines()[-1])
    assert not {"search", "store", "measure"} & set(packages)
    assert modules == ["collage.commands.load"]
    assert not database
    is_right(tmp_path / "out.npz", made, feeds)


WRITING_NOTHING = """
import json, sys
import numpy as np
import collage
[y] = collage.load(sys.argv[1]).run(None, dict(np.load(sys.argv[2])))
print(json.dumps(y.tolist()))
"""


@pytest.mark.guards("a read-only package in a read-only folder", "works", area="packages and files")
def test_a_package_runs_where_nothing_but_temporary_files_can_be_written(
    made: Path, tmp_path: Path, feeds: Arrays
) -> None:
    package = tmp_path / "cnn.collage"
    package.write_bytes(made.read_bytes())
    package.chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        done = run_python(ORDINARY + WRITING_NOTHING, package, made.with_name("in.npz"))
    finally:
        tmp_path.chmod(0o755)

    assert done.returncode == 0, done.stderr
    [right] = reference(made.with_name("cnn.onnx"), feeds).values()
    np.testing.assert_allclose(json.loads(done.stdout), right, rtol=1e-4, atol=1e-5)


def elsewhere(package: Path, folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The package as if made for another machine: its manifest changed, everything else as it is."""
    path = folder / "elsewhere.collage"
    with zipfile.ZipFile(package) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "manifest.json":
                manifest = json.loads(data)
                for kernel in manifest["plans"][0]["kernels"].values():
                    change(kernel["artifact"])
                data = json.dumps(manifest).encode()
            new.writestr(name, data)
    return path


def older_library(artifact: dict[str, Any]) -> None:
    for requirement in artifact["requires"]:
        if requirement["kind"] == "library":
            requirement["specifier"] = "==1.0.2"


def other_processor(artifact: dict[str, Any]) -> None:
    artifact["requires"].append({"kind": "isa", "name": "avx4096", "specifier": ""})


def other_vectors(artifact: dict[str, Any]) -> None:
    artifact["metadata"] |= {"blocked": True, "vector_isa": "vax"}


VERSION = "[0-9.]+"


@pytest.mark.guards(
    "the library was upgraded, an instruction set is missing, weights are packed for another vector width",
    "the kernel is lowered again from the packaged function; a warning, a note of `collage run` and "
    "`session.report()` say so",
    area="packages and files",
)
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (older_library, rf"it needs onnxruntime==1\.0\.2, {VERSION} is installed"),
        (other_processor, "it needs the CPU feature avx4096, which .* lacks"),
        (other_vectors, "its weights are blocked for vax, this machine needs"),
    ],
)
def test_an_artifact_that_does_not_fit_is_lowered_again_from_the_package_and_that_is_said(
    change: Callable[[dict[str, Any]], None], reason: str, made: Path, tmp_path: Path, feeds: Arrays
) -> None:
    package = elsewhere(made, tmp_path, change)

    with pytest.warns(SubstituteWarning, match=rf"of onnxruntime.* not loaded \({reason}") as said:
        session = collage.load(package)

    names = [output.name for output in session.get_outputs()]
    right = reference(made.with_name("cnn.onnx"), feeds)
    check(dict(zip(names, session.run(None, feeds), strict=True)), right)
    assert [warning.filename for warning in said] == [__file__] * len(said)
    assert len(said) == 1
    assert "lowered again from the package, neither measured nor verified here" in str(said[0].message)
    assert "optimize the model again" in str(said[0].message)
    assert {kernel.site for kernel in session.report().substitutes} == set(load_package(package).plan.artifacts)
    twin = session.clone()
    check(dict(zip(names, twin.run(None, feeds), strict=True)), right)
    assert twin.report() == session.report()


def test_the_command_says_what_was_lowered_again(made: Path, tmp_path: Path) -> None:
    package = elsewhere(made, tmp_path, older_library)

    result = CliRunner().invoke(main, ["run", str(package), "--json", str(tmp_path / "run.json")])

    assert result.exit_code == 0, result.stderr
    assert "lowered again from the package" in " ".join(result.stdout.split())
    [note] = valid("run", (tmp_path / "run.json").read_text())["notes"]
    assert "it needs onnxruntime==1.0.2" in note


@pytest.mark.guards("a package of a target that its toolchain does not offer on this machine")
def test_a_target_that_is_not_offered_has_a_substitute_unless_that_is_refused(
    made: Path, tmp_path: Path, feeds: Arrays
) -> None:
    path = elsewhere(made, tmp_path, older_library)
    with zipfile.ZipFile(path) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        others = {name: archive.read(name) for name in archive.namelist() if name != "manifest.json"}
    [target] = manifest["targets"].values()
    for kernel in manifest["plans"][0]["kernels"].values():
        kernel["target"] = "elsewhere"
    manifest["targets"] = {"elsewhere": {**target, "options": [["spin", "never"]]}}
    model = onnx.ModelProto.FromString(others["model.onnx"])
    for entry in (each for function in model.functions for each in function.metadata_props):
        if entry.key == "collage.target":
            entry.value = "onnxruntime(spin=never)"
    data = others["model.onnx"] = model.SerializeToString()
    manifest["entries"]["model.onnx"] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**others, "manifest.json": json.dumps(manifest).encode()}.items():
            archive.writestr(name, data)

    reason = r"not offer that target here: it offers onnxruntime, onnxruntime\(spin=true\)"
    with pytest.raises(KernelLoadError, match=reason):
        collage.load(path, strict=True)
    with pytest.warns(SubstituteWarning, match=rf"of onnxruntime\(spin=never\) .*{reason}.*; onnxruntime runs"):
        session = collage.load(path)
    names = [output.name for output in session.get_outputs()]
    check(dict(zip(names, session.run(None, feeds), strict=True)), reference(made.with_name("cnn.onnx"), feeds))
