"""What rounding does is found out as long as the values themselves are not kept from being computed."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir
import pytest

from collage.reference import evaluator
from collage.reference.affordable import SHARE, AffordableRun
from collage.reference.evaluator import NodeEvaluator, evaluate

X = np.linspace(-1, 1, 8, dtype=np.float32)


def chain() -> ir.Model:
    return ir.from_onnx_text("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[8] x) => (float[8] c) { a = Sin (x) b = Exp (a) c = Neg (b) }""")


class Clock:
    """Stands still until it is told."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def followed(run: AffordableRun, model: ir.Model, took_s: float = 0.0) -> Iterator[tuple[str, bool]]:
    """Follow the reference; yield each value's name, and whether its conditioning is known."""
    nodes = NodeEvaluator(model.opset_imports)
    scope = {model.graph.inputs[0]: X}
    for node in model.graph:
        [result] = nodes.run(node, scope)
        run.follow(node, scope, [result], took_s)
        [value] = node.outputs
        scope[value] = result
        yield str(value.name), run.conditioning(value, result) is not None


@pytest.mark.guards(
    "a reference run would not end in time if it found out what rounding does, too",
    "the values are computed; kernels are judged by the tolerance of their types",
    area="input",
)
def test_nothing_is_followed_once_a_share_of_the_time_is_over() -> None:
    model, clock = chain(), Clock(time.monotonic() + 3600)
    known = followed(AffordableRun(model.graph, NodeEvaluator(model.opset_imports), 10.0, clock), model)

    assert next(known) == ("a", True)
    clock.now += 10.0 * SHARE
    assert list(known) == [("b", False), ("c", False)]


def test_a_node_that_took_long_is_not_computed_again() -> None:
    model = chain()
    run = AffordableRun(model.graph, NodeEvaluator(model.opset_imports), 10.0, Clock(time.monotonic() + 3600))

    assert list(followed(run, model, took_s=4.0)) == [("a", False), ("b", False), ("c", False)]


def test_a_loop_is_left_when_the_share_is_over() -> None:
    model = chain()
    run = AffordableRun(model.graph, NodeEvaluator(model.opset_imports), 10.0, Clock())  # long ago, for the evaluator

    assert not any(known for _, known in followed(run, model))


def test_without_a_time_limit_everything_is_followed() -> None:
    assert set(evaluate(chain(), {"x": X}, conditioned=True).conditioning) == {"x", "a", "b", "c"}


def test_a_node_that_lacks_memory_is_tried_without_what_rounding_does(monkeypatch: pytest.MonkeyPatch) -> None:
    class Short(NodeEvaluator):
        """Has no memory for the second node as long as there is something to free."""

        def run(self, node: ir.Node, *rest: object) -> tuple[object, ...]:
            if node.op_type == "Exp" and not tried:
                tried.append(node)
                raise MemoryError
            return super().run(node, *rest)  # type: ignore[arg-type]

    tried: list[ir.Node] = []
    monkeypatch.setattr(evaluator, "NodeEvaluator", Short)

    found = evaluate(chain(), {"x": X}, conditioned=True)

    np.testing.assert_allclose(found.values["c"], -np.exp(np.sin(X)), rtol=1e-6)
    assert set(found.conditioning) == {"x", "a"}
