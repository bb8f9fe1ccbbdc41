"""What importing Collage costs, seen from a fresh interpreter."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

import collage

HEAVY = ("onnx", "onnx_ir", "onnxruntime", "openvino", "torch", "numpy", "onnxscript", "rich", "pluggy", "cattrs")


def loaded_after(code: str) -> set[str]:
    """Top-level modules loaded once `code` ran."""
    script = f"{code}\nimport sys\nprint('\\n' + ' '.join(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert loaded_after("import collage").isdisjoint({*HEAVY, "click"})


@pytest.mark.parametrize("arguments", [["--help"], ["optimize", "--help"], ["db", "--help"]])
def test_showing_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = f"from collage.cli import main\ntry: main({arguments!r})\nexcept SystemExit as end: assert end.code == 0"

    assert loaded_after(code).isdisjoint(HEAVY)


def test_the_version_is_found_when_asked_for() -> None:
    assert collage.__version__[0].isdigit()


def test_every_public_name_can_be_listed_and_unknown_ones_are_refused() -> None:
    assert set(collage.__all__) <= set(dir(collage))
    assert collage.CollageError.__module__ == "collage_core.errors"
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = collage.no_such_name


def test_no_name_that_is_imported_when_first_used_is_a_module_too() -> None:
    """Importing such a module would put itself in the name's place."""
    for name in collage.__all__:
        assert importlib.util.find_spec(f"collage.{name}") is None
