"""Artifacts: what is in them, and that bytes are all it takes to run one elsewhere."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collage.devices.this_host import this_host
from collage_core.contract import Artifact, KernelFunction, RunContext, Target, Unsupported, content_hash
from collage_openvino.plugin import plugin

Make = Callable[..., Any]

LARGE = (
    "g (float[3,700] x) => (float[3,700] y, float[3,700] z) "
    "{ y = MatMul(x, w) t = Transpose<perm=[1,0]>(w) z = MatMul(x, t) }"
)
SMALL = LARGE.replace("700", "20")
EXACT = Target(toolchain="openvino", fingerprint="t")


def weights(extent: int) -> dict[str, np.ndarray[Any, Any]]:
    return {"w": np.random.default_rng(0).standard_normal((extent, extent)).astype(np.float32)}


def test_large_weights_are_named_by_hash_and_not_embedded(make: Make, lowered: Callable[..., Any]) -> None:
    constants = weights(700)
    [artifact] = lowered(make(LARGE, constants))
    assert artifact.constants == {"w": content_hash(constants["w"])}
    assert sum(map(len, artifact.files.values())) < constants["w"].nbytes / 10


def test_small_weights_are_embedded(make: Make, lowered: Callable[..., Any]) -> None:
    [artifact] = lowered(make(SMALL, weights(20)))
    assert artifact.constants == {}


def test_a_weight_used_plain_and_transposed_is_not_confused(make: Make, check: Callable[..., Any]) -> None:
    for text, extent in ((SMALL, 20), (LARGE, 700)):
        x = np.random.default_rng(1).standard_normal((3, extent)).astype(np.float32)
        check(make(text, weights(extent)), {"x": x}, tolerance=1e-3)


def test_calls_of_model_local_functions_are_inlined(make: Make, check: Callable[..., Any]) -> None:
    subject = make(
        "g (float[4] x) => (float[4] y) { a = local.twice(x) y = Neg(a) } "
        '<domain: "local", opset_import: ["": 20]> twice (a) => (b) { b = Add(a, a) }'
    )
    check(subject, {"x": np.arange(4, dtype=np.float32)})


def test_a_value_that_passes_through_keeps_its_place(make: Make, check: Callable[..., Any]) -> None:
    """The frontend merges the names of input and output here."""
    subject = make("g (float[4] x, float[2] u) => (float[4] y, float[2] z) { y = Identity(x) z = Identity(u) }")
    check(subject, {"x": np.arange(4, dtype=np.float32), "u": np.ones(2, np.float32)})


@pytest.mark.parametrize("dtype", ["string", "double"])
def test_values_the_cpu_plugin_does_not_hold_are_refused(dtype: str, make: Make, tmp_path: Path) -> None:
    function = make(f"g ({dtype}[4] x) => ({dtype}[4] y) {{ y = Identity(x) }}").function
    answer = plugin.collage_lower(EXACT, function, _build(tmp_path))
    assert isinstance(answer, Unsupported)
    assert "'x'" in answer.reason


def test_a_missing_constant_is_a_refusal(make: Make, lowered: Callable[..., Any]) -> None:
    [artifact] = lowered(make(LARGE, weights(700)))
    answer = plugin.collage_load(EXACT, artifact, RunContext(threads=1, host=this_host()))
    assert isinstance(answer, Unsupported)
    assert "not supplied" in answer.reason


def test_an_artifact_asks_for_the_very_version_that_made_it(make: Make, lowered: Callable[..., Any]) -> None:
    [artifact] = lowered(make("g (float[4] x) => (float[4] y) { y = Neg(x) }"))
    [library] = [each for each in artifact.requires if each.kind == "library"]
    assert library.specifier == f"=={importlib.metadata.version('openvino')}"


POOL = "AveragePool<kernel_shape=[5,5],strides=[5,5],ceil_mode=1>"


def test_a_refusal_is_one_line_of_the_librarys_words(make: Make, tmp_path: Path) -> None:
    function = make(f"g (float[1,2,3,3] x) => (float[1,2,1,1] y) {{ y = {POOL}(x) }}").function
    answer = plugin.collage_lower(EXACT, function, _build(tmp_path))
    assert isinstance(answer, Unsupported)
    assert answer.reason.startswith("Kernel after dilation has size")
    assert "\n" not in answer.reason


def test_a_query_names_the_refused_nodes(make: Make) -> None:
    fine = make("g (float[1,2,3,3] x) => (float[1,2,3,3] y) { [n1] y = Neg(x) }").function
    bad = make(
        f"g (float[1,2,3,3] x) => (float[1,2,1,1] y) <float[1,2,3,3] a, float[1,2,1,1] b> "
        f"{{ [n1] a = Neg(x) [n2] b = {POOL}(a) [n3] y = Abs(b) }}"
    ).function
    assert plugin.collage_query(EXACT, fine) == {}
    answer = plugin.collage_query(EXACT, bad)
    assert answer is not None
    assert list(answer) == ["n2"]
    assert "larger than the data shape" in answer["n2"]


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
    constants = weights(700)
    subject = make(LARGE, constants)
    x = np.random.default_rng(1).standard_normal((3, 700)).astype(np.float32)
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

    _python(_RUN_ELSEWHERE.replace("MODULE", "collage_openvino"), str(tmp_path))

    there = np.load(tmp_path / "outputs.npz")
    for spec, value in zip(function.outputs, here, strict=True):
        np.testing.assert_array_equal(there[spec.name], value)


def test_without_the_library_the_plugin_imports_and_says_what_is_missing() -> None:
    _python(
        "import sys; sys.modules['openvino'] = None\n"
        "from collage.devices.this_host import this_host\n"
        "from collage_core.contract import Unsupported\n"
        "from collage_openvino.plugin import plugin\n"
        "answer = plugin.collage_targets(this_host())\n"
        "assert isinstance(answer, Unsupported) and 'pip install openvino' in answer.reason, answer\n"
    )


def test_the_driver_can_import_the_plugin_without_importing_the_library() -> None:
    _python("import sys, collage_openvino.plugin\nassert 'openvino' not in sys.modules\n")


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
