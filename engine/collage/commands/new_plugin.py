"""`new-plugin`: write a plugin that works, for its author to put a library in."""

from __future__ import annotations

import importlib.util
import keyword
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from collage_core.errors import UsageError

KINDS: Final = ("runtime", "operators")
"""Kinds of plugins, by what the library takes; the folders of `collage_testing/template` are named so."""
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_STANDS_FOR: Final = "example"
"""The toolchain's name in the templates, which are plugins themselves."""


def new_plugin(name: str, folder: Path | None = None, *, kind: str = "runtime") -> Path:
    """Write a distribution `collage-NAME` whose toolchain NAME keeps the contract.

    Args:
        name: Name of the toolchain: small letters, digits and underscores.
        folder: Where to write it, a folder that does not exist yet; `collage-NAME` in the current one if None.
        kind: One of `KINDS`.

    Returns:
        The folder.

    Raises:
        UsageError: If the name is none for a toolchain, the folder exists, or the templates are not installed.
    """
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise UsageError(f"{name!r} is no name of a toolchain: small letters, digits and underscores make one")
    if kind not in KINDS:
        raise UsageError(f"no kind of plugin {kind!r}; choose one of {', '.join(KINDS)}")
    distribution = f"collage-{name.replace('_', '-')}"
    folder = Path(distribution) if folder is None else folder
    if folder.exists():
        raise UsageError(f"{folder} exists; choose another folder with --output")
    source = _templates() / kind
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as made:
            whole = Path(made) / folder.name
            for path in _files(source):
                target = whole / _named(str(path.relative_to(source)), name, distribution)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(_named(path.read_text(encoding="utf-8"), name, distribution), encoding="utf-8")
            whole.rename(folder)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror or error}") from error
    return folder


def _templates() -> Path:
    """Return the folder of the templates, which come with the kit: a plugin's author needs both."""
    spec = importlib.util.find_spec("collage_testing")
    if spec is None or spec.origin is None:
        raise UsageError("the templates come with collage-testing: pip install 'collage-testing[kit]'")
    return Path(spec.origin).parent / "template"


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(each for each in folders if each != "__pycache__")
        yield from (Path(parent, each) for each in sorted(files))


def _named(text: str, name: str, distribution: str) -> str:
    """Return text of a template with the new names in place of its own."""
    words = "".join(part.capitalize() for part in name.split("_"))
    new = {f"collage-{_STANDS_FOR}": distribution, _STANDS_FOR.capitalize(): words, _STANDS_FOR: name}
    return re.sub("|".join(new), lambda found: new[found[0]], text)  # at once: the new name may hold the old one
