"""The frontend is imported without PyTorch, where that is installed and nobody has imported it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from collage_cudnn import loading

FILES = {
    "cudnn/__init__.py": "from . import wrapper\n",
    "cudnn/wrapper.py": "try:\n    import torch\nexcept ImportError:\n    torch = None\n",
}
NAMES = ("cudnn", "cudnn.wrapper", "torch")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a frontend that imports PyTorch as NVIDIA's does; these modules are as if never imported."""
    for name in NAMES:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))  # so that all is as before in the end
        monkeypatch.delitem(sys.modules, name)
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_pytorch_is_imported_when_something_of_it_is_asked_for(folder: Path) -> None:
    (folder / "torch.py").write_text("Tensor = list\n", encoding="utf-8")

    frontend = loading._imported()

    assert "torch" not in sys.modules
    assert frontend.wrapper.torch.Tensor is list
    assert "torch" in sys.modules


def test_pytorch_that_is_imported_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = ModuleType("torch")
    monkeypatch.setitem(sys.modules, "torch", there)

    assert loading._imported().wrapper.torch is there


def test_without_pytorch_the_frontend_has_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    assert loading._imported().wrapper.torch is None


def test_other_threads_import_pytorch_meanwhile(folder: Path) -> None:
    """The frontend, while it is imported, has another thread import PyTorch."""
    (folder / "torch.py").write_text("Tensor = list\n", encoding="utf-8")
    script = "import importlib, threading\nseen = []\n"
    script += "thread = threading.Thread(target=lambda: seen.append(importlib.import_module('torch').Tensor))\n"
    script += "thread.start()\nthread.join()\nfrom . import wrapper\n"
    (folder / "cudnn" / "__init__.py").write_text(script, encoding="utf-8")

    frontend = loading._imported()

    assert frontend.seen == [list]
