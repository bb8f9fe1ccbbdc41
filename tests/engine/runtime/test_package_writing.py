"""A package is the old file or the whole new one, whatever happens, and says what it was made with."""

from __future__ import annotations

import importlib.metadata
import json
import random
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from collage.errors import PackageError
from collage.runtime.package import load_package, save_package
from collage_core.contract import Artifact, Requirement, Target
from collage_core.passes.call_sites import call_sites
from tests.engine.runtime.mocks import MOCK, partition
from tests.hardship import files_up_to, with_tests

Parse = Callable[[str], ir.Model]
ROOT = Path(__file__).parents[3]

SAVE = """
import sys
from pathlib import Path
from tests.engine.runtime.test_package_writing import save
number = 0
while True:
    save(Path(sys.argv[1]), number)
    number += 1
    print(number, flush=True)
"""


def large(number: int) -> ir.Model:
    """A model with 1 MB of weights that are all one number."""
    x = ir.val("x", dtype=ir.DataType.FLOAT, shape=[1, 512])
    w = ir.Value(name="w", const_value=ir.tensor(np.full((512, 512), number, np.float32), name="w"))
    w.dtype, w.shape = ir.DataType.FLOAT, ir.Shape([512, 512])
    node = ir.node("MatMul", [x, w], name="product")
    y = node.outputs[0]
    y.name, y.dtype, y.shape = "y", ir.DataType.FLOAT, ir.Shape([1, 512])
    graph = ir.Graph([x], [y], nodes=[node], initializers=[w], opset_imports={"": 20}, name="g")
    return ir.Model(graph, ir_version=10)


def save(path: Path, number: int, targets: Target = MOCK, **fields: Any) -> Path:
    partitioned = partition(large(number), target=targets)
    [site] = [site.name for site in call_sites(partitioned)]
    artifact = Artifact(files={"k.bin": bytes(100)}, **fields)
    given: dict[str, Any] = {"threads": 1, "model_name": str(number), "model_sha256": ""}
    save_package(path, partitioned, {site: artifact}, {site: targets}, {"number": number}, **given)
    return path


@pytest.mark.guards(
    "a process is killed while it saves a package, JSON or NPZ file",
    "the old file, or the whole new one, is there",
    area="packages and files",
)
def test_a_process_killed_while_it_saves_leaves_the_old_package(tmp_path: Path) -> None:
    path = save(tmp_path / "m.collage", -1)
    draw = random.Random(4)
    found = set()
    for run in range(4):
        with subprocess.Popen(
            [sys.executable, "-P", "-c", SAVE, str(path)],
            env=with_tests(),
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            if run % 2:  # else it may hit its start
                assert process.stdout.readline() == "1\n"
            time.sleep(draw.uniform(0.0, 0.05))
            process.kill()
        package = load_package(path)
        number = package.plan.record["number"]
        assert package.manifest.model_name == str(number)
        [weight] = package.weights.values()
        np.testing.assert_array_equal(weight, np.float32(number))
        found.add(number)
    assert found - {-1}


@pytest.mark.guards(
    "the disk is full while a package, JSON or NPZ file is saved",
    "one message, the old file, no temporary file left",
    area="packages and files",
)
def test_a_full_disk_leaves_the_old_package_and_nothing_else(tmp_path: Path) -> None:
    path = save(tmp_path / "m.collage", 1)
    before = path.read_bytes()

    for room in (0, 100, 300_000, len(before) - 1000):
        with files_up_to(room), pytest.raises(PackageError, match=r"m\.collage': File too large"):
            save(path, 2)

    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="No such file or directory"):
        save(tmp_path / "none" / "m.collage", 1)


def libraries(path: Path) -> dict[str, tuple[str, str]]:
    with zipfile.ZipFile(path) as archive:
        manifest = json.loads(archive.read("manifest.json"))
    return {each["name"]: (each["version"], each["license"]) for each in manifest["libraries"]}


def test_the_manifest_names_versions_and_licences_of_what_it_was_made_with(tmp_path: Path) -> None:
    path = save(
        tmp_path / "m.collage",
        1,
        requires=(
            Requirement(kind="library", name="numpy", specifier=">=2"),
            Requirement(kind="isa", name="avx2"),
            Requirement(kind="library", name="never-installed"),
        ),
    )

    found = libraries(path)

    assert set(found) == {"collage-core", "numpy"}
    assert found["collage-core"] == (importlib.metadata.version("collage-core"), "Apache-2.0")
    assert found["numpy"][0] == np.__version__
    assert "BSD" in found["numpy"][1]


@pytest.mark.plugins
@pytest.mark.parametrize("toolchain", ["onnxruntime", "openvino"])
def test_the_distribution_that_brings_a_toolchain_is_named(toolchain: str, tmp_path: Path) -> None:
    path = save(tmp_path / "m.collage", 1, Target(toolchain=toolchain, fingerprint="f"))

    assert libraries(path)[f"collage-{toolchain}"] == (importlib.metadata.version(f"collage-{toolchain}"), "Apache-2.0")
