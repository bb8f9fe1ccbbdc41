"""Temporary folders with an owner: the process that made one holds a lock on a file in it for as long as it lives.

The kernel releases the lock however the process ends, so a folder whose lock is free belongs to nobody. A number of a
process says less: another process may have got it, and one in another container has numbers of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import shutil
import stat
import tempfile
import weakref
from pathlib import Path

PREFIX = "collage-"
_OWNER = ".owner"


class TemporaryFolder:
    """A new folder among the temporary files, removed when the context is left, with this object, or at exit.

    Not by a process that was forked from its owner.

    Args:
        kind: Part of its name, for those who look.

    Attributes:
        path: The folder.
    """

    def __init__(self, kind: str = "") -> None:
        self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-" if kind else PREFIX))
        try:
            lock = _locked(self.path)
        except OSError:  # nobody would sweep a folder without an owner
            shutil.rmtree(self.path, ignore_errors=True)
            raise
        self._remove = weakref.finalize(self, _remove, self.path, lock, os.getpid())

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folder; doing so again does nothing."""
        self._remove()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What was removed.

    Attributes:
        folders: Number of folders.
        nbytes: Size of the files in them.
    """

    folders: int = 0
    nbytes: int = 0


def sweep() -> Swept:
    """Remove the folders that killed processes of this user left among the temporary files.

    Those of living processes stay, as do folders of others, and folders of similar names that are not ours.
    """
    folders = nbytes = 0
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # somebody else removes it, too
                if entry.name.startswith(PREFIX) and _is_own(entry.stat(follow_symlinks=False)):
                    removed = _swept(Path(entry.path))
                    folders += removed is not None
                    nbytes += removed or 0
    return Swept(folders=folders, nbytes=nbytes)


def _locked(folder: Path) -> int | None:
    """Create the file by which a folder has an owner; None on a file system without locks.

    It gets its name when it is locked, so that nobody finds it otherwise.
    """
    new = folder / f"{_OWNER}.new"
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        new.unlink()
        return None
    new.rename(folder / _OWNER)
    return descriptor


def _remove(folder: Path, lock: int | None, made_by: int) -> None:
    if os.getpid() != made_by:
        return
    shutil.rmtree(folder, ignore_errors=True)
    if lock is not None:
        with contextlib.suppress(OSError):
            os.close(lock)


def _is_own(status: os.stat_result) -> bool:
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _swept(folder: Path) -> int | None:
    """Remove a folder whose owner is gone and return the size of its files; None if it has one.

    Raises:
        OSError: If it is none of ours, or cannot be removed.
    """
    descriptor = os.open(folder / _OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    else:
        nbytes = sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != _OWNER:
                path.unlink()
        if [path.name for path in folder.iterdir()] == [_OWNER]:  # the mark goes last, or what is left stays for ever
            (folder / _OWNER).unlink()
            folder.rmdir()
        return nbytes
    finally:
        os.close(descriptor)
