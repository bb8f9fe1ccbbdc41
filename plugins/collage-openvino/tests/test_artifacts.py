"""Artifacts: what is in them, and that bytes are all it takes to run one elsewhere."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import weakref
from typing import Any

import numpy as np
import pytest

from collage.devices.this_host import this_host
from collage_core.contract import Buffer, RunContext, Target, Unsupported, content_hash
from collage_openvino.plugin import plugin
from collage_testing.kit.host_kernels import HostKernels, check_library_is_optional
from collage_testing.kit.written import written

LARGE = (
    "g (float[3,700] x) => (float[3,700] y, float[3,700] z) "
    "{ y = MatMul(x, w) t = Transpose<perm=[1,0]>(w) z = MatMul(x, t) }"
)
SMALL = LARGE.replace("700", "20")
EXACT = Target(toolchain="openvino", fingerprint="t")


def weights(extent: int) -> dict[str, np.ndarray[Any, Any]]:
    return {"w": np.random.default_rng(0).standard_normal((extent, extent)).astype(np.float32)}


def test_large_weights_are_named_by_hash_and_not_embedded(kernels: HostKernels) -> None:
    constants = weights(700)
    [artifact] = kernels.lowered(written(LARGE, constants))
    assert artifact.constants == {"w": content_hash(constants["w"])}
    assert sum(map(len, artifact.files.values())) < constants["w"].nbytes / 10


def test_small_weights_are_embedded(kernels: HostKernels) -> None:
    [artifact] = kernels.lowered(written(SMALL, weights(20)))
    assert artifact.constants == {}


def test_a_weight_used_plain_and_transposed_is_not_confused(kernels: HostKernels) -> None:
    for text, extent in ((SMALL, 20), (LARGE, 700)):
        x = np.random.default_rng(1).standard_normal((3, extent)).astype(np.float32)
        kernels.check(written(text, weights(extent)), {"x": x}, tolerance=1e-3)


def test_calls_of_model_local_functions_are_inlined(kernels: HostKernels) -> None:
    subject = written(
        "g (float[4] x) => (float[4] y) { a = local.twice(x) y = Neg(a) } "
        '<domain: "local", opset_import: ["": 20]> twice (a) => (b) { b = Add(a, a) }'
    )
    kernels.check(subject, {"x": np.arange(4, dtype=np.float32)})


def test_a_value_that_passes_through_keeps_its_place(kernels: HostKernels) -> None:
    """The frontend merges the names of input and output here."""
    subject = written("g (float[4] x, float[2] u) => (float[4] y, float[2] z) { y = Identity(x) z = Identity(u) }")
    kernels.check(subject, {"x": np.arange(4, dtype=np.float32), "u": np.ones(2, np.float32)})


@pytest.mark.parametrize("dtype", ["string", "double"])
def test_values_the_cpu_plugin_does_not_hold_are_refused(dtype: str, kernels: HostKernels) -> None:
    function = written(f"g ({dtype}[4] x) => ({dtype}[4] y) {{ y = Identity(x) }}").function
    answer = kernels.answer(function)
    assert isinstance(answer, Unsupported)
    assert "'x'" in answer.reason


def test_a_missing_constant_is_a_refusal(kernels: HostKernels) -> None:
    [artifact] = kernels.lowered(written(LARGE, weights(700)))
    answer = plugin.collage_load(EXACT, artifact, RunContext(threads=1, host=this_host()))
    assert isinstance(answer, Unsupported)
    assert "not supplied" in answer.reason


def test_an_artifact_asks_for_the_very_version_that_made_it(kernels: HostKernels) -> None:
    [artifact] = kernels.lowered(written("g (float[4] x) => (float[4] y) { y = Neg(x) }"))
    [library] = [each for each in artifact.requires if each.kind == "library"]
    assert library.specifier == f"=={importlib.metadata.version('openvino')}"


@pytest.mark.parametrize("quantised", [False, True])
def test_what_multiplies_8_bit_integers_asks_for_a_machine_that_does_not_saturate(
    quantised: bool, kernels: HostKernels
) -> None:
    build = kernels.build(host=dataclasses.replace(this_host(), cpu_flags=frozenset({"avx2", "avx_vnni"})))
    text, constants = "y = MatMul(x, w)", {"w": np.ones((64, 64), np.float32)}
    if quantised:
        text = "d = DequantizeLinear(q, s) y = MatMul(x, d)"
        constants = {"q": np.ones((64, 64), np.int8), "s": np.array(0.1, np.float32)}
    function = written(f"g (float[3,64] x) => (float[3,64] y) {{ {text} }}", constants).function

    answer = plugin.collage_lower(EXACT, function, build)

    assert not isinstance(answer, Unsupported)
    [artifact] = answer
    assert [each.name for each in artifact.requires if each.kind == "isa"] == ["avx2", "avx_vnni"][: 1 + quantised]


POOL = "AveragePool<kernel_shape=[5,5],strides=[5,5],ceil_mode=1>"


def test_a_refusal_is_one_line_of_the_librarys_words(kernels: HostKernels) -> None:
    function = written(f"g (float[1,2,3,3] x) => (float[1,2,1,1] y) {{ y = {POOL}(x) }}").function
    answer = kernels.answer(function)
    assert isinstance(answer, Unsupported)
    assert answer.reason.startswith("Kernel after dilation has size")
    assert "\n" not in answer.reason


def test_a_query_names_the_refused_nodes(kernels: HostKernels) -> None:
    fine = written("g (float[1,2,3,3] x) => (float[1,2,3,3] y) { [n1] y = Neg(x) }").function
    bad = written(
        f"g (float[1,2,3,3] x) => (float[1,2,1,1] y) <float[1,2,3,3] a, float[1,2,1,1] b> "
        f"{{ [n1] a = Neg(x) [n2] b = {POOL}(a) [n3] y = Abs(b) }}"
    ).function
    assert plugin.collage_query(EXACT, fine) == {}
    answer = plugin.collage_query(EXACT, bad)
    assert answer is not None
    assert list(answer) == ["n2"]
    assert "larger than the data shape" in answer["n2"]


def test_bytes_and_constants_are_all_another_process_needs(kernels: HostKernels) -> None:
    subject = written(LARGE, weights(700))
    x = np.random.default_rng(1).standard_normal((3, 700)).astype(np.float32)
    kernels.check_elsewhere(subject, kernels.lowered(subject)[0], {"x": x}, "collage_openvino.plugin:plugin")


def test_the_plugin_imports_without_the_library_and_asks_for_it() -> None:
    check_library_is_optional("openvino", "collage_openvino.plugin:plugin", "openvino")


def test_arrays_that_are_passed_by_reference_are_let_go(kernels: HostKernels) -> None:
    what = written("g (float[N,4] x) => (float[N,4] y) { y = Relu(x) }")
    [artifact] = kernels.lowered(what)
    loaded = plugin.collage_load(kernels.target, artifact, kernels.run_context(what))
    assert not isinstance(loaded, Unsupported), loaded.reason
    [read], [written_to] = ([Buffer(spec.as_foreign()) for spec in specs] for specs in
                            (what.function.inputs, what.function.outputs))  # fmt: skip
    call = loaded.bind([read], [written_to], None)
    for count in (3, 5, 3):
        x = np.full((count, 4), count - 4, np.float32)
        read.put(x)
        call()
        np.testing.assert_array_equal(written_to.array, np.maximum(x, 0))
        read.put(None)
        alive = weakref.ref(x)
        del x
        assert alive() is None
