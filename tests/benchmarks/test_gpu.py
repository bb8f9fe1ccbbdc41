"""`benchmarks/gpu.py` without a GPU: what it would run, with what the same for all, and what it says if it cannot."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from benchmarks import gpu
from benchmarks.gpu_plan import PRECISIONS, Case, Package, cases, entrants, known, optimize_command
from benchmarks.gpu_steps import gpu as named_gpu
from benchmarks.models.torch_zoo import ZOO

PAPER = ("bert", "dcgan", "nasnet_a", "resnet3d_50", "resnext50")
NEWER = ("vit", "gpt2", "mobilenet_v2", "convnext")


def case(name: str = "vit", batch: int = 1, precision: str = "fp32") -> Case:
    return Case(name=name, batch=batch, precision=PRECISIONS[precision])


def listing(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert gpu.main(["--list", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def test_the_plan_has_the_papers_models_and_the_newer_ones_at_both_batches(capsys: pytest.CaptureFixture[str]) -> None:
    heads = [line for line in listing(capsys) if not line.startswith("  ")]

    assert {line.partition(":")[0] for line in heads} == {f"{n}-b{b}-fp32" for n in PAPER + NEWER for b in (1, 8)}
    assert len(heads) == 18


def test_a_run_can_be_split_by_model_batch_precision_and_contender(capsys: pytest.CaptureFixture[str]) -> None:
    lines = listing(
        capsys, "nasnet_a_large", "--batch", "4", "--precision", "tf32,bf16", "--only", "collage,max-autotune"
    )

    assert [line.split()[0] for line in lines] == [
        *("nasnet_a_large-b4-tf32:", "collage", "max-autotune"),
        *("nasnet_a_large-b4-bf16:", "collage", "max-autotune"),
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["alexnet"], "no model alexnet; there are bert,"),
        (["--batch", "1,0"], "--batch is a list of numbers from 1 on"),
        (["--batch", "all"], "--batch is a list of numbers from 1 on"),
        (["--precision", "fp8"], "no precision fp8; there are fp32, tf32, fp16, bf16"),
        (["--only", "collage,tvm"], "no contender tvm; there are torch-eager,"),
    ],
)
def test_misuse_is_one_message_and_exit_status_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gpu.main(arguments) == 2
    assert capsys.readouterr().err.startswith(f"gpu: {said}")


@pytest.mark.parametrize("driver", ["no program", "no device", "another device"])
def test_without_a_gpu_it_ends_with_one_message_and_exit_status_2(
    driver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())  # as if torch were here
    body = {
        "no program": None,
        "no device": "echo No devices were found; exit 6",
        "another device": "echo '0, NVIDIA H100 80GB HBM3, 81559 MiB, 580.1'",
    }[driver]
    fake_nvidia_smi(tmp_path / "bin", monkeypatch, body)

    assert gpu.main(["--work", str(tmp_path / "work"), "--device", "cuda:1"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert {
        "no program": "there is no NVIDIA GPU here, or no driver for it",
        "no device": "nvidia-smi shows no GPU: No devices were found",
        "another device": "nvidia-smi shows no cuda:1: 0, NVIDIA H100",
    }[driver] in said.err
    assert not (tmp_path / "work").exists()


def test_without_pytorch_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    assert gpu.main([]) == 2
    assert capsys.readouterr().err == "gpu: PyTorch is not installed; it makes the models, and races\n"


def fake_nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str | None) -> None:
    folder.mkdir()
    if body is not None:
        program = folder / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_a_gpu_is_named_with_its_memory_and_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvidia_smi(
        tmp_path / "bin", monkeypatch, "printf '0, A, 1 MiB, 9\\n1, NVIDIA H200, 143771 MiB, 580.159.04\\n'"
    )

    assert named_gpu("cuda:1") == "NVIDIA H200, 143771 MiB, driver 580.159.04"


@pytest.mark.parametrize("precision", list(PRECISIONS))
def test_all_contenders_of_a_case_compute_in_one_precision(precision: str, tmp_path: Path) -> None:
    """The ONNX file, PyTorch's module and the switches for TF32 say the same."""
    of = case("bert", 8, precision)
    dtype = {"fp16": "float16", "bf16": "bfloat16"}.get(precision, "float32")
    allowed = "true" if precision == "tf32" else "false"

    for entrant in entrants(of, tmp_path, known("cublas,triton"), "cublas,triton"):
        contender = entrant.contender
        if contender.file.name == "torch_module.py":
            assert (contender.options["dtype"], contender.options["tf32"]) == (dtype, allowed)
        elif entrant.package is None:
            assert contender.path_for(of.files(tmp_path).model) == tmp_path / f"bert-b8-{dtype}.onnx"
            assert contender.options["tf32"] == allowed
        else:
            command = optimize_command(entrant.package, of, tmp_path, [], {})
            assert str(tmp_path / f"bert-b8-{dtype}.onnx") in command
            assert ("--max-error" in command) == (precision == "tf32")


def test_every_contender_file_takes_the_options_it_is_given(tmp_path: Path) -> None:
    """Read off the source: PyTorch is not installed wherever this runs."""
    import ast

    for entrant in entrants(case(), tmp_path, known("cublas,triton"), "cublas,triton"):
        tree = ast.parse(entrant.contender.file.read_text(encoding="utf-8"))
        setup = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "setup")
        taken = {argument.arg for argument in setup.args.kwonlyargs}
        required = {
            argument.arg
            for argument, default in zip(setup.args.kwonlyargs, setup.args.kw_defaults, strict=True)
            if default is None
        }

        assert required <= entrant.contender.setup_options().keys() <= taken


def test_collage_mixes_all_toolchains_and_each_runs_alone(tmp_path: Path) -> None:
    found = {entrant.contender.name: entrant for entrant in entrants(case(), tmp_path, None, "cublas,triton")}
    packages = {name: each.package for name, each in found.items() if each.package is not None}

    assert {name: package.toolchains for name, package in packages.items()} == {
        "collage": "cublas,triton",
        "cublas": "cublas",
        "triton": "triton",
    }
    assert len({package.path for package in packages.values()}) == 3
    assert {name for name, each in found.items() if each.contender.kind == "single"} == {
        *("cublas", "triton", "onnxruntime-cuda", "tensorrt-engine")
    }


def test_an_allowed_error_lets_in_tf32_and_nothing_coarser(tmp_path: Path) -> None:
    package = Package(path=tmp_path / "x.collage", toolchains="cublas,triton")
    targets = [
        *("cublas@cuda:0", "cublas(precision=tf32)@cuda:0", "cublas(precision=fp16)@cuda:0"),
        *("triton(precision=bf16)@cuda:0", "openvino(precision=bf16)", "onnxruntime(spin=true)"),
    ]
    command = optimize_command(package, case(precision="tf32"), tmp_path, targets, {"preset": "quick", "budget": ""})

    excluded = [value for option, value in itertools.pairwise(command) if option == "--exclude"]
    assert excluded == ["cublas(precision=fp16)@cuda:0", "triton(precision=bf16)@cuda:0"]
    assert "--budget" not in command
    assert command[command.index("--preset") + 1] == "quick"
    assert "--exclude" not in optimize_command(package, case(), tmp_path, targets, {})


def test_only_the_gpu_that_is_named_takes_part(tmp_path: Path) -> None:
    package = Package(path=tmp_path / "x.collage", toolchains="triton(precision=tf32),onnxruntime")
    targets = ["triton@cuda:0", "triton(precision=tf32)@cuda:1", "triton@cuda:11", "onnxruntime", "cublas@cuda:0"]
    command = optimize_command(package, case(), tmp_path, targets, {}, "cuda:1")

    excluded = [value for option, value in itertools.pairwise(command) if option == "--exclude"]
    assert excluded == ["triton@cuda:0", "triton@cuda:11"]


def test_what_optimize_is_asked_is_what_its_command_line_takes(tmp_path: Path) -> None:
    from collage.cli.optimize import optimize

    of = case(precision="tf32")
    for path in (of.files(tmp_path).model, of.files(tmp_path).inputs):
        path.touch()
    package = Package(path=tmp_path / "x.collage", toolchains="cublas,triton")
    settings = {"preset": "quick", "budget": "2m", "seed": "0"}
    command = optimize_command(package, of, tmp_path, ["cublas(precision=fp16)@cuda:0"], settings)

    parsed = optimize.make_context("optimize", command[command.index("optimize") + 1 :]).params
    assert parsed["max_error"] == 0.02
    assert parsed["exclude"] == ("cublas(precision=fp16)@cuda:0",)
    assert (parsed["preset"], parsed["budget"], parsed["inputs"]) == ("quick", 120.0, of.files(tmp_path).inputs)


def test_cases_come_by_precision_then_batch_so_that_an_early_stop_leaves_comparable_ones() -> None:
    assert [each.key for each in cases(["vit", "bert"], [1, 8], ["tf32", "fp16"])] == [
        *("vit-b1-tf32", "bert-b1-tf32", "vit-b8-tf32", "bert-b8-tf32"),
        *("vit-b1-fp16", "bert-b1-fp16", "vit-b8-fp16", "bert-b8-fp16"),
    ]


@pytest.mark.parametrize("name", list(ZOO))
def test_inputs_are_seeded_and_every_example_of_a_batch_is_another(name: str) -> None:
    one, two = ZOO[name].make_inputs(1), ZOO[name].make_inputs(2)

    for key, array in two.items():
        assert array.dtype in (np.float32, np.int64)
        assert array.shape == (2, *one[key].shape[1:])
        np.testing.assert_array_equal(array[:1], one[key])
    first = next(iter(two.values()))
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first, next(iter(ZOO[name].make_inputs(2, seed=1).values())))
