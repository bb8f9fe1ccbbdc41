"""Processes of Collage's own start without what is slow to import and hardly ever used, and have it all the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx_ir
import pytest

from collage.own_process import limit_spinning
from collage_testing import single_matmul


def said_by(folder: Path, script: str, *arguments: str) -> list[str]:
    """Lines that a module prints which is run as core runs its own."""
    (folder / "a_module.py").write_text(script, encoding="utf-8")
    command = [sys.executable, "-m", "collage.own_process", "a_module", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("module", "evaluates"),
    [
        ("measure.worker.worker_main", False),
        ("measure.contenders.contender_main", False),
        ("measure.models.model_main", True),
    ],
)
def test_what_core_runs_so_imports_no_sympy_no_rule_and_the_evaluator_where_it_evaluates(
    module: str, evaluates: bool, tmp_path: Path
) -> None:
    script = f"""
import sys, collage.{module}
names = ("onnx_ir", "sympy.core", "collage_core.fusion.combine", "onnx.reference")
print(*(name in sys.modules for name in names))
"""

    assert said_by(tmp_path, script) == [f"True False False {evaluates}"]


def test_a_dimension_is_computed_with_all_the_same(tmp_path: Path) -> None:
    script = """
import onnx_ir, sys
print('sympy.core' in sys.modules)
print(onnx_ir.SymbolicDim("2*N + M") + 1)
import sympy
print(sympy.simplify("x + x"), 'sympy.core' in sys.modules)
"""

    assert said_by(tmp_path, script) == ["False", "M + 2*N + 1", "2*x True"]


def test_a_module_sees_what_it_would_see_if_it_were_run_itself(tmp_path: Path) -> None:
    script = "import sys\nprint(__name__, sys.argv[0] == __file__, sys.argv[1:])"

    assert said_by(tmp_path, script, "--one", "2") == ["__main__ True ['--one', '2']"]


def test_the_command_imports_no_sympy_for_what_needs_none(tmp_path: Path) -> None:
    script = """
import sys
del sys.meta_path[0]  # what the command does itself is what is seen
from collage.cli import main
try:
    main(["inspect", sys.argv[1], "--toolchains", "reference"])
finally:
    print("onnx_ir" in sys.modules, "sympy.core" in sys.modules)
"""

    onnx_ir.save(single_matmul(2, 2, 2), tmp_path / "model.onnx")

    assert said_by(tmp_path, script, str(tmp_path / "model.onnx"))[-1] == "True False"


@pytest.mark.parametrize(("chosen", "left"), [({}, "18"), ({"OPENBLAS_THREAD_TIMEOUT": "26"}, "26")])
def test_threads_of_numpy_do_not_spin_for_long_unless_the_user_says_so(chosen: dict[str, str], left: str) -> None:
    limit_spinning(chosen)

    assert chosen == {"OPENBLAS_THREAD_TIMEOUT": left}
