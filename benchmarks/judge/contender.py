"""A contender: a Python file with a function `setup`, and the options it is called with.

    def setup(model_path: str, inputs: dict[str, np.ndarray], threads: int, **options: str
              ) -> Callable[[], Any]

`setup` loads and binds everything; the call it returns is what is timed. `call.as_called`, if present, is the same
computation as users call it, arrays in and arrays out; it is timed too. The outputs, which are compared
between contenders, are `call.outputs()` (name -> array) where the call has that attribute, else the value
that the call returns: arrays by name or in the order of the model's outputs. `call.note`, if present,
describes a run in words, such as whether it is one CUDA graph; the report quotes it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

CONTENDERS = Path(__file__).resolve().parent.parent / "contenders"

Kind = Literal["default", "single", "outside"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One contender of a comparison.

    Attributes:
        name: Unique in a comparison.
        file: Python file that defines `setup`.
        options: Keyword arguments of `setup`, except `model`, which is not passed on: a path to load instead of
            the judged model, in which `{name}` stands for the stem of the judged model's file.
        kind: `single` is one tuned toolchain at full precision: the best of these is the baseline.
            `default` is a toolchain with default settings, or at another precision.
    """

    name: str
    file: Path
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    kind: Kind = "outside"

    def path_for(self, model: Path) -> Path:
        """Return the path that `setup` receives when `model` is judged."""
        other = self.options.get("model")
        return Path(other.replace("{name}", model.stem)) if other else model

    def setup_options(self) -> dict[str, str]:
        """Return the keyword arguments of `setup`."""
        return {key: value for key, value in self.options.items() if key != "model"}


def built_in() -> dict[str, Contender]:
    """Return the toolchains that the harness knows, with default settings and tuned by hand."""
    runtimes = {
        "onnxruntime": CONTENDERS / "onnxruntime_session.py",
        "openvino": CONTENDERS / "openvino_request.py",
    }
    rows: list[tuple[str, str, Kind, dict[str, str]]] = [
        ("onnxruntime-default", "onnxruntime", "default", {"tuned": "false"}),
        ("onnxruntime", "onnxruntime", "single", {}),
        ("onnxruntime-nospin", "onnxruntime", "single", {"spin": "false"}),
        ("openvino-default", "openvino", "default", {"tuned": "false"}),
        ("openvino", "openvino", "single", {}),
        ("openvino-bf16", "openvino", "default", {"precision": "bf16"}),
    ]
    return {
        name: Contender(name=name, file=runtimes[runtime], options=options, kind=kind)
        for name, runtime, kind, options in rows
    }


def parse(text: str) -> Contender:
    """Read `NAME=FILE.py[:key=value,...]`.

    Raises:
        ValueError: If the text has another form, or there is no such file.

    Examples:
        >>> plan = parse("plan=benchmarks/contenders/hand_made.py:model={name}.onnx")
        >>> plan.name, plan.path_for(Path("x/mnist.onnx")).name
        ('plan', 'mnist.onnx')
    """
    name, separator, rest = text.partition("=")
    file, _, listed = rest.partition(":")
    if not separator or not name or not file:
        raise ValueError(f"contender {text!r} is not of the form NAME=FILE.py[:key=value,...]")
    if not Path(file).is_file():
        raise ValueError(f"contender {name!r}: there is no file {file!r}")
    options = {}
    for pair in filter(None, listed.split(",")):
        key, separator, value = pair.partition("=")
        if not separator:
            raise ValueError(f"contender {name!r}: option {pair!r} is not of the form key=value")
        options[key] = value
    return Contender(name=name, file=Path(file), options=options)
