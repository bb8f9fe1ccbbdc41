"""Packages whose code may be loaded on this machine: written here, or accepted by the user."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import platformdirs

from collage.errors import TrustError
from collage_core.ir.io.replacement import Replacement

_DIGEST = re.compile(r"[0-9a-f]{64}")

How = Literal["written", "accepted"]
"""Why a package is trusted: it was written on this machine, or the user accepted it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TrustedPackage:
    """A package whose code may be loaded.

    Attributes:
        digest: Its `Package.digest`.
        how: Why it is trusted.
        when: Since when, in ISO 8601 with time zone.
        path: Where it was then, for humans: a copy or a moved file is trusted too.
    """

    digest: str
    how: str
    when: str
    path: str


class TrustedPackages:
    """The trusted packages of one user on one machine: a folder with one small file each, named by the digest.

    Args:
        folder: The folder; None for the user's own, among the user's state.
    """

    def __init__(self, folder: Path | None = None) -> None:
        state = platformdirs.user_state_path("collage", appauthor=False)
        self._folder = state / "trusted-packages" if folder is None else folder

    def __contains__(self, digest: object) -> bool:
        return isinstance(digest, str) and _DIGEST.fullmatch(digest) is not None and (self._folder / digest).is_file()

    def __iter__(self) -> Iterator[TrustedPackage]:
        """Yield the trusted packages, the oldest first."""
        return iter(sorted(self._read(), key=lambda each: (each.when, each.digest)))

    def add(self, digest: str, path: Path, how: How) -> None:
        """Trust a package; durable on return.

        Raises:
            TrustError: If the folder cannot be written to.
        """
        when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        said = {"how": how, "when": when, "path": str(path.absolute())}
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with Replacement(self._folder / digest) as file:
                file.stream.write(json.dumps(said).encode())
        except OSError as error:
            raise TrustError(str(self._folder), error.strerror or str(error)) from error

    def remove(self, digest: str) -> bool:
        """Trust a package no longer; return whether it was trusted.

        Raises:
            TrustError: If the folder cannot be written to.
        """
        if digest not in self:
            return False
        try:
            (self._folder / digest).unlink(missing_ok=True)
        except OSError as error:
            raise TrustError(str(self._folder), error.strerror or str(error)) from error
        return True

    def _read(self) -> Iterator[TrustedPackage]:
        with contextlib.suppress(FileNotFoundError):
            for file in self._folder.iterdir():
                if _DIGEST.fullmatch(file.name) is None:
                    continue
                said: dict[str, str] = {}
                with contextlib.suppress(OSError, ValueError):
                    said = json.loads(file.read_text(encoding="utf-8"))
                known = {name: str(said.get(name, "unknown")) for name in ("how", "when", "path")}
                yield TrustedPackage(digest=file.name, **known)
