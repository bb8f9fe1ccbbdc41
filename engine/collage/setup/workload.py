"""The model of a run: as given, prepared, indexed, and with inputs to run it on."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import onnx_ir

from collage.measure.models.preparing import prepared_apart
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.value_files import write_values
from collage.prepare.default_inputs import default_inputs, without_defaults
from collage.prepare.shapes import free_inputs
from collage.prepare.steps import check
from collage.prepare.validity import blamed_on
from collage.report.facts.record import ModelFacts
from collage.setup.facts import external_files, file_sha256, model_facts, opened
from collage.setup.inputs import (
    DRAWS,
    Calibration,
    Given,
    calibration_samples,
    checked_inputs,
    checked_values,
    digest_values,
    given_values,
    labelled_samples,
    random_inputs,
    sizes_in_turn,
    specs_as_given,
)
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.values.size_range import Shape

_FRESH_SEED_OFFSET = 1
_CALIBRATION_SEED_OFFSETS = range(2, 9)
_MOST_IN_TURN: Final = 7
"""Maximum number of sizes that the runs of a race have in turn."""
_BYTES_IN_TURN: Final = 256 << 20
"""Maximum size of their inputs together, in bytes."""

Prepare: TypeAlias = Callable[[onnx_ir.Model, Mapping[str, Shape]], onnx_ir.Model]
"""Prepares a model with input shapes by name."""


class Workload:
    """One model with its inputs.

    Args:
        model: An ONNX file, or a model in memory.
        input_shapes: Shape to bind, by input name.
        inputs: Values for the inputs, or the NPZ file that holds them, whose shapes free dimensions take where
            `input_shapes` names none; seeded random arrays if None. An input with a default value stays one if a value
            for it is among them, and is a constant otherwise.
        calibration: Samples from which ranges are taken; see `calibration_samples`. Those of `labelled` that decide if
            None, or else the inputs and some random ones.
        labelled: Samples for a metric.
        seed: For random arrays.
        prepare: Prepares the model; in a process of its own if None.
        keep_free: Whether dimensions may stay free, where the model is only looked at; `prepare` keeps them then.

    Attributes:
        graph: The prepared model's graph.
        facts: What the record keeps of it.
        labelled: The samples for a metric, None without.
        key: Hash of the model with its weights, input shapes and inputs.
        seed: As given.
        notes: What the user should know about how the model is taken.

    Raises:
        ModelError: If it is not a model Collage can use.
        FeedError: If the file of inputs cannot be read, or does not fit the model.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | onnx_ir.Model,
        *,
        input_shapes: Mapping[str, Shape] | None = None,
        inputs: Given | None = None,
        calibration: Calibration | None = None,
        labelled: Calibration | None = None,
        seed: int = 0,
        prepare: Prepare | None = None,
        keep_free: bool = False,
    ) -> None:
        given, name, sha256 = opened(model)
        self._arrays = None if inputs is None else given_values(inputs)
        given = without_defaults(given, set(self._arrays or ()))
        shapes = dict(input_shapes or {})
        for key in sorted(free_inputs(given) & set(self._arrays or ())):
            shapes.setdefault(key, np.shape((self._arrays or {})[key]))
        bound = check(given, input_shapes=shapes, keep_free=keep_free)
        if self._arrays is not None:
            self._arrays = checked_values(specs_as_given(given, bound), self._arrays)
        prepared = (prepare or prepared_apart)(given, shapes)
        with blamed_on(prepared):
            self.graph = DataflowGraph(prepared)
        self.labelled = None if labelled is None else labelled_samples(self.graph, labelled)
        self._samples = None if calibration is None else calibration_samples(self.graph, calibration)
        if self._samples is None and self.labelled is not None:
            self._samples = [dict(each.inputs) for each in self.labelled.deciding]
        self.facts: ModelFacts = model_facts(name, sha256, given, self.graph.model)
        self.seed = seed
        self._draw = 0
        self.notes = tuple(
            f"input {each!r} has a default value and is a constant here; give a value with --inputs to keep it an input"
            for each in default_inputs(given)
        )
        digest = hashlib.sha256(json.dumps([sha256, dict(sorted(shapes.items())), seed], default=str).encode())
        for path in external_files(given):
            digest.update(file_sha256(path).encode())
        digest_values(digest, self._arrays or {})
        for sample in self._used_samples():
            digest_values(digest, sample)
        self.key = digest.hexdigest()

    @functools.cached_property
    def inputs(self) -> Mapping[str, Any]:
        """Values to search on, by input name: the user's, the first calibration sample, or random ones.

        Raises:
            FeedError: If no values can be generated.
        """
        if self._arrays is not None:
            return checked_inputs(self.graph, self._arrays)
        return self._samples[0] if self._samples else random_inputs(self.graph, self.seed, self._draw)

    def redraw(self) -> bool:
        """Draw random inputs in another way, because the model makes nothing of these; return whether there is one."""
        if self.is_calibrated or self._draw + 1 == len(DRAWS):
            return False
        self._draw += 1
        self.__dict__.pop("inputs", None)
        return True

    @property
    def sha256(self) -> str:
        """SHA-256 of the model as given, in hexadecimal."""
        return self.facts.sha256

    @functools.cached_property
    def calibration(self) -> Sequence[Mapping[str, Any]]:
        """Samples from which ranges are taken: the user's but the last, which is held out, or the inputs to search on.

        Random ones come beside, unless inputs were given: then random ones may be meaningless.
        """
        if self._samples is not None:
            return self._samples[:-1] if len(self._samples) > 1 else self._samples
        if self._arrays is not None:
            return [self.inputs]
        further = (random_inputs(self.graph, self.seed + each, self._draw) for each in _CALIBRATION_SEED_OFFSETS)
        return [self.inputs, *further]

    @functools.cached_property
    def calibration_key(self) -> str:
        """Hash of the samples, and of the model that they are for."""
        digest = hashlib.sha256(self.key.encode())
        for sample in self.calibration:
            digest_values(digest, sample)
        return digest.hexdigest()

    def _used_samples(self) -> list[Mapping[str, Any]]:
        """Return the samples that the search or the verification runs on."""
        return [] if not self._samples else [self._samples[0], self._samples[-1]]

    @property
    def is_calibrated(self) -> bool:
        """Whether samples were given, or inputs."""
        return self._samples is not None or self._arrays is not None

    def fresh_inputs(self) -> Mapping[str, Any]:
        """Return inputs that the search does not use: the last calibration sample, or random ones.

        These are the inputs to search on where such were given, since random ones may be meaningless.
        """
        if not self.has_fresh_inputs:
            return self.inputs
        if self._samples is not None:
            return self._samples[-1]
        return random_inputs(self.graph, self.seed + _FRESH_SEED_OFFSET, self._draw)

    @property
    def end_sizes(self) -> Sequence[Mapping[str, int]]:
        """Sizes at both ends of the ranges, by symbol; none where no size varies, or random inputs make no sense."""
        return () if self.is_calibrated else self.graph.end_sizes

    @functools.cached_property
    def sizes_in_turn(self) -> Sequence[Mapping[str, int]]:
        """Sizes by symbol that the runs of a race have in turn, the typical ones first.

        Empty where no size varies, where none is near the typical one, and where inputs are given: random ones of other
        sizes may make no sense then.
        """
        if self.is_calibrated or not self.graph.sizes:
            return ()
        nbytes = sum(int(value.nbytes) for value in self.inputs.values() if isinstance(value, np.ndarray))
        return sizes_in_turn(self.graph.sizes, min(_MOST_IN_TURN, _BYTES_IN_TURN // max(1, nbytes)))

    def inputs_of(self, sizes: Mapping[str, int]) -> Mapping[str, Any]:
        """Return random inputs of these sizes, by symbol, which the search does not use."""
        return random_inputs(self.graph, self.seed + _FRESH_SEED_OFFSET, self._draw, sizes)

    @property
    def has_fresh_inputs(self) -> bool:
        """Whether `fresh_inputs` differ from `inputs`."""
        return self._arrays is None if self._samples is None else len(self._samples) > 1

    def inputs_document(self, folder: Path, store: BlobStore) -> Path:
        """Return the file from which another process reads the inputs; it is written on first use."""
        path = folder / "inputs.json"
        if not path.exists():
            write_values(path, self.inputs, store)
        return path

    def documents_in_turn(self, folder: Path, store: BlobStore) -> list[Path]:
        """Return the files of the inputs that runs of a race have in turn: of `sizes_in_turn`, or the inputs alone."""
        found = [self.inputs_document(folder, store)]
        for number, sizes in enumerate(self.sizes_in_turn[1:], start=1):
            path = folder / f"inputs-{number}.json"
            if not path.exists():
                write_values(path, self.inputs_of(sizes), store)
            found.append(path)
        return found
