"""Targets: a toolchain on a device with options."""

from __future__ import annotations

import dataclasses
import enum
import re

_SPELLING = re.compile(r"^(?P<toolchain>[A-Za-z_][\w.-]*)(\((?P<options>[^()]*)\))?(@(?P<device>\w+(:\d+)?))?$")


_PRECISION = "precision"
_PLAIN_PRECISION = (_PRECISION, "fp32")
_INT8_WEIGHTS = "int8-weights"


class Joins(enum.Enum):
    """How far a toolchain optimises across operators; decides which neighbours are proposed as one region."""

    NONE = "none"
    """A library of single kernels: only the groups its patterns match."""
    NATIVE = "native"
    """Fuses like classic compiler fusion passes: anchors with their element-wise epilogues."""
    ANY = "any"
    """A whole-graph compiler: any connected region may benefit from being compiled as one."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TargetSpelling:
    """A target as a user writes it: `openvino`, `openvino(precision=bf16)`, `cublas@cuda:0`.

    Attributes:
        toolchain: Entry-point name.
        options: Sorted `(name, value)` pairs; empty for the toolchain's default target.
        device: `"cpu"`, `"cuda:0"`, ...; None if unspecified.
    """

    toolchain: str
    options: tuple[tuple[str, str], ...] = ()
    device: str | None = None

    @classmethod
    def parse(cls, text: str) -> TargetSpelling:
        """Parse one target.

        Raises:
            ValueError: If `text` does not have the form `toolchain(option=value,...)@device`.

        Examples:
            >>> TargetSpelling.parse("openvino(precision=bf16)").options
            (('precision', 'bf16'),)
        """
        match = _SPELLING.match(text.strip())
        if match is None:
            raise ValueError(
                f"{text!r} is not a target; write toolchain, toolchain(option=value) or "
                "toolchain@device, for example openvino(precision=bf16)"
            )
        options: dict[str, str] = {}
        for item in filter(None, (match["options"] or "").split(",")):
            name, equals, value = item.partition("=")
            if not equals or not name.strip() or not value.strip():
                raise ValueError(f"{item!r} in {text!r} is not of the form option=value")
            options[name.strip()] = value.strip()
        return cls(
            toolchain=match["toolchain"],
            options=tuple(sorted(options.items())),
            device=match["device"],
        )

    def matches(self, target: Target) -> bool:
        """Return whether this spelling selects `target`.

        `precision=fp32` selects the target without the option `precision`, so that it can be requested on its own.

        Examples:
            >>> TargetSpelling.parse("cublas(precision=fp32)").matches(Target(toolchain="cublas", fingerprint="x"))
            True
        """
        return (
            target.toolchain == self.toolchain
            and target.options == tuple(pair for pair in self.options if pair != _PLAIN_PRECISION)
            and self.device in (None, target.device)
        )


def split_targets(text: str) -> tuple[TargetSpelling, ...]:
    """Parse a comma-separated list of targets; commas inside parentheses do not separate.

    Examples:
        >>> [t.toolchain for t in split_targets("onnxruntime,openvino(precision=bf16,x=1)")]
        ['onnxruntime', 'openvino']
    """
    parts = re.split(r",(?![^(]*\))", text)
    return tuple(TargetSpelling.parse(part) for part in parts if part.strip())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A toolchain on a device with options, as its plugin reports it.

    Attributes:
        toolchain: Name of the toolchain's entry point.
        device: Device its kernels run on and whose memory their buffers live in: `"cpu"`, `"cuda:0"`.
        options: Sorted `(name, value)` pairs that change what kernels compute or how they are launched.
        fingerprint: Library and version its measurements are valid for, e.g. `"onnxruntime 1.31.1"`.
        joins: Which neighbours are proposed to it as one region.
        mixable: Whether its kernels may share a plan with those of other targets. A target that is not mixable
            is used for whole-model plans only.
        exact: Whether it computes in the model's own dtypes. A target that is not exact is used only if the user
            allows an error with `--max-error`.
        rounds: Operators whose float32 operands its option `precision` rounds. A kernel without any of them is
            identical to that of the target without the option (same variants, names and bits), so both share
            one measurement. None if unknown: then every kernel is measured separately.
        symmetric: Whether a target that `quantises` takes activations as int8 without a zero point, instead of uint8
            with one.
        on_request: Whether it is used only when named with its options, e.g. because it works here but cannot win.
        excludes: Toolchains that cannot be loaded into the same process.
        max_inputs: Maximum number of inputs of one of its kernels; None for no limit.
        max_depth: Longest path, in nodes, inside one of its kernels; None for no limit.
        about: What its options do, for users, as the end of a sentence that begins with its name and a colon.
    """

    toolchain: str
    device: str = "cpu"
    options: tuple[tuple[str, str], ...] = ()
    fingerprint: str
    joins: Joins = Joins.NONE
    mixable: bool = True
    exact: bool = True
    rounds: frozenset[str] | None = None
    symmetric: bool = False
    on_request: bool = False
    excludes: frozenset[str] = frozenset()
    max_inputs: int | None = None
    max_depth: int | None = None
    about: str = dataclasses.field(default="", compare=False)

    def __post_init__(self) -> None:
        if tuple(sorted(self.options)) != self.options:
            raise ValueError(f"options of a target are sorted pairs, not {self.options!r}")

    @property
    def name(self) -> str:
        """The target in user spelling.

        Examples:
            >>> Target(toolchain="openvino", options=(("precision", "bf16"),), fingerprint="x").name
            'openvino(precision=bf16)'
        """
        options = ",".join(f"{name}={value}" for name, value in self.options)
        device = "" if self.device == "cpu" else f"@{self.device}"
        return f"{self.toolchain}{f'({options})' if options else ''}{device}"

    @property
    def unrounded(self) -> Target:
        """The target without the option `precision`, which computes in the model's own dtypes.

        Examples:
            >>> Target(toolchain="triton", options=(("precision", "tf32"),), fingerprint="x", exact=False).unrounded
            Target(toolchain='triton', device='cpu', options=(), fingerprint='x', ...exact=True, rounds=None, ...)
        """
        options = tuple(pair for pair in self.options if pair[0] != _PRECISION)
        return dataclasses.replace(self, options=options, exact=True, rounds=None, symmetric=False)

    @property
    def is_chosen_by_region(self) -> bool:
        """Whether regions of lower precision are chosen for it under a bound on the outputs: a compiler of regions.

        Kernels of other targets that are not exact keep to the bound one by one.
        """
        return not self.exact and self.mixable and self.joins is Joins.ANY

    @property
    def quantises(self) -> bool:
        """Whether operands of its products are 8-bit integers, as its option `precision` says.

        Core writes the quantisation into the functions that such a target is given (`ir.operators.quantising`); what is
        not quantised is in float32, or in the type that the option names besides.

        Examples:
            >>> Target(toolchain="x", options=(("precision", "int8+bf16"),), fingerprint="x", exact=False).quantises
            True
        """
        return self.option(_PRECISION).partition("+")[0] in ("int8", _INT8_WEIGHTS)

    @property
    def quantises_only_weights(self) -> bool:
        """Whether only the weights of its products are 8-bit integers, and activations are not.

        Examples:
            >>> Target(toolchain="x", options=(("precision", "int8-weights"),), fingerprint="x").quantises_only_weights
            True
        """
        return self.option(_PRECISION).partition("+")[0] == _INT8_WEIGHTS

    @property
    def rounded_precision(self) -> str:
        """What it rounds the operands of products to that are not quantised; empty if they stay as they are.

        Examples:
            >>> Target(toolchain="x", options=(("precision", "int8+bf16"),), fingerprint="x").rounded_precision
            'bf16'
        """
        first, _, second = self.option(_PRECISION).partition("+")
        return second if self.quantises else first

    @property
    def launch(self) -> str:
        """Launch mode of its deployed kernels: `"eager"`, or `"graph"` for capture where possible.

        `"graph"` is the default on devices, unless the target has the option `launch=eager`.

        Examples:
            >>> Target(toolchain="cublas", device="cuda:0", fingerprint="x").launch
            'graph'
        """
        return "eager" if self.device == "cpu" else self.option("launch", "graph")

    def option(self, name: str, default: str = "") -> str:
        """Return the value of one option, or `default`."""
        return dict(self.options).get(name, default)
