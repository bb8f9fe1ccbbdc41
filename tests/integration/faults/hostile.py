"""Toolchains whose modules do something to the process that imports them.

Each kind is the text of a module's first lines. What follows makes it a plugin that refuses every machine, so that no
worker is started for it.
"""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Mapping
from pathlib import Path

from collage_core.hookspecs import ENTRY_POINT_GROUP
from tests.from_source import metadata


@dataclasses.dataclass(frozen=True, slots=True)
class Hostile:
    """A kind of plugin.

    Attributes:
        code: What its module does when it is imported.
        said: What the command says of it.
    """

    code: str
    said: str


_FENV = "import ctypes\nlibm, fenv = ctypes.CDLL(None), ctypes.create_string_buffer(64)\n"
_DOWNWARD = 0x800000 if platform.machine() == "aarch64" else 0x400  # FE_DOWNWARD of glibc's bits/fenv.h
_MXCSR = "libm.fegetenv(fenv)\nfenv[29] = bytes([fenv.raw[29] | 0x80])\nlibm.fesetenv(fenv)"  # bit 15: flush to zero

RESTORED: Mapping[str, Hostile] = {
    "changes-the-working-directory": Hostile("import os\nos.chdir('/')", "the working directory"),
    "sets-the-umask": Hostile("import os\nos.umask(0o777)", "the umask"),
    "lowers-the-recursion-limit": Hostile("import sys\nsys.setrecursionlimit(200)", "the recursion limit"),
    "sets-the-locale": Hostile("import locale\nlocale.setlocale(locale.LC_NUMERIC, 'C.UTF-8')", "the locale"),
    "sets-environment-variables": Hostile(
        "import os\nos.environ.update(PYTHONHOME='/nowhere', PATH='')", "environment variables"
    ),
    "ignores-signals": Hostile(
        "import signal\nfor each in (2, 15): signal.signal(each, signal.SIG_IGN)", "signal handlers"
    ),
    "blocks-signals": Hostile("import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [15])", "signal handlers"),
    "makes-numpy-raise": Hostile("import numpy\nnumpy.seterr(all='raise')", "NumPy's error handling"),
    "sets-numpys-print-options": Hostile("import numpy\nnumpy.set_printoptions(precision=1)", "NumPy's print options"),
    "disables-garbage-collection": Hostile("import gc\ngc.disable()", "garbage collection"),
    "lowers-the-limit-of-open-files": Hostile(
        "import resource as r\nr.setrlimit(r.RLIMIT_NOFILE, (9, r.getrlimit(r.RLIMIT_NOFILE)[1]))", "resource limits"
    ),
    "rounds-downwards": Hostile(f"{_FENV}libm.fesetround({_DOWNWARD})", "how this processor rounds"),
    "replaces-open": Hostile("import builtins\nbuiltins.open = None", "built-in functions"),
    "replaces-json-dumps": Hostile("import json\njson.dumps = lambda *_, **__: '{}'", "built-in functions"),
    "replaces-sys-stdout": Hostile("import os, sys\nsys.stdout = open(os.devnull, 'w')", "standard streams"),
    "redirects-descriptor-1": Hostile(
        "import os\nos.dup2(os.open(os.devnull, os.O_WRONLY), 1)", "where standard streams lead"
    ),
    "closes-descriptor-1": Hostile("import os\nos.close(1)", "where standard streams lead"),
    "closes-descriptor-2": Hostile("import os\nos.close(2)", "where standard streams lead"),
    "closes-sys-stdout": Hostile(
        "import sys\nsys.stdout.close()\nsys.__stdout__.close()", "whether standard streams are open"
    ),
}
"""What is undone: the toolchain goes on, and one line names it."""
if platform.machine() == "x86_64":
    RESTORED = {**RESTORED, "flushes-to-zero": Hostile(_FENV + _MXCSR, "how this processor rounds")}

REFUSED: Mapping[str, Hostile] = {
    "exits": Hostile("import sys\nsys.exit(0)", "SystemExit: 0"),
    "raises-what-is-no-exception": Hostile("class Odd(BaseException): pass\nraise Odd('no')", "Odd: no"),
}
"""What costs the plugin: it does not load."""

ENDING: Mapping[str, Hostile] = {
    "ends-the-process-with-status-0": Hostile("import os\nos._exit(0)", "ended the process of the command"),
    "ends-the-process-by-native-code": Hostile(
        "import ctypes\nctypes.CDLL(None)._exit(0)", "ended the process of the command in import (status 0)"
    ),
    "crashes": Hostile("import ctypes\nctypes.string_at(0)", "ended the process of the command in import (SIGSEGV)"),
    "aborts": Hostile("import os\nos.abort()", "ended the process of the command in import (SIGABRT)"),
    "closes-all-files": Hostile("import os\nos.closerange(3, 4096)", "closed files that are not its own in import"),
}
"""What ends the command's process: the command starts again without the plugin."""

LINGERING: Mapping[str, Hostile] = {
    "starts-a-thread-that-never-ends": Hostile(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(3600,), name='endless').start()",
        "started thread 'endless' in import; nobody waits for its end",
    ),
    "starts-a-process-that-never-ends": Hostile(
        "import multiprocessing as m, time\nm.get_context('fork').Process(target=time.sleep, args=(60,)).start()", ""
    ),
    "forks-and-comes-back": Hostile("import os\nos.fork()", "forked this process in import, and the copy came back"),
    "prints": Hostile("print('hello')", "hello"),
}
"""What outlives its call."""

AT_THE_END: Mapping[str, Hostile] = {
    "ends-the-process-when-python-ends": Hostile("import atexit, os\natexit.register(os._exit, 9)", ""),
}
"""What runs when the command has finished."""

IN_A_PREDICATE = "ends-the-process-in-a-predicate"

KINDS: Mapping[str, Hostile] = {**RESTORED, **REFUSED, **ENDING, **LINGERING, **AT_THE_END}

PLUGIN = """
from collage_core.contract import Unsupported
from collage_core.hookspecs import hookimpl

class Plugin:
    @hookimpl
    def collage_check_host(self, host):
        return Unsupported("it wants no machine")

plugin = Plugin()
"""

WITH_A_TARGET = """
import os
from collage_core.contract import Target
from collage_core.hookspecs import hookimpl

class Plugin:
    @hookimpl
    def collage_targets(self, host):
        return [Target(toolchain="ends-the-process-in-a-predicate", fingerprint="hostile 1")]

    @hookimpl
    def collage_register_predicates(self, table, target):
        table.predicate("*", lambda node: os._exit(0))

plugin = Plugin()
"""


def install(folder: Path, *kinds: str) -> None:
    """Make a folder that Python takes for one with an installed distribution, which brings plugins of some kinds."""
    entries = {kind: f"hostile_{kind.replace('-', '_')}:plugin" for kind in kinds}
    for kind, reference in entries.items():
        text = WITH_A_TARGET if kind == IN_A_PREDICATE else f"{KINDS[kind].code}\n{PLUGIN}"
        (folder / f"{reference.partition(':')[0]}.py").write_text(text, encoding="utf-8")
    metadata(folder, "hostile", "1.0", {ENTRY_POINT_GROUP: entries})
