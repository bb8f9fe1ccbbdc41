"""Records of the tuning database, and their JSON."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import math
import typing
from collections.abc import Mapping
from typing import Any, Final, Literal, NoReturn, TypeVar

import cattrs
from cattrs.gen import make_dict_unstructure_fn, override

from collage.documents.strict import strict_converter
from collage_core.contract import Block

Outcome = Literal["measured", "refused", "failed"]
"""Measured; refused by the toolchain (a value, not an error); or failed to build, run or verify after acceptance."""

Purpose = Literal["select", "confirm", "end_to_end", "verify"]
"""Purpose of a measurement: to choose candidates, confirm chosen ones, compare whole plans, or check outputs."""

_TIMING: Final = "blocks 2"
"""How samples of candidates are taken (`collage.measure.clocks.clock`). To be raised when what they mean changes."""


def timing_beside(nbytes: int) -> str:
    """Return how samples of a candidate are taken, for its key.

    Args:
        nbytes: Memory that the other kernels of a plan touch between two runs of it.

    Examples:
        >>> timing_beside(0), timing_beside(4096)
        ('blocks 2', 'blocks 2, 4096 bytes beside')
    """
    return f"{_TIMING}, {nbytes} bytes beside" if nbytes else _TIMING


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, order=True)
class RecordKey:
    """Validity of a measurement: if any attribute changes, the old time no longer applies.

    Attributes:
        structural_hash: Hash of the measured kernel function, or of a whole plan.
        target: Full name of the target, with options and device.
        fingerprint: Versions of the target's libraries.
        host: Fingerprint of processor and device.
        threads: Threads the kernel may use.
        launch: How kernels are launched.
        timing: How samples are taken, and so what they mean; see `timing_beside`.
        plugin: Version of the plugin, to which a failure belongs: that of another version says nothing. A time of
            another version counts until the kernel is on a plan that is chosen. Empty if unknown.
    """

    structural_hash: str
    target: str
    fingerprint: str
    host: str
    threads: int
    launch: str
    timing: str
    plugin: str = ""


def of_any_plugin(key: RecordKey) -> RecordKey:
    """Return a key without the version of the plugin."""
    return dataclasses.replace(key, plugin="")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TuningRecord:
    """One attempt to build, check and time a candidate, or to time a plan.

    Attributes:
        key: Conditions under which it is valid.
        outcome: How it ended.
        purpose: Why it was made.
        created: Creation time, as ISO 8601 with offset.
        samples_us: Time of one call in each sample, in the order taken; non-empty exactly if it was measured.
        blocks: As in `contract.Measurement`.
        warmup_runs: Untimed runs before the first sample.
        reason: Why it was refused or failed; empty if measured.
        stage: Stage of the refusal or failure: `"lower"`, `"load"`, `"verify"`, `"measure"`, ...
        error: Largest error against the reference, relative to the tensor's scale; None if not compared, or not
            finite (then `reason` says so).
        variant: Which of the toolchain's variants.
        extra: Additional data, as JSON; its keys are defined by the writer.
    """

    key: RecordKey
    outcome: Outcome
    purpose: Purpose
    created: str
    samples_us: tuple[float, ...] = ()
    blocks: tuple[Block, ...] = ()
    warmup_runs: int = 0
    reason: str = ""
    stage: str = ""
    error: float | None = None
    variant: str = ""
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        # Whatever kind of number they come as: equal records have to give equal JSON.
        object.__setattr__(self, "samples_us", tuple(map(float, self.samples_us)))
        if self.error is not None:
            object.__setattr__(self, "error", float(self.error))
        if (self.outcome == "measured") != bool(self.samples_us):
            raise ValueError("a record has samples if, and only if, it was measured")
        if not all(math.isfinite(sample) and sample >= 0 for sample in self.samples_us):
            raise ValueError("samples are finite microseconds >= 0")
        if self.blocks and sum(block.samples for block in self.blocks) != len(self.samples_us):
            raise ValueError("every sample is in one block")
        if self.error is not None and not math.isfinite(self.error):
            raise ValueError("an error is finite or None; say in `reason` that it was not finite")
        if datetime.datetime.fromisoformat(self.created).tzinfo is None:
            raise ValueError(f"created needs an offset from UTC, {self.created!r} has none")

    @property
    def content_id(self) -> str:
        """Hash of the whole content; equal records are one record."""
        return content_id(to_json(self))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, order=True)
class BlobSpace:
    """Owner of cached blobs; one version of a library cannot use those of another.

    Attributes:
        toolchain: Name of the toolchain, or of the part of core that keeps them.
        fingerprint: Versions of its libraries.
    """

    toolchain: str
    fingerprint: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StoredDocument:
    """A document as stores keep it, whoever may understand it.

    Attributes:
        kind: As in `Document`.
        name: What it is about: a machine, a device, a set of plans.
        version: As in `Document`.
        body: Its fields, as JSON.
    """

    kind: str
    name: str
    version: int
    body: Mapping[str, Any]


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def dumps(value: object) -> str:
    """Serialize a value as canonical JSON.

    Raises:
        ValueError: If a number is not finite.
        TypeError: If a part is not a JSON value.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def json_text(value: object) -> str:
    """Return JSON of something that may not be.

    Raises:
        ValueError: If something in it is not JSON.
    """
    try:
        return dumps(value)
    except TypeError as error:
        raise ValueError(f"not JSON: {error}") from None


def loads(text: str) -> Any:
    """Parse strict JSON.

    Raises:
        ValueError: If it is invalid.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested deeper than anything Collage writes") from None


def content_id(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _converter() -> cattrs.Converter:
    converter = strict_converter(detailed_validation=True)

    def json_object(value: Any, _: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise TypeError(f"{value!r} is not an object")
        return value

    def is_mapping(kind: Any) -> bool:  # what is in `extra` and `body` stays as it is
        return typing.get_origin(kind) is Mapping

    converter.register_structure_hook_func(is_mapping, json_object)
    converter.register_unstructure_hook_func(is_mapping, dict)
    # an unknown version is left out: records of exports that have none keep their identifiers, which seed replays
    plugin = override(omit_if_default=True)
    converter.register_unstructure_hook(RecordKey, make_dict_unstructure_fn(RecordKey, converter, plugin=plugin))
    return converter


_CONVERTER = _converter()
_Value = TypeVar("_Value", TuningRecord, RecordKey, BlobSpace, StoredDocument)


def to_json(value: TuningRecord | RecordKey | BlobSpace | StoredDocument) -> str:
    """Return JSON of a record, or of what else is stored; equal values give equal text.

    Raises:
        ValueError: If something in it is not JSON.
    """
    return json_text(_CONVERTER.unstructure(value))


def from_json(text: str, kind: type[_Value]) -> _Value:
    """Parse the output of `to_json` strictly: no missing or unknown fields, no conversions.

    Raises:
        ValueError: If it is anything else.
    """
    return structure(loads(text), kind)


def structure(value: object, kind: type[_Value]) -> _Value:
    """Convert parsed JSON to a record.

    Raises:
        ValueError: If it is anything else.
    """
    if not isinstance(value, dict):
        raise ValueError(f"not a {kind.__name__} but {value!r:.80}")
    try:
        return _CONVERTER.structure(value, kind)
    except (cattrs.BaseValidationError, TypeError, ValueError) as error:
        reasons = "; ".join(cattrs.transform_error(error))
        raise ValueError(f"not a {kind.__name__}: {reasons}") from None
