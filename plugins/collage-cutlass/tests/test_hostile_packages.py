"""A package that names this toolchain runs none of its code: opening its library would."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from pathlib import Path

import pytest

from collage.runtime.load import load
from collage.runtime.package import save_package
from collage_core.contract import Artifact
from collage_core.errors import KernelLoadError
from collage_core.fusion import Partitioning
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.passes.apply import apply_partitioning
from collage_core.passes.call_sites import call_sites
from collage_core.registry import Registry, Toolchain
from collage_cutlass.library import Compiled
from collage_cutlass.lower import LIBRARY
from collage_cutlass.plugin import CutlassPlugin
from collage_testing.kit import FakeDevice, fake_providers

from .cases import FLOAT16, product
from .machine import TARGET
from .test_packages import whole


def library_leaving(mark: Path, folder: Path) -> bytes:
    """A shared library whose constructor makes a file."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    source, library = folder / "kernel.c", folder / "kernel.so"
    text = f'#include <stdio.h>\n__attribute__((constructor)) static void run(void) {{ fclose(fopen("{mark}", "w")); }}'
    source.write_text(text)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    return library.read_bytes()


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize(
    ("trusted", "devices", "reason"),
    [
        (False, ["cuda:0"], "it is code, of a package that was neither written on this machine nor accepted"),
        (False, [], "it is code, of a package that was neither written on this machine nor accepted"),
        (True, [], "its toolchain does not offer that target here"),
    ],
    ids=["not trusted", "not trusted, without a GPU", "trusted, without a GPU"],
)
def test_the_library_of_a_package_is_not_opened(
    trusted: bool, devices: list[str], reason: str, device: str, tmp_path: Path
) -> None:
    mark, path = tmp_path / "mark", tmp_path / "model.collage"
    library = library_leaving(mark, tmp_path)
    graph = DataflowGraph(product("Silu", dtype=FLOAT16, constant=True, bias=(8,)))
    target = dataclasses.replace(TARGET, device=device)
    partitioned = apply_partitioning(Partitioning(graph, (whole(graph, target),)))
    [site] = call_sites(partitioned)
    artifacts, targets = {site.name: Artifact(files={LIBRARY: library})}, {site.name: target}
    save_package(path, partitioned, artifacts, targets, None, threads=1, model_name="m", model_sha256="")
    registry = Registry.of(Toolchain("cutlass", CutlassPlugin()))
    providers = fake_providers(*map(FakeDevice, devices))

    with pytest.raises(KernelLoadError, match=reason):
        load(path, registry=registry, providers=providers, trusted=trusted)
    assert not mark.exists()

    with pytest.raises(OSError, match="none that this version of the plugin compiles"):
        Compiled(library)
    assert mark.exists()
