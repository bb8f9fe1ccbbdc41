"""If, Loop and Scan, captured values, recurrent operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.integration.input.odd_models import OddModel, floats, made, odd, relu


@odd
def branches_by_input() -> OddModel:
    """Which branch is taken depends on the input; branches capture what is outside, and hold constants."""

    def oracle(x: Any) -> dict[str, Any]:
        h = relu(x @ WEIGHT)
        inner = h * 2 + 1 if h.sum() > 4 else h - x @ WEIGHT
        taken = inner if x.sum() > 0 else np.tanh(x) @ WEIGHT
        return {"y": 1 / (1 + np.exp(-taken)), "twice": taken + taken}

    return made(
        "branches_by_input",
        """branches (float[2,4] x) => (float[2,4] y, float[2,4] twice) <float four = {4}> {
          p = MatMul(x, w)
          h = Relu(p)
          zero = Constant<value_float = 0.0>()
          total = ReduceSum<keepdims = 0>(x)
          positive = Greater(total, zero)
          z = If(positive) <
            then_branch = then_g () => (float[2,4] t) {
              s = ReduceSum<keepdims = 0>(h)
              c = Greater(s, four)
              t = If(c) <
                then_branch = inner_then () => (float[2,4] a) {
                  one = Constant<value_float = 1.0>()
                  d = Add(h, h)
                  a = Add(d, one)
                },
                else_branch = inner_else () => (float[2,4] b) { b = Sub(h, p) }>
            },
            else_branch = else_g () => (float[2,4] e) {
              u = Tanh(x)
              e = MatMul(u, w)
            }>
          y = Sigmoid(z)
          twice = Add(z, z)
        }""",
        oracle,
        {"x": np.abs(floats(2, 4))},
        {"x": -np.abs(floats(2, 4))},
        {"x": np.abs(floats(2, 4)) * np.float32(0.1)},
        w=WEIGHT,
    )


@odd
def loop_until() -> OddModel:
    """How often a loop goes round depends on data; what it scans has an extent nobody knows before."""

    def oracle(x: Any) -> dict[str, Any]:
        v, seen = relu(x @ WEIGHT), []
        while True:
            v = np.tanh(v @ WEIGHT) + x
            seen.append(v)
            if len(seen) >= 10 or np.abs(v).sum() >= 6:
                break
        return {"last": -v, "seen": np.stack(seen)}

    return made(
        "loop_until",
        """until (float[2,4] x) => (float[2,4] last, float[n,2,4] seen)
        <int64 most = {10}, bool go = {1}, float enough = {6}> {
          p = MatMul(x, w)
          h = Relu(p)
          v, seen = Loop(most, go, h) <
            body = turn (int64 i, bool c_in, float[2,4] v_in) => (bool c_out, float[2,4] v_out, float[2,4] s) {
              m = MatMul(v_in, w)
              t = Tanh(m)
              v_out = Add(t, x)
              a = Abs(v_out)
              sum = ReduceSum<keepdims = 0>(a)
              c_out = Less(sum, enough)
              s = Identity(v_out)
            }>
          last = Neg(v)
        }""",
        oracle,
        {"x": floats(2, 4) * np.float32(0.3)},
        {"x": floats(2, 4) * np.float32(3)},
        w=WEIGHT,
    )


@odd
def loop_by_count() -> OddModel:
    """The number of turns is an input, none among them; the loop is in a branch."""

    def oracle(x: Any, count: Any) -> dict[str, Any]:
        v, seen = relu(x), []
        for step in range(int(count)):
            seen.append(v * step)
            v = v + x[step % 2]
        scanned = np.stack(seen) if seen else np.zeros((0, 2, 3), np.float32)
        return {"y": np.exp(-v), "total": scanned.sum(axis=0) + x}

    return made(
        "loop_by_count",
        """by_count (float[2,3] x, int64 count) => (float[2,3] y, float[2,3] total)
        <int64 none = {0}, int64 two = {2}, bool go = {1}, int64[1] first = {0}> {
          h = Relu(x)
          any = Greater(count, none)
          v, seen = If(any) <
            then_branch = some_g () => (float[2,3] v_then, float[n,2,3] seen_then) {
              v_then, seen_then = Loop(count, go, h) <
                body = turn (int64 i, bool c_in, float[2,3] v_in) => (bool c_out, float[2,3] v_out, float[2,3] s) {
                  c_out = Identity(c_in)
                  f = Cast<to = 1>(i)
                  s = Mul(v_in, f)
                  r = Mod(i, two)
                  row = Gather(x, r)
                  v_out = Add(v_in, row)
                }>
            },
            else_branch = none_g () => (float[2,3] v_else, float[n,2,3] seen_else) {
              v_else = Identity(h)
              seen_else = ConstantOfShape(empty)
            }>
          m = Neg(v)
          y = Exp(m)
          summed = ReduceSum<keepdims = 0>(seen, first)
          total = Add(summed, x)
        }""",
        oracle,
        {"x": floats(2, 3), "count": np.array(3)},
        {"x": floats(2, 3), "count": np.array(0)},
        empty=np.array([0, 2, 3]),
    )


@odd
def scan_both_ways() -> OddModel:
    """Two states, one sequence read backwards, one result written backwards."""

    def oracle(x: Any) -> dict[str, Any]:
        x = relu(x @ WEIGHT)
        length = len(x)
        total, largest = np.zeros(4, np.float32), np.full(4, -10, np.float32)
        sums, products = [], []
        for step in range(length):
            ahead, back = x[step], x[length - 1 - step]
            total, largest = total + ahead, np.maximum(largest, back)
            sums.append(total @ WEIGHT)
            products.append(ahead * back)
        return {
            "total": np.tanh(total),
            "largest": largest,
            "sums": np.stack(sums[::-1]),
            "products": np.stack(products, axis=1),
        }

    return made(
        "scan_both_ways",
        """both_ways (float[5,4] x) => (float[4] total, float[4] largest, float[5,4] sums, float[4,5] products) {
          p = MatMul(x, w)
          h = Relu(p)
          t, largest, sums, products = Scan(zeros, low, h, h) <num_scan_inputs = 2,
            scan_input_directions = [0, 1], scan_output_directions = [1, 0], scan_output_axes = [0, 1],
            body = step (float[4] t_in, float[4] m_in, float[4] ahead, float[4] back)
              => (float[4] t_out, float[4] m_out, float[4] s, float[4] q) {
              t_out = Add(t_in, ahead)
              m_out = Max(m_in, back)
              s = MatMul(t_out, w)
              q = Mul(ahead, back)
            }>
          total = Tanh(t)
        }""",
        oracle,
        {"x": floats(5, 4)},
        w=WEIGHT,
        zeros=np.zeros(4, np.float32),
        low=np.full(4, -10, np.float32),
    )


def _sigmoid(array: Any) -> Any:
    return 1 / (1 + np.exp(-array))


@odd
def recurrent() -> OddModel:
    """LSTM, GRU and RNN, each item of the batch with a length of its own."""
    steps, batch, width, hidden = 4, 3, 2, 3
    lstm_w, lstm_r, lstm_b = floats(1, 4 * hidden, width), floats(1, 4 * hidden, hidden), floats(1, 8 * hidden)
    gru_w, gru_r = floats(1, 3 * hidden, hidden, seed=1), floats(1, 3 * hidden, hidden, seed=2)
    rnn_w, rnn_r = floats(2, hidden, hidden, seed=3), floats(2, hidden, hidden, seed=4)

    def run(x: Any, lengths: Any, step: Any, states: int, back: bool = False) -> tuple[Any, Any]:
        """Outputs of each step, zeros after the end, and the last state of each item."""
        y = np.zeros((steps, batch, hidden), np.float32)
        last = np.zeros((batch, hidden), np.float32)
        for item, length in enumerate(lengths):
            state = [np.zeros(hidden, np.float32)] * states
            for at in range(length)[::-1] if back else range(length):
                state = step(x[at, item], *state)
                y[at, item] = state[0]
            last[item] = state[0]
        return y, last

    def lstm(x: Any, h: Any, c: Any) -> Any:
        i, o, f, g = np.split(lstm_w[0] @ x + lstm_r[0] @ h + lstm_b[0, : 4 * hidden] + lstm_b[0, 4 * hidden :], 4)
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        return _sigmoid(o) * np.tanh(c), c

    def gru(x: Any, h: Any) -> Any:
        wz, wr, wh = np.split(gru_w[0], 3)
        rz, rr, rh = np.split(gru_r[0], 3)
        z, r = _sigmoid(wz @ x + rz @ h), _sigmoid(wr @ x + rr @ h)
        return ((1 - z) * np.tanh(wh @ x + rh @ (r * h)) + z * h,)

    def oracle(x: Any, lengths: Any) -> dict[str, Any]:
        x = relu(x)
        y1, _ = run(x, lengths, lstm, 2)
        y2, h2 = run(y1, lengths, gru, 1)
        ways = [
            run(y2, lengths, lambda a, h, d=d: (np.tanh(rnn_w[d] @ a + rnn_r[d] @ h),), 1, back=bool(d)) for d in (0, 1)
        ]
        return {"y": np.stack([y for y, _ in ways], axis=1), "h": np.tanh(h2)[None]}

    return made(
        "recurrent",
        """recurrent (float[4,3,2] x, int32[3] lengths) => (float[4,2,3,3] y, float[1,3,3] h) <int64[1] one = {1}> {
          r = Relu(x)
          y1 = LSTM<hidden_size = 3>(r, lstm_w, lstm_r, lstm_b, lengths)
          s1 = Squeeze(y1, one)
          y2, h2 = GRU<hidden_size = 3>(s1, gru_w, gru_r, , lengths)
          s2 = Squeeze(y2, one)
          y = RNN<hidden_size = 3, direction = "bidirectional">(s2, rnn_w, rnn_r, , lengths)
          h = Tanh(h2)
        }""",
        oracle,
        {"x": floats(4, 3, 2), "lengths": np.array([4, 1, 3], np.int32)},
        {"x": floats(4, 3, 2, seed=1), "lengths": np.array([2, 4, 0], np.int32)[::-1].clip(1)},
        lstm_w=lstm_w,
        lstm_r=lstm_r,
        lstm_b=lstm_b,
        gru_w=gru_w,
        gru_r=gru_r,
        rnn_w=rnn_w,
        rnn_r=rnn_r,
    )


WEIGHT = floats(4, 4, seed=7)
