"""Prepare models in a process of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from collage.disk_space import is_full
from collage.errors import WireError
from collage.measure.budget import UNLIMITED, Budget
from collage.measure.models.model_process import MEMORY_ERRORS, ModelProcess, system_error, weights_bytes
from collage.measure.wire.model_messages import AskPrepareModel, ModelFailed, ModelPrepared
from collage.prepare.exchange import read_prepared, write_given
from collage.prepare.steps import prepare
from collage.temporary_folders import TemporaryFolder
from collage_core.ir.values.size_range import Extent, SizeRange

PREPARE_S = 60.0
_PER_NODE_S = 0.05
"""Seconds that preparing may take, and more for each node: ten times what one of a large export takes."""
_SHARE, _LEAST_S = 0.8, 5.0
"""Share of a budget that preparing may take, and the seconds it gets in any case."""


def prepared_in(
    process: ModelProcess,
    model: ir.Model,
    input_shapes: Mapping[str, Sequence[Extent]],
    deadline_s: float,
    *,
    keep_free: bool = False,
) -> ir.Model:
    """Prepare a model as `collage.prepare.steps.prepare` does, in a process.

    Args:
        process: The process.
        model: The model as given.
        input_shapes: As for `prepare`.
        deadline_s: Seconds it may take.
        keep_free: As for `prepare`.

    Raises:
        CollageError: As `prepare` does; a `ModelCostError` if it takes too much memory or time, an
            `InvalidModelError` if ONNX's own code ends the process.
    """
    what = "preparing the model"
    with TemporaryFolder() as folder:
        try:
            known = write_given(model, folder)
        except Exception as error:
            if isinstance(error, OSError) and is_full(error):
                raise system_error(what, error) from error
            return prepare(
                model, input_shapes=input_shapes, keep_free=keep_free
            )  # it gets no further than the first checks
        shapes = {
            name: tuple(size if isinstance(size, SizeRange) else int(size) for size in shape)
            for name, shape in input_shapes.items()
        }
        ask = AskPrepareModel(folder=str(folder), input_shapes=shapes, keep_free=keep_free)
        answer = process.ask(ask, what, deadline_s, weights_bytes(model))
        if isinstance(answer, ModelFailed):
            told = answer.facts is not None or answer.system is not None
            if not told and answer.kind not in (*MEMORY_ERRORS, "RecursionError"):
                return prepare(
                    model, input_shapes=input_shapes, keep_free=keep_free
                )  # a defect: the exception is to be seen here
            process.fail(answer, what, deadline_s)
        if not isinstance(answer, ModelPrepared):
            raise WireError(f"{type(answer).__name__} is no answer to AskPrepareModel")
        return read_prepared(folder, known)


def prepared_apart(
    model: ir.Model,
    input_shapes: Mapping[str, Sequence[Extent]],
    budget: Budget = UNLIMITED,
    *,
    keep_free: bool = False,
) -> ir.Model:
    """Prepare a model in a process that ends with it.

    Args:
        model: The model as given.
        input_shapes: As for `prepare`.
        budget: Time that is left of the run.
        keep_free: As for `prepare`.

    Raises:
        CollageError: As `prepared_in` does.
    """
    allowed_s = PREPARE_S + _PER_NODE_S * sum(1 for _ in model.graph)
    with ModelProcess() as process:
        deadline_s = budget.part(_SHARE).within(allowed_s, least_s=_LEAST_S)
        return prepared_in(process, model, input_shapes, deadline_s, keep_free=keep_free)
