"""Generated source: readable, the same each time, and independent of names."""

from __future__ import annotations

from collage_testing import GraphBuilder
from collage_triton.emit import source_of
from collage_triton.nest import nest_of
from collage_triton.tiles import Tile

from .checking import function_of

SOFTMAX = '''\
"""Softmax, Mul."""

import triton
import triton.language as tl


@triton.jit
def kernel(in0, w0, out0):
    x = tl.program_id(0) * 8 + tl.arange(0, 8)[:, None]
    x_in = x < 6
    r = tl.arange(0, 8)[None, :]
    r_in = r < 5
    # Softmax
    t0 = tl.load(in0 + ((x * 5) + r), mask=x_in & r_in, other=0)
    t1 = tl.max(tl.where(r_in, t0, float("-inf")), axis=1)[:, None]
    t2 = tl.exp(t0 - t1)
    t3 = tl.sum(tl.where(r_in, t2, 0.0), axis=1)[:, None]
    # Mul
    t4 = tl.load(w0 + r, mask=r_in, other=0)
    tl.store(out0 + ((x * 5) + r), ((t2 / t3) * t4), mask=x_in & r_in)
'''

BIASED = '''\
"""Add, Relu."""

import triton
import triton.language as tl


@triton.jit
def kernel(in0, w0, out0):
    x = tl.program_id(0) * 64 + tl.arange(0, 64)[:, None]
    t0 = x // 8
    # Add
    t1 = tl.load(in0 + (((x % 8) * 16) + t0))
    t2 = tl.load(w0 + t0)
    t3 = t1 + t2
    # Relu
    t4 = tl.where(t3 < 0.0, 0.0, t3)
    tl.store(out0 + x, t4)
'''


def softmax(name: str = "x") -> str:
    g = GraphBuilder()
    scaled = g.op("Mul", g.op("Softmax", g.input(name, 2, 3, 5), axis=-1), g.weight("w", 5))
    return source_of(nest_of(function_of(g, scaled)), Tile(8, 8, 1))


def test_a_row_is_loaded_once_for_all_its_reductions() -> None:
    assert softmax() == SOFTMAX


def test_source_does_not_depend_on_the_models_names() -> None:
    assert softmax("another") == SOFTMAX


def test_blocks_that_fit_have_no_masks_and_a_transposition_is_index_arithmetic() -> None:
    g = GraphBuilder()
    biased = g.op("Relu", g.op("Add", g.input("x", 8, 16), g.weight("b", 16)))

    source = source_of(nest_of(function_of(g, g.op("Transpose", biased))), Tile(64, 1, 1))

    assert source == BIASED


def test_a_product_takes_tf32_only_where_the_target_says_so() -> None:
    def product(precision: str) -> str:
        g = GraphBuilder()
        function = function_of(g, g.op("MatMul", g.input("x", 32, 32), g.weight("w", 32, 32)))
        return source_of(nest_of(function, precision), Tile(32, 32, 1, 32))

    assert 'input_precision="ieee"' in product("ieee")
    assert product("tf32") == product("ieee").replace('"ieee"', '"tf32"')


def test_a_chain_of_diamonds_stays_as_long_as_it_is() -> None:
    g = GraphBuilder()
    value = g.input("x", 64)
    for _ in range(40):
        value = g.op("Mul", value, value)

    assert len(source_of(nest_of(function_of(g, value)), Tile(64, 1, 1)).splitlines()) < 60
