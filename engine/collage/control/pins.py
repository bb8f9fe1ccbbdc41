"""`--pin`: assign nodes to a toolchain, regardless of cost.

A pinned node is refused for all other targets before candidates are made. Regions therefore form around it, and no
plan, of one toolchain or several, breaks the pin.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from collage.errors import PinError
from collage.setup.targets import covers
from collage_core.candidates.explanation import said_of
from collage_core.candidates.plan import Plan
from collage_core.candidates.proposals import TargetRule
from collage_core.candidates.refusals import Refusal
from collage_core.contract import Target, TargetSpelling
from collage_core.errors import NoCoverError, UsageError, did_you_mean
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits

_WRITTEN = re.compile(r"^(?P<glob>.+)=(?P<target>[^=()]+(\([^()]*\))?(@[^=()]+)?)$", re.DOTALL)


@dataclasses.dataclass(frozen=True, slots=True)
class Pin:
    """One `--pin` option.

    Attributes:
        text: As written: `GLOB=toolchain`.
        glob: Pattern for names of nodes of the prepared model.
        spelling: The owner: a toolchain with all its targets, or one target.
    """

    text: str
    glob: str
    spelling: TargetSpelling

    @classmethod
    def parse(cls, text: str) -> Pin:
        """Parse one pin.

        Raises:
            UsageError: If the text does not have the form of a pin.

        Examples:
            >>> pin = Pin.parse("/encoder/*=openvino(precision=bf16)")
            >>> pin.glob, pin.spelling.toolchain
            ('/encoder/*', 'openvino')
        """
        written = _WRITTEN.match(text)
        try:
            if written is None:
                raise ValueError("it is not of the form GLOB=toolchain, such as '/encoder/*=openvino'")
            return cls(text, written["glob"], TargetSpelling.parse(written["target"]))
        except ValueError as error:
            raise UsageError(f"--pin {text!r}: {error}") from error

    def takes(self, target: Target) -> bool:
        """Return whether the pin names this target."""
        return covers(self.spelling, target)

    def holds(self, name: str) -> bool:
        """Return whether the pin applies to the node of this name; a name equal to the glob itself always matches."""
        return name == self.glob or fnmatch.fnmatchcase(name, self.glob)


class Pins:
    """All pins of one run over one graph.

    Args:
        pins: As the user wrote them.
        graph: The prepared model's graph.
        targets: The participating targets.

    Raises:
        UsageError: If a pin matches no node that needs a kernel or no participating target, or if two pins assign a
            node to different targets.
    """

    def __init__(self, pins: Iterable[Pin], graph: DataflowGraph, targets: Sequence[Target]) -> None:
        self._graph = graph
        self._by_node: dict[int, Pin] = {}
        for pin in pins:
            if not any(pin.takes(target) for target in targets):
                names = ", ".join(target.name for target in targets)
                raise UsageError(f"--pin {pin.text!r}: no such target takes part; those that do: {names}")
            held = [index for index in iterate_bits(graph.needs_kernel) if pin.holds(graph.names[index])]
            if not held:
                raise UsageError(f"--pin {pin.text!r}: {self._nothing(pin)}")
            for index in held:
                other = self._by_node.setdefault(index, pin)
                if other.spelling != pin.spelling:
                    raise UsageError(
                        f"node {graph.names[index]!r} is pinned twice: --pin {other.text!r} and --pin {pin.text!r}"
                    )

    def __bool__(self) -> bool:
        return bool(self._by_node)

    def applied(self, rules: Sequence[TargetRule]) -> tuple[TargetRule, ...]:
        """Return the rules, each refusing the nodes that are pinned to other targets."""
        return tuple(dataclasses.replace(rule, pinned=self._refusals(rule.target)) for rule in rules)

    def check(self, plan: Plan) -> None:
        """See that a plan a user gives keeps the pins the same user gives.

        Raises:
            UsageError: If it does not.
        """
        for kernel in plan.kernels:
            for index in iterate_bits(kernel.sub_graph.nodes):
                pin = self._by_node.get(index)
                if pin is not None and not pin.takes(kernel.target):
                    name = self._graph.names[index]
                    raise UsageError(
                        f"the given plan gives node {name!r} to {kernel.target.name}, against --pin {pin.text!r}"
                    )

    def pin_of(self, nodes: Collection[str]) -> Pin | None:
        """Return the first pin that holds one of these nodes; None if they are free."""
        return next((pin for index, pin in self._by_node.items() if self._graph.names[index] in nodes), None)

    def explained(self, error: NoCoverError, refusals: Iterable[Refusal]) -> NoCoverError | PinError:
        """Return the error for an uncovered graph: a `PinError` on the first pin that prevents a cover, if any.

        Args:
            error: Error of the search.
            refusals: Refusals of every target.
        """
        for index in error.nodes:
            pin = self._by_node.get(index)
            if pin is None:
                continue
            name = self._graph.names[index]
            mine = [fact for fact in refusals if name in fact.nodes and fact.stage != "pin"]
            reasons = tuple(dict.fromkeys(said_of(fact) for fact in mine if self._is_of(pin, fact)))
            return PinError(pin.text, name, self._graph.nodes[index].op_type, reasons)
        return error

    def _is_of(self, pin: Pin, fact: Refusal) -> bool:
        try:
            spelling = TargetSpelling.parse(fact.target)
        except ValueError:
            return False
        return spelling.toolchain == pin.spelling.toolchain

    def _refusals(self, target: Target) -> Mapping[int, str]:
        return {
            index: f"pinned to another target: --pin {pin.text!r}"
            for index, pin in self._by_node.items()
            if not pin.takes(target)
        }

    def _nothing(self, pin: Pin) -> str:
        names = self._graph.names
        if any(pin.holds(name) for name in names):
            return "it names views only, which need no kernel"
        return f"no node of the prepared model has such a name{did_you_mean(pin.glob, names)}"
