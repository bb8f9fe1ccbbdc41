"""What lower precision of each group of products does to the model's outputs, by runs of one model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from collage.errors import PrecisionError
from collage.measure.wire.values import encode_value
from collage.precision.document_names import document_name
from collage.precision.sensitivity.groups import ProductGroup
from collage.precision.sensitivity.probe import BF16, INT8, INT8_WEIGHTS, probe_of
from collage.precision.sensitivity.series import run_series
from collage.setup.environment import Environment
from collage.setup.workload import Workload
from collage_core.contract import Target

_COPIES: Final = 4
"""How often a worker may hold the weights: as they are, rounded in two ways, and while it runs."""


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """Which groups of products are rounded, as masks of their numbers.

    Attributes:
        int8: To 8-bit integers.
        bf16: To bfloat16; what is in both counts as `int8`.
        weights: The weights alone, to 8-bit integers.
    """

    int8: int = 0
    bf16: int = 0
    weights: int = 0

    @property
    def key(self) -> str:
        """The choice as text."""
        return f"{self.int8:x}/{self.bf16:x}" + (f"/{self.weights:x}" if self.weights else "")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProbedErrors:
    """What was found out about a model.

    Attributes:
        errors: Largest error of an output, by `Choice.key`.
    """

    KIND: ClassVar[str] = "probed-errors"
    VERSION: ClassVar[int] = 2

    errors: Mapping[str, float]


class Prober:
    """Runs the probe of a model on one target, once per choice and database.

    Args:
        environment: The model and the toolchains.
        groups: Products that are rounded together.
        target: Runs the probe; it computes in the model's own types.
    """

    def __init__(self, environment: Environment[Workload], groups: Sequence[ProductGroup], target: Target) -> None:
        self._environment = environment
        self._groups = groups
        self._target = target
        what = ["probe", target.fingerprint, [repr(group) for group in groups]]
        self._name = document_name(environment, [target.name], what)
        self._database = environment.toolchains.database
        known = self._database.get_document(ProbedErrors, self._name)
        self._known = {} if known is None else dict(known.errors)

    def errors(self, choices: Sequence[Choice]) -> list[float]:
        """Return the largest error of an output for each choice.

        Args:
            choices: What is rounded.

        Raises:
            PrecisionError: If the probe does not run.
        """
        missing = [each for each in dict.fromkeys(choices) if each.key not in self._known]
        if missing:
            self._run(missing)
        return [self._known[each.key] for each in choices]

    def _run(self, choices: Sequence[Choice]) -> None:
        environment = self._environment
        needed = _COPIES * environment.graph.weights_bytes
        if needed > environment.source.settings.memory_bytes:
            raise PrecisionError(
                f"the model with rounded operands takes {needed / 1e9:.1f} GB, more than a worker may hold"
            )
        capture, store = environment.capture(), environment.toolchains.store
        probe = probe_of(environment.graph, self._groups, capture)
        if probe is None:
            raise PrecisionError("no output of the model says what rounding does to it")
        fixed = {name: capture.wire(value) for name, value in probe.values.items()}

        feeds = [
            {
                **fixed,
                INT8: encode_value(self._booleans(choice.int8), store),
                INT8_WEIGHTS: encode_value(self._booleans(choice.int8 | choice.weights), store),
                BF16: encode_value(self._booleans(choice.bf16), store),
            }
            for choice in choices
        ]
        answer = run_series(environment, self._target, probe.function, feeds, "with rounded operands")
        for choice, [errors] in zip(choices, answer, strict=True):
            self._known[choice.key] = float(np.max(errors))
        self._database.put_document(self._name, ProbedErrors(errors=dict(self._known)))

    def _booleans(self, mask: int) -> np.ndarray[Any, Any]:
        return np.array([bool(mask >> number & 1) for number in range(len(self._groups))])
