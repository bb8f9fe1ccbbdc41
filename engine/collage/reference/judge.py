"""Say whether what a kernel or a plan computed may be correct.

Two notions are used everywhere: for candidates, call sites, verification, `collage compare` and the conformance kit.
A tensor is *correct* if rounding explains each element (`Conditioning`), if integers that nothing rounds are equal, and
if choices are right for values within tolerance (`choices`). Its *error* is its largest difference relative to its
scale (`Discrepancy`). Kernels that compute in the model's own types have to be correct; others have to keep to an error
that the user allows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx_ir as ir

from collage.reference.choices import Behind, Choice, choice_behind, depends_on_open, is_moved, wrong_choices
from collage.reference.conditioning import Conditioning, assumed_conditioning
from collage.reference.discrepancy import Discrepancy, is_floating
from collage.reference.discrepancy import discrepancy_of as compared
from collage.reference.exact_values import exact_values
from collage.reference.rounded import rounded_problem
from collage_core.ir.operators.quantised import roundings
from collage_core.ir.values.content import constant_of

if TYPE_CHECKING:
    from collage.reference.evaluator import Evaluation

USUAL_ERROR: Final = 1e-3
"""Largest error of kernels that compute in the model's own types, where nobody asks for another."""
_ROUNDINGS: Final = 16.0
"""Units of rounding that such kernels may be off in any case, relative to the tensor's scale or to the element itself.

In 16 bits a single rounding of a large element may be more than is usual. On an H200 the outputs of BERT and DCGAN in
float16 are 8 units from those in float32, by PyTorch and by `torch.compile`.
"""
_CHANCES: Final = 4.0
"""Share of elements behind choices that may differ, relative to those that differed in the reference's second run."""


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """What came of judging one output.

    Attributes:
        error: See `Discrepancy`.
        problem: What is wrong with it; empty if nothing is.
        is_of_numbers: Whether the error is that of floating-point numbers that no quantisation rounds.
    """

    error: float
    problem: str
    is_of_numbers: bool = True


class Judge:
    """Judges the values of one graph.

    Args:
        graph: The graph; what it is given is exact, so only its own nodes round.
        correct: Whether values have to be correct; otherwise only their error counts.
        relative: Largest error of numbers; where values have to be correct, and this is no less than is usual, some
            units of rounding are allowed in any case.
        mismatched: Largest share of differing elements of integers, booleans and strings of which it is not known what
            decides them.
        quanta: Whether values behind a QuantizeLinear may be quanta off; see `rounded_problem`.
        behind: Returns the values that a choice is between, and constants; None for what is not known. By default
            nothing is known.
    """

    def __init__(
        self,
        graph: ir.Graph,
        *,
        correct: bool,
        relative: float,
        mismatched: float,
        quanta: bool = True,
        behind: Callable[[ir.Value], Behind | None] = lambda value: None,
    ) -> None:
        self._correct = correct
        self._relative = relative
        self._mismatched = mismatched
        self._behind = behind
        self._given = {str(value.name) for value in graph.inputs}
        self._assumed: dict[str, Conditioning] = {}
        self._values = {str(value.name): value for node in graph for value in node.outputs if value.name}
        self._rounded = {str(value.name): count for value, count in roundings(graph).items() if quanta}
        self._exact = {str(value.name) for value in exact_values(graph)}
        self._open = {str(value.name) for value in depends_on_open(graph)}

    @classmethod
    def over(
        cls,
        graph: ir.Graph,
        run: Evaluation,
        *,
        correct: bool,
        relative: float,
        mismatched: float,
        quanta: bool = True,
    ) -> Judge:
        """Return a judge that knows what choices are between from a reference run.

        Args:
            graph: As for `Judge`; its inputs are exact.
            run: The reference run, with the values that `needed_values` names.
            correct: As for `Judge`.
            relative: As for `Judge`.
            mismatched: As for `Judge`.
            quanta: As for `Judge`.
        """
        given = {str(value.name) for value in graph.inputs}

        def between(value: ir.Value) -> Behind | None:
            if (constant := constant_of(value)) is not None:
                return constant.numpy(), None
            name = str(value.name)
            if name not in run.values:
                return None
            return np.asarray(run.values[name]), None if name in given else run.conditioning.get(name)

        return cls(graph, correct=correct, relative=relative, mismatched=mismatched, quanta=quanta, behind=between)

    def verdict(
        self,
        name: str,
        actual: Any,
        expected: Any,
        conditioning: Conditioning | None,
        found: Discrepancy | None = None,
    ) -> Verdict:
        """Say whether a value may be correct.

        Args:
            name: Its name.
            actual: What was computed.
            expected: What the reference computed.
            conditioning: What rounding does to it; None if that is not known.
            found: How they differ, if it is not their own elements that count.
        """
        if found is None:
            found = compared(actual, expected, conditioning)
        of_numbers = _is_numbers(expected) and name not in self._rounded
        return Verdict(found.error, self._problem(name, actual, expected, conditioning, found), of_numbers)

    def _problem(
        self, name: str, actual: Any, expected: Any, conditioning: Conditioning | None, found: Discrepancy
    ) -> str:
        if found.structural:
            return found.reason
        if name in self._rounded:
            return rounded_problem(
                found,
                actual,
                expected,
                roundings=self._rounded[name],
                relative=self._relative,
                mismatched=self._mismatched,
            )
        if _is_numbers(expected):
            return self._problem_of_numbers(name, actual, expected, conditioning, found)
        if name in self._exact:
            return _differ(found) if found.mismatched else ""
        if found.mismatched and self._correct and (wrong := self._wrong_choices(name, actual, expected)) is not None:
            return f"{_differ(found)}, {wrong} by more than rounding explains" if wrong else ""
        return _differ(found) if found.mismatched_fraction > self._share(name, conditioning) else ""

    def _problem_of_numbers(
        self, name: str, actual: Any, expected: Any, conditioning: Conditioning | None, found: Discrepancy
    ) -> str:
        """Return what is wrong with floating-point numbers."""
        if self._correct and found.beyond:
            if (wrong := self._wrong_choices(name, actual, expected)) is not None:
                return f"{_beyond(found)}, {wrong} of them wrong choices" if wrong else ""
            most = self._share(name, conditioning) * found.total
            if self._may_differ(name, conditioning) and found.beyond <= most and not _is_nothing(actual, expected):
                return ""
        if found.reason:
            return found.reason
        if self._correct and found.beyond:
            return _beyond(found)
        error, allowed = found.error, self._relative
        if self._correct and conditioning is not None and allowed >= USUAL_ERROR:
            error, allowed = found.of_elements, max(allowed, _ROUNDINGS * conditioning.unit)
        return "" if error <= allowed else f"error {error:.3g} of the tensor's scale, allowed {allowed:.3g}"

    def left_open(self, name: str, expected: Any, conditioning: Conditioning | None) -> float:
        """Return the share of a value's elements of which nothing is asked, because choices before them may differ."""
        decided = name in self._exact or name in self._rounded or not self._correct
        if decided or not self._may_differ(name, conditioning) or not isinstance(expected, np.ndarray):
            return 0.0
        return 0.0 if choice_behind(self._values[name]) is not None else self._share(name, conditioning)

    def _may_differ(self, name: str, conditioning: Conditioning | None) -> bool:
        """Return whether choices before a value, in this graph, may fall otherwise."""
        return name in self._open and conditioning is not None and conditioning.undecided > 0

    def _share(self, name: str, conditioning: Conditioning | None) -> float:
        """Return the share of elements that may differ because choices before them may."""
        if conditioning is None or not self._may_differ(name, conditioning):
            return self._mismatched
        return max(self._mismatched, min(_CHANCES * conditioning.undecided, 1.0))

    def _wrong_choices(self, name: str, actual: Any, expected: Any) -> int | None:
        """Return how many elements are wrong choices; None if they are no choices, or nobody knows between what."""
        choice = choice_behind(self._values[name]) if name in self._values else None
        if choice is None or not self._are_known(choice):
            return None
        return wrong_choices(choice, actual, expected, self._read)

    def _are_known(self, choice: Choice) -> bool:
        return all(self._behind(value) is not None for value in choice.needed)

    def _read(self, value: ir.Value) -> Behind:
        found = self._behind(value)
        assert found is not None
        numbers, known = found
        if known is not None or not is_floating(numbers) or is_moved(value, self._is_given):
            return found
        # there was not the time or the memory to find out what rounding does to it
        name = str(value.name)
        if name not in self._assumed:
            self._assumed[name] = assumed_conditioning(numbers)
        return numbers, self._assumed[name]

    def _is_given(self, value: ir.Value) -> bool:
        return str(value.name) in self._given or constant_of(value) is not None


def _is_numbers(expected: Any) -> bool:
    return not isinstance(expected, list | tuple) and expected is not None and is_floating(np.asarray(expected))


def _is_nothing(actual: Any, expected: Any) -> bool:
    """Return whether a value has no number where all should be numbers: no choice makes that of it."""
    found = np.asarray(actual)
    return found.size > 0 and not np.isfinite(found).any() and bool(np.isfinite(np.asarray(expected)).all())


def _differ(found: Discrepancy) -> str:
    return f"{found.mismatched} of {found.total} elements differ"


def _beyond(found: Discrepancy) -> str:
    said = f"{found.beyond} of {found.total} elements differ by more than rounding explains"
    if found.farthest is None:
        return said
    index, value, right = found.farthest
    return f"{said}, such as {value:.9g} instead of {right:.9g} at {list(index)}"
