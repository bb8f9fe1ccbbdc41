"""The zoo of `benchmarks/gpu.py`: sizes as published, weights that keep a signal alive, exports that mean the same.

PyTorch is 200 MB and more, so the default environment has it not, and these tests are skipped there; `tox -e torch` has
it.
"""

from __future__ import annotations

import contextlib
import json
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from benchmarks import gpu
from benchmarks.gpu_plan import ablation
from benchmarks.judge.inputs import read
from benchmarks.judge.statistics import disagreement
from benchmarks.models.torch_zoo import ZOO
from benchmarks.models.torch_zoo.files import Files

torch = pytest.importorskip("torch", reason="PyTorch, which makes these models, is not installed")

from benchmarks.contenders import torch_module  # noqa: E402
from benchmarks.models.torch_zoo import dcgan  # noqa: E402
from benchmarks.models.torch_zoo.__main__ import computed_in, exported, prepare  # noqa: E402
from benchmarks.models.torch_zoo.bert import Bert  # noqa: E402
from benchmarks.models.torch_zoo.dcgan import Generator  # noqa: E402
from benchmarks.models.torch_zoo.gpt2 import Gpt2  # noqa: E402
from benchmarks.models.torch_zoo.precision import InPrecision  # noqa: E402
from benchmarks.models.torch_zoo.resnet import ResNet  # noqa: E402
from benchmarks.models.torch_zoo.weights import calibrate, initialise, load, save  # noqa: E402

PUBLISHED_MILLIONS = {
    "bert": 109.48,  # transformers' bert-base-uncased with its pooler
    "dcgan": 12.66,
    "nasnet_a": 5.3,  # table 3 of 1707.07012
    "nasnet_a_large": 88.9,  # table 2 there, which counts the statistics, too
    "resnet3d_50": 47.0,
    "resnext50": 25.03,  # these and the rest: torchvision's tables
    "vit": 86.57,
    "gpt2": 124.44,  # transformers' gpt2
    "mobilenet_v2": 3.50,
    "convnext": 28.59,
}
RESULTS = {
    "bert": [(2, 128, 768), (2, 768)],
    "dcgan": [(2, 3, 64, 64)],
    "resnet3d_50": [(2, 400)],
    "gpt2": [(2, 50257)],
}


def parameters(module: Any) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("name", list(ZOO))
def test_a_model_has_as_many_parameters_as_is_published_and_results_of_the_right_shape(name: str) -> None:
    with torch.device("meta"):  # shapes alone
        module = ZOO[name].module()
        inputs = [torch.from_numpy(array).to("meta") for array in ZOO[name].make_inputs(2).values()]
        results = InPrecision(module, "float32")(*inputs)

    assert parameters(module) == ZOO[name].parameters
    assert parameters(module) / 1e6 == pytest.approx(PUBLISHED_MILLIONS[name], rel=0.003)
    assert [tuple(each.shape) for each in results] == RESULTS.get(name, [(2, 1000)])
    assert len(results) == len(ZOO[name].outputs)


def test_the_families_give_what_others_count_at_other_widths() -> None:
    """PyTorch's DCGAN example prints 3,576,704 for its generator, torchvision's ResNet-50 has 25,557,032."""
    with torch.device("meta"):
        assert parameters(Generator(width=64)) == 3_576_704
        assert parameters(ResNet(2)) == 25_557_032


def test_weights_are_a_function_of_seed_and_name() -> None:
    one, same, other = (initialise(Generator(width=4), seed).state_dict() for seed in (0, 0, 1))

    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["layers.0.weight"], other["layers.0.weight"])
    assert not torch.equal(one["layers.1.weight"], one["layers.4.weight"][:32])


def test_calibration_gives_each_normalisation_the_statistics_of_what_reaches_it() -> None:
    module = initialise(Generator(width=4), 0).eval()
    noise = torch.from_numpy(ZOO["dcgan"].make_inputs(4)["noise"])
    calibrate(module, noise)

    with torch.no_grad():
        first, second = (module.layers[:layers](noise).numpy() for layers in (1, 4))
    np.testing.assert_allclose(module.layers[1].running_mean, first.mean((0, 2, 3)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(module.layers[1].running_var, first.var((0, 2, 3), ddof=1), rtol=1e-4)
    # what reaches the second went through the first with the batch's own variance, 63 / 64 of the one that is kept
    np.testing.assert_allclose(module.layers[4].running_var, second.var((0, 2, 3), ddof=1), rtol=0.05)
    assert not any(layer.training for layer in module.modules())


def test_weights_come_back_from_their_file_and_fit_their_own_module_only(tmp_path: Path) -> None:
    module = initialise(Generator(width=4), 0)
    save(tmp_path / "weights.npz", module)
    found = load(tmp_path / "weights.npz", Generator(width=4))

    assert all(torch.equal(value, found.state_dict()[name]) for name, value in module.state_dict().items())
    with pytest.raises(RuntimeError, match="size mismatch"):
        load(tmp_path / "weights.npz", Generator(width=8))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_a_module_in_a_precision_computes_in_it_and_speaks_float32(dtype: str) -> None:
    seen = []

    class Spy(torch.nn.Linear):  # type: ignore[name-defined]  # known only where PyTorch is
        def forward(self, x: Any) -> Any:
            seen.append((x.dtype, self.weight.dtype))
            return super().forward(x)

    (result,) = InPrecision(Spy(2, 2), dtype)(torch.ones(1, 2))

    assert seen == [(getattr(torch, dtype),) * 2]
    assert result.dtype == torch.float32


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_an_export_computes_in_the_precision_of_the_module(name: str, dtype: str) -> None:
    """Masks are what an exporter makes float32 of, and all that follows."""
    architecture = ZOO[name]
    family = {"bert": Bert, "gpt2": Gpt2}[name]
    inputs = architecture.make_inputs(1)
    expected = [each.detach().float().numpy() for each in _results(family(16, 2, 1), "float32", inputs)]

    data = exported(InPrecision(_seeded(family(16, 2, 1)), dtype), inputs, architecture.outputs)

    assert computed_in(onnx.load_from_string(data)) == {dtype}
    if dtype == "float16":
        onnxruntime = pytest.importorskip("onnxruntime")
        session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        found = session.run(None, inputs)
        names = architecture.outputs
        assert disagreement(dict(zip(names, expected, strict=True)), dict(zip(names, found, strict=True))) < 0.02


def test_an_export_in_another_precision_is_refused() -> None:
    class Widening(torch.nn.Linear):  # type: ignore[name-defined]  # known only where PyTorch is
        def forward(self, x: Any) -> Any:
            return x.float() @ self.weight.float()

    with pytest.raises(ValueError, match=r"the export of torch\.float16 computes products in float32, too"):
        exported(InPrecision(Widening(2, 2), "float16"), {"x": np.ones((1, 2), np.float32)}, ["y"])


def _seeded(module: Any) -> Any:
    return initialise(module, 0).eval()


def _results(module: Any, dtype: str, inputs: Any) -> Any:
    with torch.no_grad():
        return InPrecision(_seeded(module), dtype)(*(torch.from_numpy(array) for array in inputs.values()))


@pytest.fixture
def narrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Weights of a narrow DCGAN, which the zoo's then is; what a contender sets for its own process is set back."""
    monkeypatch.setattr(dcgan, "generator", lambda: Generator(width=4))
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    module = initialise(Generator(width=4), 0).eval()
    calibrate(module, torch.from_numpy(ZOO["dcgan"].make_inputs(4)["noise"]))
    save(tmp_path / "weights.npz", module)
    yield tmp_path / "weights.npz"
    torch.set_grad_enabled(True)
    torch.set_num_threads(threads)
    torch_module.use_tf32(False)
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.benchmark = False


def test_pytorchs_contender_computes_what_the_module_does_in_half_precision_too(narrow: Path) -> None:
    inputs = ZOO["dcgan"].make_inputs(2)
    expected = load(narrow, Generator(width=4)).eval()(torch.from_numpy(inputs["noise"])).detach().numpy()

    for dtype, limit in (("float32", 1e-6), ("bfloat16", 0.1)):
        call = torch_module.setup(str(narrow), inputs, 1, architecture="dcgan", dtype=dtype, device="cpu")
        call()
        (found,) = call.outputs()  # type: ignore[attr-defined]
        assert found.dtype == np.float32
        error = disagreement({"y": expected}, {"y": found})
        assert error < limit
        assert (error > 1e-4) == (dtype == "bfloat16")


@pytest.mark.parametrize("allowed", [True, False])
def test_tf32_is_for_products_and_convolutions_alike(allowed: bool, narrow: Path) -> None:
    torch_module.use_tf32(allowed)

    assert torch.backends.cuda.matmul.allow_tf32 == allowed
    assert torch.backends.cudnn.allow_tf32 == allowed


def test_max_autotune_is_asked_of_pytorch_as_it_is_known(narrow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def compiled(module: Any, **options: Any) -> Any:
        asked.append(options)
        return module

    monkeypatch.setattr(torch, "compile", compiled)
    inputs = ZOO["dcgan"].make_inputs(1)
    torch_module.setup(str(narrow), inputs, 1, architecture="dcgan", device="cpu", mode="max-autotune")

    assert asked == [{"mode": "max-autotune", "fullgraph": True, "dynamic": False}]


@pytest.mark.parametrize("graph", ["true", "false"])
def test_an_eager_run_is_captured_after_its_warm_up_and_only_replayed(
    graph: str, narrow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On tensors without memory, with a stand-in for PyTorch's streams and graphs."""
    calls: list[str] = []
    stream = types.SimpleNamespace(
        wait_stream=lambda other: calls.append("wait for the other stream"), synchronize=lambda: calls.append("wait")
    )

    @contextlib.contextmanager
    def entered(what: str) -> Iterator[None]:
        calls.append(f"enter {what}")
        yield
        calls.append(f"leave {what}")

    for name, value in {
        "set_device": lambda device: calls.append(f"use {device}"),
        "Stream": lambda: stream,
        "current_stream": lambda: stream,
        "stream": lambda of: entered("stream"),
        "CUDAGraph": lambda: types.SimpleNamespace(replay=lambda: calls.append("replay")),
        "graph": lambda held: entered("capture"),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)

    def forward(self: Any, noise: Any) -> Any:
        calls.append("run")
        return self.layers(noise)

    monkeypatch.setattr(Generator, "forward", forward)
    inputs = ZOO["dcgan"].make_inputs(1)
    call = torch_module.setup(str(narrow), inputs, 1, architecture="dcgan", device="meta", graph=graph)

    runs = ["run"] * torch_module.WARM_UP
    if graph == "true":
        warm = ["wait for the other stream", "enter stream", *runs, "leave stream", "wait for the other stream"]
        assert calls == ["use meta", *warm, "enter capture", "run", "leave capture", "replay", "wait"]
    else:
        assert calls == ["use meta", *runs, "run", "wait"]
    calls.clear()
    call()
    assert calls == (["replay", "wait"] if graph == "true" else ["run", "wait"])


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, each in ZOO.items() if not each.asked_for])
def test_an_export_computes_what_the_module_does_and_tells_inputs_apart(name: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    files = Files(folder=tmp_path, name=name, batch=2, dtype="float32")
    prepare(files)
    expected = read(files.expected)

    onnx.checker.check_model(files.model, full_check=True)
    session = onnxruntime.InferenceSession(files.model, providers=["CPUExecutionProvider"])
    found = dict(zip([o.name for o in session.get_outputs()], session.run(None, read(files.inputs)), strict=True))
    assert list(found) == list(ZOO[name].outputs)
    assert disagreement(expected, found) < 1e-4
    for value in expected.values():
        assert np.abs(value[0] - value[1]).max() > 0.01 * np.abs(value).max()
    proto = onnx.load(files.model)
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 2
    floats = {v.name for v in proto.graph.input if v.type.tensor_type.elem_type == onnx.TensorProto.FLOAT}
    assert "Cast" not in {node.op_type for node in proto.graph.node if floats & set(node.input)}


@pytest.mark.parametrize(
    ("device", "toolchains"),
    [
        pytest.param("cpu", "onnxruntime", marks=pytest.mark.slow),
        pytest.param("cuda:0", "cublas,triton", marks=pytest.mark.gpu("cupy", "triton")),
    ],
)
def test_a_whole_race(device: str, toolchains: str, tmp_path: Path) -> None:
    """Written, optimized, raced and told; on the CPU a rehearsal of what runs on the GPU."""
    if device != "cpu" and not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU, or a PyTorch without CUDA")
    steps = [step.contender for step in ablation(toolchains)]  # of several toolchains only
    only = ",".join(["torch-eager", "onnxruntime-cuda", "collage", *steps])
    results = tmp_path / "results.json"

    status = gpu.main(
        [
            *("dcgan", "--batch", "1", "--only", only, "--device", device, "--toolchains", toolchains),
            *("--rounds", "3", "--preset", "quick", "--work", str(tmp_path / "work"), "--results", str(results)),
        ]
    )
    (race,) = json.loads(results.read_text(encoding="utf-8"))["races"]
    rows = {row["name"]: row for row in race["contenders"]}

    assert status in (0, 1)  # 1 if the plan may be slower, which so few rounds cannot tell
    for name in ("torch-eager", "collage"):
        assert rows[name].get("failed") is None
        assert rows[name]["max_error"] < 1e-4
    if device == "cpu":
        assert rows["onnxruntime-cuda"]["max_error"] < 1e-4
    else:
        assert rows["torch-eager"]["note"] == "one CUDA graph"
        assert "CUDA graphs of" in rows["collage"]["note"]
        assert len(steps) == 2
        assert all(rows[step]["max_error"] < 1e-4 for step in steps)
    assert "| dcgan | 1 | fp32 |" in results.with_suffix(".md").read_text(encoding="utf-8")
