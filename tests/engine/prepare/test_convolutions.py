"""Padding and normalisation that exporters write out become one convolution, where that gives the same numbers."""

from __future__ import annotations

import pytest

from tests.engine.prepare.preparing import check


def tensorflow_padding(channels: int = 3) -> str:
    """Pads computed from the input's shape, as MobileNet ports do, in front of a strided Conv."""
    return f"""
    g (float[b, {channels}, h, w] x) => (float[b, 4, oh, ow] y)
    <float[4, {channels}, 3, 3] k = {{{", ".join(str(i % 7 - 3) for i in range(36 * channels))}}},
     float[4] scale = {{1, 2, 3, 4}}, float[4] shift = {{0, 1, 0, 1}},
     float[4] mean = {{0.5, 0, 1, 2}}, float[4] var = {{1, 2, 3, 4}}> {{
      s = Shape(x)
      i2 = Constant <value = int64 {{2}}>()
      i3 = Constant <value = int64 {{3}}>()
      h0 = Gather(s, i2)
      w0 = Gather(s, i3)
      two = Constant <value = int64 {{2}}>()
      hm = Mod(h0, two)
      wm = Mod(w0, two)
      one = Constant <value = int64 {{1}}>()
      ph = Sub(two, hm)
      pw = Sub(two, wm)
      ph0 = Sub(ph, one)
      pw0 = Sub(pw, one)
      ax = Constant <value = int64[1] {{0}}>()
      u0 = Unsqueeze(ph0, ax)
      u1 = Unsqueeze(pw0, ax)
      u2 = Unsqueeze(ph, ax)
      u3 = Unsqueeze(pw, ax)
      zz = Constant <value = int64[2] {{0, 0}}>()
      pads = Concat <axis = 0> (zz, u0, u1, zz, u2, u3)
      p64 = Cast <to = 7> (pads)
      fill = Constant <value = float {{0}}>()
      padded = Pad <mode = "constant"> (x, p64, fill)
      c = Conv <strides = [2, 2]> (padded, k)
      y = BatchNormalization(c, scale, shift, mean, var)
    }}"""


def test_computed_padding_and_normalisation_become_one_convolution() -> None:
    prepared = check(tensorflow_padding(), ["Conv"], shapes={"x": [1, 3, 8, 9]})

    conv = prepared.graph[0]
    assert list(conv.attributes["pads"].as_ints()) == [1, 0, 2, 1]


def test_pads_that_move_the_contents_stay() -> None:
    check(
        """g (float[1, 1, 4, 4] x) => (float[1, 1, 4, 4] y) {
          pads = Constant <value = int64[8] {0, 0, 1, 0, 0, 0, -1, 0}>()
          y = Pad(x, pads) }""",
        ["Pad"],
    )


@pytest.mark.parametrize("group", [1, 2])
def test_normalisation_folds_into_grouped_transposed_convolutions(group: int) -> None:
    numbers = ", ".join(str(i % 5 - 2) for i in range(4 * (4 // group) * 4))
    check(
        f"""g (float[1, 4, 3, 3] x) => (float[1, 4, 4, 4] y)
        <float[4, {4 // group}, 2, 2] k = {{{numbers}}}, float[4] b = {{1, 2, 3, 4}},
         float[4] scale = {{1, 2, 3, 4}}, float[4] shift = {{0, 1, 0, 1}},
         float[4] mean = {{0.5, 0, 1, 2}}, float[4] var = {{1, 2, 3, 4}}> {{
          c = ConvTranspose <group = {group}> (x, k, b)
          y = BatchNormalization <epsilon = 0.5> (c, scale, shift, mean, var) }}""",
        ["ConvTranspose"],
    )


def test_a_convolution_used_elsewhere_keeps_its_normalisation_apart() -> None:
    check(
        """g (float[1, 1, 3] x) => (float[1, 1, 3] y, float[1, 1, 3] c)
        <float[1, 1, 1] k = {2}, float[1] one = {1.5}, float[1] zero = {0.25}> {
          c = Conv(x, k)
          y = BatchNormalization(c, one, zero, zero, one) }""",
        ["Conv", "BatchNormalization"],
    )
