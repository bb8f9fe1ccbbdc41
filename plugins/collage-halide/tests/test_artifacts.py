"""Artifacts: their bytes are all it takes to run one elsewhere, and all of a process share one runtime."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collage.devices.this_host import this_host
from collage_core.contract import Artifact, Buffer, RunContext, Target, Unsupported, content_hash
from collage_core.errors import LoweringError
from collage_halide import hl, lower
from collage_halide.compile import compiled
from collage_halide.lower import KERNEL, RUNTIME
from collage_halide.plugin import plugin
from collage_testing.kit.elsewhere import python
from collage_testing.kit.host_kernels import HostKernels, check_library_is_optional
from collage_testing.kit.written import WrittenFunction, written

EXACT = Target(toolchain="halide", fingerprint="t")
PARALLEL = b"halide_do_par_for"
"""Function of the runtime that loops in parallel call."""
ROWS = "g (float[64,700] x) => (float[64,700] y) { a = Add(x, b) y = Softmax<axis=-1>(a) }"


def rows() -> WrittenFunction:
    return written(
        ROWS.replace(") {", ") <float[64,700] a> {"), {"b": np.random.default_rng(0).random(700, np.float32)}
    )


def feeds(seed: int = 1) -> dict[str, Any]:
    return {"x": np.random.default_rng(seed).standard_normal((64, 700)).astype(np.float32)}


def variants(kernels: HostKernels) -> list[Artifact]:
    answer = plugin.collage_lower(EXACT, rows().function, kernels.build(max_variants=9))
    assert not isinstance(answer, Unsupported)
    return list(answer)


def test_weights_are_named_by_hash_and_not_embedded(kernels: HostKernels) -> None:
    subject = rows()
    [artifact] = kernels.lowered(subject)[:1]
    assert artifact.constants == {"b": content_hash(subject.arrays["b"])}
    assert set(artifact.files) == {KERNEL, RUNTIME}
    assert subject.arrays["b"][:4].tobytes() not in artifact.files[KERNEL]


def test_an_artifact_runs_without_halide_and_without_a_linker(
    kernels: HostKernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = kernels.lowered(rows())[0]
    (tmp_path / "halide.py").write_text("raise ImportError('there is none')\n", encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("PATH", "")
    kernels.check_elsewhere(rows(), artifact, feeds(), "collage_halide.plugin:plugin")


def test_kernels_of_a_process_share_one_runtime(kernels: HostKernels) -> None:
    """The pool of threads is the runtime's: a pool of each kernel's own would be threads of each kernel's own."""
    wide = "g (float[4096,700] x) => (float[4096,700] y) { y = Exp(x) }"
    subjects = [written(wide.replace("Exp", operator)) for operator in ("Exp", "Neg", "Abs", "Sqrt")]
    values = {"x": np.ones((4096, 700), np.float32)}
    counts = []
    for subject in subjects:
        artifact = kernels.lowered(subject)[0]
        assert PARALLEL in artifact.files[KERNEL]
        kernels.run(subject, artifact, values)
        counts.append(len(list(Path("/proc/self/task").iterdir())))
    assert max(counts) == counts[0], "threads of other tests may end meanwhile"


LOADED = """
import gc, sys, threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from collage_halide.native import load_library, load_runtime

kernel, runtime = (Path(name).read_bytes() for name in sys.argv[1:])
together = threading.Barrier(8)

def mapped():
    lines = Path("/proc/self/maps").read_text().splitlines()
    return len({line.split()[4] for line in lines if line.endswith(".so (deleted)")})

def load(number):
    together.wait()
    return load_runtime(runtime, 2, None), load_library(kernel, None)

with ThreadPoolExecutor(8) as pool:
    loaded = list(pool.map(load, range(8)))
most = mapped()
del loaded
gc.collect()
print(most, mapped())
"""
"""Prints how many libraries eight threads loaded, and how many are left when they need them no more."""


def test_a_runtime_is_loaded_once_and_kernels_are_unloaded(kernels: HostKernels, tmp_path: Path) -> None:
    files = kernels.lowered(rows())[0].files
    paths = tmp_path / "kernel", tmp_path / "runtime"
    for path, name in zip(paths, (KERNEL, RUNTIME), strict=True):
        path.write_bytes(files[name])

    assert python("-c", LOADED, *map(str, paths)).split() == ["9", "1"]


def test_eight_threads_call_one_kernel_at_a_time_each_on_its_own_buffers(kernels: HostKernels) -> None:
    subject = rows()
    artifact = kernels.lowered(subject)[0]
    assert PARALLEL in artifact.files[KERNEL]
    kernel = plugin.collage_load(EXACT, artifact, kernels.run_context(subject))
    assert not isinstance(kernel, Unsupported)

    def work(seed: int) -> bool:
        inputs = [Buffer(spec) for spec in subject.function.inputs]
        outputs = [Buffer(spec) for spec in subject.function.outputs]
        inputs[0].put(feeds(seed)["x"])
        call = kernel.bind(inputs, outputs, None)
        call()
        first = outputs[0].array.copy()
        for _ in range(50):
            call()
            if not np.array_equal(outputs[0].array, first):
                return False
        np.testing.assert_allclose(first, subject.expected(feeds(seed))[0], rtol=1e-4, atol=1e-6)
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_a_missing_constant_is_a_refusal(kernels: HostKernels) -> None:
    artifact = kernels.lowered(rows())[0]
    answer = plugin.collage_load(EXACT, artifact, RunContext(threads=1, host=this_host()))
    assert isinstance(answer, Unsupported)
    assert "not supplied" in answer.reason


def test_an_artifact_asks_for_the_features_it_was_compiled_for(kernels: HostKernels) -> None:
    artifact = kernels.lowered(rows())[0]
    wanted = {each.name for each in artifact.requires if each.kind == "isa"}
    assert wanted <= this_host().cpu_flags
    assert ("avx2" in wanted) == ("avx2" in this_host().cpu_flags)


def test_equal_functions_have_variants_of_equal_names(kernels: HostKernels) -> None:
    first, second = ([each.variant for each in variants(kernels)] for _ in range(2))
    assert first == second
    assert len(first) == len(set(first)) > 1


def test_variants_with_the_same_loops_are_built_once(kernels: HostKernels) -> None:
    """How many vectors are computed together makes no difference to sums that registers hold."""
    what = written(
        "g (float[1,4,9,32] x) => (float[1,4,9,32] y) { y = Conv<group=4, kernel_shape=[3,3], pads=[1,1,1,1]>(x, w) }",
        {"w": np.ones((4, 1, 3, 3), np.float32)},
    )
    assert [each.variant for each in kernels.lowered(what, variants=9)] == ["kept-4", "inline-4"]


def test_what_is_empty_has_one_variant_at_any_effort(kernels: HostKernels) -> None:
    what = written("g (float[0,3] x) => (float[0,3] y) { y = Relu(x) }")
    assert [each.variant for each in kernels.lowered(what, effort=2, variants=9)] == ["kept-4"]


def test_a_variant_is_built_alone(kernels: HostKernels) -> None:
    name = variants(kernels)[1].variant
    answer = plugin.collage_lower(EXACT, rows().function, kernels.build(variant=name))
    assert not isinstance(answer, Unsupported)
    assert [each.variant for each in answer] == [name]


def test_a_variant_that_does_not_compile_is_no_other_variant(
    kernels: HostKernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[str] = []

    def failing_once(*arguments: Any) -> bytes:
        if not failed:
            failed.append("once")
            raise hl.HalideError("it does not")
        return compiled(*arguments)

    monkeypatch.setattr(lower, "compiled", failing_once)
    answer = plugin.collage_lower(EXACT, rows().function, kernels.build(variant="kept-4"))
    assert not isinstance(answer, Unsupported)
    with pytest.raises(LoweringError, match="it does not"):
        list(answer)

    failed.clear()
    assert kernels.lowered(rows(), variants=1)[0].variant != "kept-4"


def test_the_plugin_imports_without_the_library_and_asks_for_it() -> None:
    check_library_is_optional("halide", "collage_halide.plugin:plugin", "halide")


def test_the_driver_never_imports_halide() -> None:
    python(
        "-c",
        "import sys\n"
        "from collage_core.contract import Joins, Target\n"
        "from collage_core.patterns import PatternTable\n"
        "from collage_halide.plugin import plugin\n"
        "target = Target(toolchain='halide', fingerprint='test', joins=Joins.NATIVE)\n"
        "plugin.collage_register_predicates(PatternTable(), target)\n"
        "plugin.collage_fusion_spec(target)\n"
        "assert 'halide' not in sys.modules\n",
    )
