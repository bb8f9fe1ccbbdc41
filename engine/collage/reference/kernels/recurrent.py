"""Compute RNN, GRU and LSTM with all their inputs and attributes.

ONNX's own versions ignore sequence lengths, the activations of GRU and LSTM, clipping and gate coupling (onnx 1.23,
`onnx/reference/ops/op_lstm.py` and related files). So these implementations follow the standard's text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from collage.reference.kernels.windows import Array, all_inputs

Activation = Callable[[Array], Array]
_Cell = Callable[..., tuple[Array, ...]]


def rnn(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """Compute RNN: the outputs of all steps, and the last."""
    x, w, r, b, lengths, h = all_inputs(inputs, 6)

    def cell(direction: int, activations: Sequence[Activation]) -> _Cell:
        bias, (f,) = _bias(b, direction, w), activations

        def step(at: Array, h: Array) -> tuple[Array, ...]:
            return (f(at @ w[direction].T + h @ r[direction].T + bias[0] + bias[1]),)

        return step

    return _Run(attributes, gates=1, activations=("Tanh",)).over(x, r, lengths, [h], cell)


def gru(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """Compute GRU: the outputs of all steps, and the last."""
    x, w, r, b, lengths, h = all_inputs(inputs, 6)
    linear = bool(attributes.get("linear_before_reset", 0))

    def cell(direction: int, activations: Sequence[Activation]) -> _Cell:
        (wz, wr, wh), (rz, rr, rh) = np.split(w[direction], 3), np.split(r[direction], 3)
        (bz, br, bh), (cz, cr, ch) = (np.split(half, 3) for half in _bias(b, direction, w))
        f, g = activations

        def step(at: Array, h: Array) -> tuple[Array, ...]:
            update = f(at @ wz.T + h @ rz.T + bz + cz)
            reset = f(at @ wr.T + h @ rr.T + br + cr)
            old = reset * (h @ rh.T + ch) if linear else (reset * h) @ rh.T + ch
            return ((1 - update) * g(at @ wh.T + old + bh) + update * h,)

        return step

    return _Run(attributes, gates=3, activations=("Sigmoid", "Tanh")).over(x, r, lengths, [h], cell)


def lstm(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """Compute LSTM: the outputs of all steps, the last, and the last state of the cell."""
    x, w, r, b, lengths, h, c, peepholes = all_inputs(inputs, 8)
    coupled = bool(attributes.get("input_forget", 0))

    def cell(direction: int, activations: Sequence[Activation]) -> _Cell:
        bias, (f, g, last) = _bias(b, direction, w), activations
        pi, po, pf = np.split(peepholes[direction], 3) if peepholes is not None else (0.0, 0.0, 0.0)

        def step(at: Array, h: Array, c: Array) -> tuple[Array, ...]:
            gates = at @ w[direction].T + h @ r[direction].T + bias[0] + bias[1]
            i, o, forget, new = np.split(gates, 4, axis=-1)
            i = f(i + pi * c)
            kept = 1 - i if coupled else f(forget + pf * c)
            c = kept * c + i * g(new)
            return f(o + po * c) * last(c), c

        return step

    return _Run(attributes, gates=4, activations=("Sigmoid", "Tanh", "Tanh")).over(x, r, lengths, [h, c], cell)


@dataclasses.dataclass(frozen=True, slots=True)
class _Run:
    """Common part of the three operators: directions, lengths, layout, activations."""

    attributes: Mapping[str, Any]
    gates: int
    activations: tuple[str, ...]

    def over(
        self,
        x: Array,
        r: Array,
        lengths: Array | None,
        states: Sequence[Array | None],
        cell: Callable[[int, Sequence[Activation]], _Cell],
    ) -> tuple[Array, ...]:
        """Run a cell over all steps in each direction."""
        batch_first = bool(self.attributes.get("layout", 0))
        x = np.swapaxes(x, 0, 1) if batch_first else x
        steps, batch = x.shape[:2]
        directions, hidden = r.shape[0], r.shape[2]
        backwards = {"forward": (False,), "reverse": (True,)}.get(
            self.attributes.get("direction", "forward"), (False, True)
        )
        taken = np.full(batch, steps) if lengths is None else lengths
        y = np.zeros((steps, directions, batch, hidden), x.dtype)
        last: list[list[Array]] = []
        for direction, (back, functions) in enumerate(zip(backwards, self._functions(directions), strict=True)):
            step = cell(direction, functions)
            state = [self._initial(given, direction, (batch, hidden), x, batch_first) for given in states]
            for number in range(steps):
                alive = number < taken
                at = np.where(alive, taken - 1 - number if back else number, 0)
                new = step(x[at, np.arange(batch)], *state)
                state = [np.where(alive[:, None], after, before) for after, before in zip(new, state, strict=True)]
                y[at[alive], direction, alive] = state[0][alive]
            last.append(state)
        ends = [np.stack(each).astype(x.dtype) for each in zip(*last, strict=True)]
        if batch_first:
            return (np.transpose(y, (2, 0, 1, 3)), *(np.swapaxes(each, 0, 1) for each in ends))
        return (y, *ends)

    def _initial(
        self, given: Array | None, direction: int, shape: tuple[int, int], x: Array, batch_first: bool
    ) -> Array:
        if given is None:
            return np.zeros(shape, x.dtype)
        state: Array = given[:, direction] if batch_first else given[direction]
        return state

    def _functions(self, directions: int) -> Iterator[list[Activation]]:
        """Yield the activations of each direction; those with parameters consume them in order."""
        names = self.attributes.get("activations") or self.activations * directions
        alphas = iter(self.attributes.get("activation_alpha") or ())
        betas = iter(self.attributes.get("activation_beta") or ())
        clip = self.attributes.get("clip")
        made = [_activation(name, alphas, betas, clip) for name in names]
        for direction in range(directions):
            yield made[direction * len(self.activations) : (direction + 1) * len(self.activations)]


_PARAMETERS: Mapping[str, tuple[float | None, float | None]] = {
    "affine": (1.0, 0.0),
    "elu": (1.0, None),
    "hardsigmoid": (0.2, 0.5),
    "leakyrelu": (0.01, None),
    "scaledtanh": (1.0, 1.0),
    "thresholdedrelu": (1.0, None),
}
"""Default alpha and beta of activations."""


def _activation(name: str, alphas: Iterator[float], betas: Iterator[float], clip: float | None) -> Activation:
    key = name.lower()
    default_a, default_b = _PARAMETERS.get(key, (None, None))
    a = np.float32(default_a if default_a is None else next(alphas, default_a) or 0.0)
    b = np.float32(default_b if default_b is None else next(betas, default_b) or 0.0)
    functions: Mapping[str, Activation] = {
        "affine": lambda x: a * x + b,
        "elu": lambda x: np.where(x < 0, a * np.expm1(np.minimum(x, 0)), x),
        "hardsigmoid": lambda x: np.clip(a * x + b, 0, 1),
        "leakyrelu": lambda x: np.where(x < 0, a * x, x),
        "relu": lambda x: np.maximum(x, 0),
        "scaledtanh": lambda x: a * np.tanh(b * x),
        "sigmoid": lambda x: (np.tanh(x / 2) + 1) / 2,  # which does not overflow
        "softplus": lambda x: np.logaddexp(x, 0),
        "softsign": lambda x: x / (1 + np.abs(x)),
        "tanh": np.tanh,
        "thresholdedrelu": lambda x: np.where(x > a, x, 0),
    }
    if key not in functions:
        raise NotImplementedError(f"no activation {name!r}")
    function = functions[key]
    return function if clip is None else lambda x: function(np.clip(x, -clip, clip))


def _bias(b: Array | None, direction: int, w: Array) -> tuple[Any, Any]:
    """Return the two halves of a direction's bias: the input's and the state's."""
    if b is None:
        zeros = np.zeros(w.shape[1], w.dtype)
        return zeros, zeros
    first, second = np.split(b[direction], 2)
    return first, second
