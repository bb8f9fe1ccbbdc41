"""A PostgreSQL server of a test's own: Debian's, run by a user without rights, on a socket in its folder."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
from pathlib import Path

DEBIAN = Path("/usr/lib/postgresql")
"""Where Debian's packages have the server's programs, a folder for each version."""


def programs() -> Path | None:
    """Return the folder of the newest server's programs; None if there is none."""
    versions = sorted(DEBIAN.glob("*/bin/initdb"), key=lambda path: float(path.parents[1].name))
    found = shutil.which("initdb")
    return versions[-1].parent if versions else Path(found).resolve().parent if found else None


class PostgresServer:
    """A server that can be stopped, killed and started again.

    Args:
        folder: An empty folder for it, whose path is short: a socket's may have 107 characters.
        programs: Where its programs are.
    """

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        self._programs = programs
        # the server refuses to be run by root
        self._user = pwd.getpwnam("postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name)
        folder.mkdir(parents=True, exist_ok=True)
        os.chmod(folder, 0o755)
        if os.geteuid() == 0:
            os.chown(folder, self._user.pw_uid, self._user.pw_gid)
        self._run("initdb", "-D", self._data, "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync")

    @property
    def url(self) -> str:
        """The URL of its first database."""
        return f"postgresql://tester@/postgres?host={self.folder}"

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = f"-c listen_addresses='' -k {self.folder} -c max_connections=50"
        self._run("pg_ctl", "-D", self._data, "-l", str(self.folder / "log"), "-w", "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop it: `fast` ends connections, `immediate` is what a crash is."""
        self._run("pg_ctl", "-D", self._data, "-w", "-m", mode, "stop")

    def make_database(self, name: str) -> str:
        """Make a database and return its URL."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return f"postgresql://tester@/{name}?host={self.folder}"

    def _run(self, program: str, *arguments: str) -> None:
        who = {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
        output = self._output(program)
        with output.open("w") as file:
            done = subprocess.run(
                [str(self._programs / program), *arguments],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                check=False,
                **who,  # type: ignore[call-overload]
            )
        if done.returncode:
            raise RuntimeError(f"{program} failed: {output.read_text(errors='replace')[-2000:]}")

    def _output(self, program: str) -> Path:
        # a file: a server that is started keeps what it was given open, and nobody would read a pipe
        return self.folder.parent / f"{self.folder.name}-{program}-{time.monotonic_ns()}.txt"
