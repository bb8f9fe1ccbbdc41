"""Artifacts: what is in them, and that bytes are all it takes to run one elsewhere."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

import numpy as np
import pytest

from collage.devices.this_host import this_host
from collage_core.contract import Artifact, Buffer, KernelFunction, RunContext, Target, Unsupported, content_hash
from collage_onnxruntime.plugin import plugin
from collage_testing.kit.host_kernels import HostKernels, check_library_is_optional
from collage_testing.kit.written import written

CONV = (
    "g (float[1,16,9,9] x) => (float[1,16,9,9] y, float[9,40] z) "
    "{ a = Conv<pads=[1,1,1,1]>(x, w) y = Relu(a) c = ReduceSum<keepdims=0>(x, ax) z = MatMul(c, m) }"
)


def conv_constants() -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return {
        "w": rng.standard_normal((16, 16, 3, 3)).astype(np.float32),
        "m": rng.standard_normal((9, 40)).astype(np.float32),
        "ax": np.array([0, 1], np.int64),
    }


def test_untouched_weights_are_named_by_hash_and_not_embedded(kernels: HostKernels) -> None:
    constants = conv_constants()
    for artifact in kernels.lowered(written(CONV, constants), effort=1):
        assert artifact.constants["m"] == content_hash(constants["m"])
        assert constants["m"].tobytes() not in b"".join(artifact.files.values())


def test_weights_the_optimiser_changed_are_embedded(kernels: HostKernels) -> None:
    subject = written(
        "g (float[3,40] x) => (float[3,40] y) { t = Transpose<perm=[1,0]>(w) y = MatMul(x, t) }",
        {"w": np.random.default_rng(0).standard_normal((40, 40)).astype(np.float32)},
    )
    [artifact] = kernels.lowered(subject)
    made: Any = artifact.metadata["made"]
    assert {item["name"] for item in made} | set(artifact.constants)
    assert len(artifact.files.get("weights.bin", b"")) == sum(4 * math.prod(item["shape"]) for item in made)


def test_a_second_variant_without_blocked_layouts_is_made_only_when_there_is_something_to_gain(
    kernels: HostKernels,
) -> None:
    conv = written(CONV, conv_constants())
    product = written("g (float[3,8] x, float[8,4] w) => (float[3,4] y) { y = MatMul(x, w) }")
    assert [artifact.variant for artifact in kernels.lowered(conv, effort=0)] == ["blocked"]
    assert [artifact.variant for artifact in kernels.lowered(conv, effort=1)] in (["blocked", "plain"], ["blocked"])
    assert [artifact.variant for artifact in kernels.lowered(product, effort=2)] == ["blocked"]


def test_blocked_weights_are_refused_on_a_cpu_with_other_vectors(kernels: HostKernels) -> None:
    subject = written(CONV, conv_constants())
    artifact: Artifact = kernels.lowered(subject)[0]
    foreign = dataclasses.replace(artifact, metadata={**artifact.metadata, "blocked": True, "vector_isa": "sve512"})
    answer = plugin.collage_load(
        Target(toolchain="onnxruntime", fingerprint="t"), foreign, kernels.run_context(subject)
    )
    assert isinstance(answer, Unsupported)
    assert "sve512" in answer.reason


def test_a_session_reads_weights_where_they_are(kernels: HostKernels) -> None:
    table = np.zeros((50, 40), np.float32)
    subject = written("g (int64[3] i) => (float[3,40] y) { y = Gather(t, i) }", {"t": table})
    [artifact] = kernels.lowered(subject)
    run = RunContext(threads=1, host=this_host(), constants={artifact.constants["t"]: table})
    kernel = plugin.collage_load(Target(toolchain="onnxruntime", fingerprint="t"), artifact, run)
    assert not isinstance(kernel, Unsupported)
    i, y = Buffer(subject.function.inputs[0]), Buffer(subject.function.outputs[0])
    i.put(np.array([0, 1, 2]))
    call = kernel.bind([i], [y], None)

    table += 7.0  # nobody does that to weights, but it shows

    call()
    assert (np.asarray(y.value) == 7.0).all()


def test_a_missing_constant_is_a_refusal(kernels: HostKernels) -> None:
    [artifact] = kernels.lowered(written(CONV, conv_constants()))
    answer = plugin.collage_load(
        Target(toolchain="onnxruntime", fingerprint="t"), artifact, RunContext(threads=1, host=this_host())
    )
    assert isinstance(answer, Unsupported)
    assert "not supplied" in answer.reason


def test_an_artifact_asks_for_the_very_version_that_made_it(kernels: HostKernels) -> None:
    import onnxruntime

    [artifact] = kernels.lowered(written("g (float[4] x) => (float[4] y) { y = Neg(x) }"))
    [library] = [each for each in artifact.requires if each.kind == "library"]
    assert (library.name, library.specifier) == ("onnxruntime", f"=={onnxruntime.__version__}")


PRODUCTS = {
    "y = MatMul(x, w)": (),
    "d = DequantizeLinear(q, s) y = MatMul(x, d)": ("avx_vnni",),
    "a, b, c = DynamicQuantizeLinear(x) p = MatMulInteger(a, q, c) y = Cast<to=1>(p)": ("avx_vnni",),
}


@pytest.mark.parametrize("text", PRODUCTS)
def test_what_multiplies_8_bit_integers_asks_for_a_machine_that_does_not_saturate(
    text: str, kernels: HostKernels
) -> None:
    build = kernels.build(host=dataclasses.replace(this_host(), cpu_flags=frozenset({"avx2", "avx_vnni"})))
    constants: dict[str, np.ndarray[Any, Any]] = {
        "w": np.ones((64, 64), np.float32),
        "q": np.full((64, 64), 127, np.int8),
        "s": np.array(0.1, np.float32),
    }
    used = {name: each for name, each in constants.items() if re.search(rf"\b{name}\b", text)}
    function = written(f"g (float[3,64] x) => (float[3,64] y) {{ {text} }}", used).function

    answer = plugin.collage_lower(Target(toolchain="onnxruntime", fingerprint="t"), function, build)

    assert not isinstance(answer, Unsupported)
    assert tuple(each.name for each in next(iter(answer)).requires if each.kind == "isa") == PRODUCTS[text]


def test_an_operator_without_a_kernel_is_refused_with_the_librarys_words(kernels: HostKernels) -> None:
    function: KernelFunction = written("g (float[4] x) => (float[4] y) { y = com.microsoft.NoSuchThing(x) }").function
    answer = kernels.answer(function)
    assert isinstance(answer, Unsupported)
    assert "NoSuchThing" in answer.reason
    assert "\n" not in answer.reason


def test_a_query_names_the_refused_nodes(kernels: HostKernels) -> None:
    target = Target(toolchain="onnxruntime", fingerprint="t")
    fine = written("g (float[4] x) => (float[4] y) { [n1] y = Neg(x) }").function
    bad = written(
        "g (float[4] x) => (float[4] y) { [n1] a = Neg(x) [n2] b = com.microsoft.NoSuchThing(a) [n3] y = Abs(b) }"
    ).function
    for value in bad.model.graph.all_nodes():
        for output in value.outputs:
            output.shape, output.type = bad.model.graph.inputs[0].shape, bad.model.graph.inputs[0].type
    assert plugin.collage_query(target, fine) == {}
    answer = plugin.collage_query(target, bad)
    assert answer is not None
    assert list(answer) == ["n2"]
    assert "NoSuchThing" in answer["n2"]


def test_bytes_and_constants_are_all_another_process_needs(kernels: HostKernels) -> None:
    subject = written(CONV, conv_constants())
    x = np.random.default_rng(1).standard_normal((1, 16, 9, 9)).astype(np.float32)
    kernels.check_elsewhere(subject, kernels.lowered(subject)[0], {"x": x}, "collage_onnxruntime.plugin:plugin")


def test_the_plugin_imports_without_the_library_and_asks_for_it() -> None:
    check_library_is_optional("onnxruntime", "collage_onnxruntime.plugin:plugin", "onnxruntime")
