"""A refusal as a user of the command line meets it: a status, one message, and no file touched."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

from click.testing import CliRunner, Result

from collage.cli import main

MISUSE, FAILURE = 2, 1
"""Statuses: the command line says what is not there or does not fit; what it names cannot be used."""

_BEFORE_THE_MESSAGE = re.compile(r"(Usage: .*|Try .*| +.*|\d/\d .*|.* \.\.\.|.* done in .* s|)")
"""What click says of the command, and progress."""


@dataclasses.dataclass(frozen=True, slots=True)
class Desk:
    """A folder with something good for everything a command takes, and results of an earlier day.

    Attributes:
        folder: Where all of it is.
        model: A model of the inputs `x`, two by three numbers, and `n`, two integers.
        free: The same, the first dimension of `x` being free.
        package: A package of the model.
        inputs: An NPZ file with arrays that fit.
    """

    folder: Path

    @property
    def model(self) -> Path:
        return self.folder / "model.onnx"

    @property
    def free(self) -> Path:
        return self.folder / "free.onnx"

    @property
    def package(self) -> Path:
        return self.folder / "model.collage"

    @property
    def inputs(self) -> Path:
        return self.folder / "in.npz"

    def result(self, name: str) -> Path:
        return self.folder / "results" / name

    def command(
        self, name: str, *options: object, model: Path | None = None, package: Path | None = None
    ) -> list[object]:
        """A command that works and writes whatever it can write over the results there are.

        Args:
            name: The command.
            *options: What is wrong, or leads to it; of two options of one name the last counts.
            model: The model, if it is not the good one.
            package: The package, if it is not the good one.
        """
        model, package = model or self.model, package or self.package
        json = ("--json", self.result("result.json"))
        reference = ("--toolchains", "reference")
        match name:
            case "inspect":
                begin = [name, model, *json, *reference]
            case "optimize":
                begin = [name, model, "--output", self.result("result.collage"), "--tuning-db", "memory:"]
                begin += [*json, *reference]
            case "bench":
                begin = [name, model, *json, *reference]
            case "bench package":
                begin = ["bench", package, *json, *reference]
            case "compare":
                begin = [name, model, package, *json]
            case "run":
                begin = [name, package, "--save-outputs", self.result("out.npz"), *json]
                begin += ["--profile", self.result("trace.json")]
            case _:
                begin = [name, package, *json]
        return [*begin, *options]

    def refuses(self, arguments: Sequence[object], status: int, says: Sequence[str]) -> None:
        """Runs a command, which ends with a status and one message, and leaves every file as it was.

        Args:
            arguments: The command line.
            status: How it ends.
            says: What the message holds.
        """
        before = contents(self.folder)

        result = collage(*arguments)

        assert contents(self.folder) == before
        assert result.exit_code == status, result.output
        message = the_message(result.stderr)
        for words in says:
            assert words in message, message
        assert result.stdout == ""


def collage(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def the_message(said: str) -> str:
    """The one message of what a command wrote to standard error, on one line."""
    before, error, message = said.partition("Error: ")
    assert error, said
    assert all(_BEFORE_THE_MESSAGE.fullmatch(line) for line in before.splitlines()), said
    assert not any(word in message for word in ("Error: ", "Traceback", "Collage itself failed")), said
    return " ".join(message.split())


def contents(folder: Path) -> dict[str, bytes | None]:
    """What a folder holds: the bytes of each file, None for a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }
