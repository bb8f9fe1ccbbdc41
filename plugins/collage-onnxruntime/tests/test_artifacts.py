"""Artifacts: what is in them, and that bytes are all it takes to run one elsewhere."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from collage.devices.this_host import this_host
from collage_core.contract import Artifact, KernelFunction, RunContext, Target, Unsupported, content_hash
from collage_onnxruntime.plugin import plugin

Make = Callable[..., Any]

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


def test_untouched_weights_are_named_by_hash_and_not_embedded(make: Make, lowered: Callable[..., Any]) -> None:
    constants = conv_constants()
    for artifact in lowered(make(CONV, constants), effort=1):
        assert artifact.constants["m"] == content_hash(constants["m"])
        assert constants["m"].tobytes() not in b"".join(artifact.files.values())


def test_weights_the_optimiser_changed_are_embedded(make: Make, lowered: Callable[..., Any]) -> None:
    subject = make(
        "g (float[3,40] x) => (float[3,40] y) { t = Transpose<perm=[1,0]>(w) y = MatMul(x, t) }",
        {"w": np.random.default_rng(0).standard_normal((40, 40)).astype(np.float32)},
    )
    [artifact] = lowered(subject)
    made = {item["name"] for item in artifact.metadata["made"]}
    assert made | set(artifact.constants)
    assert len(artifact.files.get("weights.bin", b"")) == sum(
        np.prod(item["shape"]) * 4 for item in artifact.metadata["made"]
    )


def test_a_second_variant_without_blocked_layouts_is_made_only_when_there_is_something_to_gain(
    make: Make, lowered: Callable[..., Any]
) -> None:
    conv = make(CONV, conv_constants())
    product = make("g (float[3,8] x, float[8,4] w) => (float[3,4] y) { y = MatMul(x, w) }")
    assert [artifact.variant for artifact in lowered(conv, effort=0)] == ["blocked"]
    assert [artifact.variant for artifact in lowered(conv, effort=1)] in (["blocked", "plain"], ["blocked"])
    assert [artifact.variant for artifact in lowered(product, effort=2)] == ["blocked"]


def test_blocked_weights_are_refused_on_a_cpu_with_other_vectors(
    make: Make, lowered: Callable[..., Any], context: Callable[..., RunContext]
) -> None:
    subject = make(CONV, conv_constants())
    artifact: Artifact = lowered(subject)[0]
    foreign = dataclasses.replace(artifact, metadata={**artifact.metadata, "blocked": True, "vector_isa": "sve512"})
    answer = plugin.collage_load(Target(toolchain="onnxruntime", fingerprint="t"), foreign, context(subject))
    assert isinstance(answer, Unsupported)
    assert "sve512" in answer.reason


def test_a_missing_constant_is_a_refusal(make: Make, lowered: Callable[..., Any]) -> None:
    [artifact] = lowered(make(CONV, conv_constants()))
    answer = plugin.collage_load(
        Target(toolchain="onnxruntime", fingerprint="t"), artifact, RunContext(threads=1, host=this_host())
    )
    assert isinstance(answer, Unsupported)
    assert "not supplied" in answer.reason


def test_an_artifact_asks_for_the_very_version_that_made_it(make: Make, lowered: Callable[..., Any]) -> None:
    import onnxruntime

    [artifact] = lowered(make("g (float[4] x) => (float[4] y) { y = Neg(x) }"))
    [library] = [each for each in artifact.requires if each.kind == "library"]
    assert (library.name, library.specifier) == ("onnxruntime", f"=={onnxruntime.__version__}")


def test_an_operator_without_a_kernel_is_refused_with_the_librarys_words(make: Make, tmp_path: Path) -> None:
    function: KernelFunction = make("g (float[4] x) => (float[4] y) { y = com.microsoft.NoSuchThing(x) }").function
    answer = plugin.collage_lower(Target(toolchain="onnxruntime", fingerprint="t"), function, _build(tmp_path))
    assert isinstance(answer, Unsupported)
    assert "NoSuchThing" in answer.reason
    assert "\n" not in answer.reason


def test_a_query_names_the_refused_nodes(make: Make) -> None:
    target = Target(toolchain="onnxruntime", fingerprint="t")
    fine = make("g (float[4] x) => (float[4] y) { [n1] y = Neg(x) }").function
    bad = make(
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


_RUN_ELSEWHERE = """
import json, pathlib, sys
import numpy as np
from collage.devices.this_host import this_host
from collage_core.contract import Artifact, Buffer, RunContext, Target, TensorSpec
from MODULE.plugin import plugin
import onnx_ir

folder = pathlib.Path(sys.argv[1])
about = json.loads((folder / "about.json").read_text())
arrays = dict(np.load(folder / "arrays.npz"))
artifact = Artifact(
    files={name: (folder / name).read_bytes() for name in about["files"]},
    metadata=about["metadata"], constants=about["constants"],
)
context = RunContext(threads=1, host=this_host(), constants={k[2:]: v for k, v in arrays.items() if k.startswith("c:")})
kernel = plugin.collage_load(Target(toolchain="t", fingerprint="t"), artifact, context)
places = {
    name: Buffer(TensorSpec(name=name, dtype=onnx_ir.DataType.FLOAT, shape=tuple(shape)))
    for name, shape in about["shapes"].items()
}
places["x"].put(arrays["x"])
kernel.bind([places["x"]], [places[name] for name in about["outputs"]], None)()
np.savez(folder / "outputs.npz", **{name: places[name].array for name in about["outputs"]})
"""


def test_bytes_and_constants_are_all_another_process_needs(
    make: Make, lowered: Callable[..., Any], ran: Callable[..., Any], tmp_path: Path
) -> None:
    constants = conv_constants()
    subject = make(CONV, constants)
    x = np.random.default_rng(1).standard_normal((1, 16, 9, 9)).astype(np.float32)
    artifact: Artifact = lowered(subject)[0]
    here = ran(subject, artifact, {"x": x})
    for name, data in artifact.files.items():
        (tmp_path / name).write_bytes(data)
    function: KernelFunction = subject.function
    about = {
        "files": list(artifact.files),
        "metadata": artifact.metadata,
        "constants": artifact.constants,
        "shapes": {spec.name: spec.static_shape for spec in (*function.inputs, *function.outputs)},
        "outputs": [spec.name for spec in function.outputs],
    }
    (tmp_path / "about.json").write_text(json.dumps(about))
    arrays: dict[str, Any] = {"x": x} | {f"c:{content_hash(a)}": a for a in constants.values()}
    np.savez(tmp_path / "arrays.npz", **arrays)

    _python(_RUN_ELSEWHERE.replace("MODULE", "collage_onnxruntime"), str(tmp_path))

    there = np.load(tmp_path / "outputs.npz")
    for spec, value in zip(function.outputs, here, strict=True):
        np.testing.assert_array_equal(there[spec.name], value)


def test_without_the_library_the_plugin_imports_and_says_what_is_missing() -> None:
    _python(
        "import sys; sys.modules['onnxruntime'] = None\n"
        "from collage.devices.this_host import this_host\n"
        "from collage_core.contract import Unsupported\n"
        "from collage_onnxruntime.plugin import plugin\n"
        "answer = plugin.collage_targets(this_host())\n"
        "assert isinstance(answer, Unsupported) and 'pip install onnxruntime' in answer.reason, answer\n"
    )


def test_the_driver_can_import_the_plugin_without_importing_the_library() -> None:
    _python("import sys, collage_onnxruntime.plugin\nassert 'onnxruntime' not in sys.modules\n")


def _python(code: str, *arguments: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr


def _build(scratch: Path) -> Any:
    from collage_core.contract import BuildContext

    class NoBlobs:
        def get(self, key: str) -> bytes | None:
            return None

        def put(self, key: str, data: bytes) -> None:
            pass

    return BuildContext(
        threads=1,
        host=this_host(),
        effort=0,
        deadline_s=60,
        workspace_limit_bytes=0,
        seed=0,
        blobs=NoBlobs(),
        scratch=scratch,
    )
