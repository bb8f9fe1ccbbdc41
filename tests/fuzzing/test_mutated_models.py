"""Mutants are drawn by a seed, leave their model alone, and are mostly not what they were."""

from __future__ import annotations

import random

import onnx
import onnx_ir

from collage_core.errors import CollageError
from collage_core.ir.io.model_io import model_from_bytes, model_to_bytes
from collage_testing import mnist
from tests.fuzzing.mutated_models import mutated


def test_the_same_seed_gives_the_same_mutants() -> None:
    model = mnist()

    first, second = ([mutated(model, rng) for _ in range(20)] for rng in (random.Random(3), random.Random(3)))

    assert first == second
    assert len({mutant.data for mutant in first}) > 10


def test_the_model_is_left_as_it_is() -> None:
    model = mnist()
    before = model_to_bytes(model)
    proto = onnx_ir.to_proto(model)

    for seed in range(30):
        mutated(model, random.Random(seed))
        mutated(proto, random.Random(seed))

    assert model_to_bytes(model) == before
    assert proto == onnx_ir.to_proto(model)


def test_a_model_and_its_message_give_the_same_mutants() -> None:
    model = mnist()

    assert mutated(model, random.Random(5)) == mutated(onnx_ir.to_proto(model), random.Random(5))


def test_many_mutants_can_be_read_and_many_are_not_valid() -> None:
    mutants = [mutated(mnist(), random.Random(seed)) for seed in range(150)]

    read, valid = 0, 0
    for mutant in mutants:
        try:
            model_from_bytes(mutant.data)
        except CollageError:
            continue
        read += 1
        try:
            onnx.checker.check_model(mutant.data, full_check=True)
        except Exception:
            continue
        valid += 1

    assert read > 60
    assert 5 < valid < read
