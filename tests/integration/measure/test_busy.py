"""A worker that holds the interpreter's lock, so that no thread of its own can notice anything."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[3]

PLUGIN = """
import ctypes
from pathlib import Path
from collage_core.hookspecs import hookimpl

class Busy:
    @hookimpl
    def collage_targets(self, host):
        Path(__file__).with_suffix(".busy").touch()
        ctypes.PyDLL(None).sleep(600)  # unlike CDLL, without letting go of the interpreter's lock

plugin = Busy()
"""

DRIVER = """
import sys
from pathlib import Path
from collage.devices.this_host import this_host
from collage.measure.wire.blobs import BlobStore
from collage.measure.driver.client import PluginSource, Worker

folder = Path(sys.argv[1])
worker = Worker(PluginSource(toolchain="busy", plugin="busy_plugin:plugin", paths=(str(folder),)), BlobStore(folder))
worker.begin()
print(worker.pid, flush=True)
worker.targets(this_host(), 3600)
"""


@pytest.mark.guards("the driver is killed while a worker idles, or while a library in it holds the interpreter's lock")
def test_a_busy_worker_does_not_outlive_its_driver(tmp_path: Path) -> None:
    (tmp_path / "busy_plugin.py").write_text(PLUGIN, encoding="utf-8")
    environment = os.environ | {"TMPDIR": str(tmp_path)}  # a killed driver leaves its temporary folders
    command = [sys.executable, "-c", DRIVER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=environment) as driver:
        assert driver.stdout is not None
        orphan = psutil.Process(int(driver.stdout.readline()))
        while not (tmp_path / "busy_plugin.busy").exists():
            time.sleep(0.01)
        assert orphan.is_running()
        driver.kill()

    orphan.wait()
