"""RNN, GRU and LSTM: where ONNX's own are right against them, and against the standard's text elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.reference.test_kernels import assert_equal, floats, kernel, oracle

pytestmark = pytest.mark.guards(
    "lengths, activations, clipping and coupling of LSTM, GRU, RNN, which ONNX's evaluator ignores",
    "the reference has them",
    area="input",
)

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
STEPS, BATCH, WIDTH, HIDDEN = 4, 3, 2, 3


def inputs(op_type: str, directions: int, *, seed: int = 0, batch: int = BATCH, full: bool = True) -> list[Any]:
    """X, W, R, B, no lengths, and the initial states."""
    rows = GATES[op_type] * HIDDEN
    given: list[Any] = [
        floats(seed, STEPS, batch, WIDTH),
        floats(seed + 1, directions, rows, WIDTH),
        floats(seed + 2, directions, rows, HIDDEN),
    ]
    if not full:
        return given
    given += [floats(seed + 3, directions, 2 * rows), None, floats(seed + 4, directions, batch, HIDDEN)]
    if op_type == "LSTM":
        given += [floats(seed + 5, directions, batch, HIDDEN), floats(seed + 6, directions, 3 * HIDDEN)]
    return given


@pytest.mark.parametrize("op_type", GATES)
@given(
    direction=st.sampled_from(["forward", "reverse", "bidirectional"]),
    layout=st.booleans(),
    full=st.booleans(),
    linear=st.booleans(),
    seed=st.integers(0, 9),
)
@settings(max_examples=15, deadline=None)
def test_without_lengths_they_are_onnx_own(
    op_type: str, direction: str, layout: bool, full: bool, linear: bool, seed: int
) -> None:
    values = inputs(op_type, 2 if direction == "bidirectional" else 1, seed=seed, full=full)
    if layout:
        values = [np.swapaxes(v, 0, 1) if n in (0, 5, 6) else v for n, v in enumerate(values)]
    attributes: dict[str, Any] = {"hidden_size": HIDDEN, "direction": direction, "layout": int(layout)}
    if op_type == "GRU":
        attributes["linear_before_reset"] = int(linear)
    outputs = 3 if op_type == "LSTM" else 2

    assert_equal(kernel(op_type, values, outputs, **attributes), oracle(op_type, values, outputs, **attributes), 1e-5)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op_type", GATES)
def test_each_sequence_ends_where_its_length_says(op_type: str, direction: str) -> None:
    values = inputs(op_type, 2 if direction == "bidirectional" else 1)
    lengths = np.array([2, 4, 1], np.int32)
    attributes: dict[str, Any] = {"hidden_size": HIDDEN, "direction": direction}

    y, *ends = kernel(op_type, [*values[:4], lengths, *values[5:]], 2, **attributes)

    for item, length in enumerate(lengths):
        alone = [v if v is None or n in (1, 2, 3, 7) else v[:, item : item + 1] for n, v in enumerate(values)]
        alone[0] = alone[0][:length]
        right, end = oracle(op_type, alone, 2, **attributes)
        assert_equal([y[:length, :, item : item + 1], ends[0][:, item : item + 1]], [right, end], 1e-5)
        assert not y[length:, :, item].any()


@pytest.mark.parametrize(
    ("name", "parameters", "function"),
    [
        ("Relu", {}, lambda x: np.maximum(x, 0)),
        ("Sigmoid", {}, lambda x: 1 / (1 + np.exp(-x))),
        ("Affine", {"activation_alpha": [0.5], "activation_beta": [0.25]}, lambda x: 0.5 * x + 0.25),
        ("LeakyRelu", {}, lambda x: np.where(x < 0, 0.01 * x, x)),
        ("ThresholdedRelu", {"activation_alpha": [0.5]}, lambda x: np.where(x > 0.5, x, 0)),
        ("ScaledTanh", {"activation_alpha": [2.0], "activation_beta": [0.5]}, lambda x: 2 * np.tanh(x / 2)),
        ("HardSigmoid", {}, lambda x: np.clip(0.2 * x + 0.5, 0, 1)),
        ("Elu", {"activation_alpha": [2.0]}, lambda x: np.where(x < 0, 2 * (np.exp(x) - 1), x)),
        ("Softsign", {}, lambda x: x / (1 + np.abs(x))),
        ("Softplus", {}, lambda x: np.log(np.exp(x) + 1)),
    ],
)
def test_an_activation_is_the_operator_of_its_name(name: str, parameters: Any, function: Any) -> None:
    x, w, r = inputs("RNN", 1, full=False)

    y, _ = kernel("RNN", [x, w, r], 2, hidden_size=HIDDEN, activations=[name], **parameters)

    h = np.zeros((BATCH, HIDDEN), np.float32)
    for step in range(STEPS):
        h = function(x[step] @ w[0].T + h @ r[0].T)
        np.testing.assert_allclose(y[step, 0], h, rtol=1e-4, atol=1e-5)


def test_parameters_are_used_up_by_the_activations_that_have_some() -> None:
    values = inputs("GRU", 2, full=False)
    names = ["Sigmoid", "LeakyRelu", "HardSigmoid", "Tanh"]

    given = kernel("GRU", values, hidden_size=HIDDEN, direction="bidirectional", activations=names,
                   activation_alpha=[0.3, 0.1], activation_beta=[0.4])  # fmt: skip
    forward = [values[0], *(v[:1] for v in values[1:])]
    back = [values[0], *(v[1:] for v in values[1:])]
    alone = [
        kernel("GRU", forward, hidden_size=HIDDEN, activations=names[:2], activation_alpha=[0.3]),
        kernel("GRU", back, hidden_size=HIDDEN, direction="reverse", activations=names[2:], activation_alpha=[0.1],
               activation_beta=[0.4]),
    ]  # fmt: skip

    np.testing.assert_array_equal(given[0], np.concatenate([alone[0][0], alone[1][0]], axis=1))


def test_inputs_of_activations_are_clipped_and_gates_can_be_coupled() -> None:
    x, w, r = inputs("LSTM", 1, full=False)

    y, h, c = kernel("LSTM", [x, w, r], 3, hidden_size=HIDDEN, clip=0.5, input_forget=1)

    def clipped(function: Any, array: Any) -> Any:
        return function(np.clip(array, -0.5, 0.5))

    def sigmoid(array: Any) -> Any:
        return 1 / (1 + np.exp(-array))

    state, cell = np.zeros((2, BATCH, HIDDEN))
    for step in range(STEPS):
        i, o, _, g = np.split(x[step] @ w[0].T + state @ r[0].T, 4, axis=-1)
        i = clipped(sigmoid, i)
        cell = (1 - i) * cell + i * clipped(np.tanh, g)
        state = clipped(sigmoid, o) * clipped(np.tanh, cell)
    for found, right in ((y[-1, 0], state), (h[0], state), (c[0], cell)):
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-6)
