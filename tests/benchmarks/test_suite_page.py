"""What the suite's page says of all plans together, and of those without a toolchain."""

from __future__ import annotations

from typing import Any

from benchmarks.suite_page import gains, rows


def contender(name: str, ratio: float, upper: float) -> dict[str, Any]:
    versus = {"ratio": ratio, "ci95": [ratio - 0.01, upper]}
    kind = "single" if name == "openvino" else "custom"
    return {"name": name, "kind": kind, "latency_ms": {"p50": 10 * ratio}, "ratio_vs_best_single": versus}


def result(name: str, ratio: float, *, without: float | None = None, generated: bool = False) -> dict[str, Any]:
    """A model whose plan has that ratio; one with kernels of Halide was optimized without them, too."""
    ran = [contender("openvino", 1.0, 1.0), contender("collage", ratio, ratio + 0.02)]
    left: dict[str, Any] = {"toolchain": "halide", "targets": None}
    if without is not None:
        ran.append(contender("without-halide", without, without + 0.02))
        left |= {"targets": ["onnxruntime", "openvino"], "kernels": 3, "predicted_ms": 7.0}
    return {
        "name": name,
        "generated": generated,
        "targets": ["halide", "onnxruntime", "openvino"] if without is not None else ["openvino"],
        "plan": [{}, {}],
        "predicted_ms": 5.0,
        "max_error": 0.0,
        "numbers_pass": True,
        "seconds": {"total": 60.0 * ratio},
        "judged": [ran],
        "without": left,
    }


def test_gains_are_geometric_means_of_the_suite_and_of_all() -> None:
    said = gains([result("a", 0.25, without=0.5), result("b", 1.0), result("c", 0.125, without=0.5, generated=True)])

    assert (
        "over the suite's 2 models plans are 2.000 times as fast as the best toolchain (1.414 without halide)" in said
    )
    assert "over the generator's 1 models plans are 8.000" in said
    assert "over all 3 plans are 3.175 times as fast as the best toolchain (1.587 without halide)" in said
    assert "The largest upper end of an interval is 1.020, of b. The longest search took 60 s, of b." in said


def test_what_building_kernels_took_is_said_where_it_is_known() -> None:
    built = {"halide": {"kernels": 3, "failed": 0, "seconds": 4.0, "longest": 2.5}}
    more = {"halide": {"kernels": 9, "failed": 1, "seconds": 6.25, "longest": 1.5}}
    models = [result("a", 0.5) | {"built": built}, result("b", 1.0) | {"built": more}, result("c", 1.0)]

    assert gains(models).endswith(
        " Of halide, 12 kernels were built for 2 models: in 6.2 s at most for a model, b, and in 2.5 s for a kernel "
        "with all its variants."
    )
    assert "were built" not in gains(models[2:])


def test_several_judgements_of_a_model_count_as_one() -> None:
    twice = result("a", 0.25)
    twice["judged"] = [twice["judged"][0], result("a", 1.0)["judged"][0]]

    assert "plans are 2.000 times" in gains([twice])


def test_a_plan_without_a_toolchain_has_a_row_of_its_own() -> None:
    first, second = rows([result("a", 0.25, without=0.5)])

    assert first[:2] == ("a", "mix halide and onnxruntime and openvino, 2 kernels")
    assert second[:4] == ("a", "(without halide: mix onnxruntime and openvino, 3 kernels)", "7.00", "5.00")
