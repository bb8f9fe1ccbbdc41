"""The layer over the library: its numbers against NVIDIA's header, its descriptors and errors against the library."""

from __future__ import annotations

import enum
import re
from pathlib import Path

import pytest

from collage_cublas import library as layer
from collage_cublas.library import Compute, CublasError, CublasLt, DataType, Desc, Layout, Preference


@pytest.fixture(scope="module")
def constants(wheel: Path) -> dict[str, int]:
    """What the headers beside the library define, by name."""
    include = wheel.parent.parent / "include"
    text = "".join((include / name).read_text(encoding="utf-8") for name in ("cublasLt.h", "cublas_api.h"))
    return {name: int(value) for name, value in re.findall(r"\b(CUBLAS\w+) = (\d+)\b", text)}


@pytest.mark.parametrize(
    ("prefix", "names"),
    [
        ("CUBLASLT_MATMUL_DESC_", Desc),
        ("CUBLASLT_MATRIX_LAYOUT_", Layout),
        ("CUBLASLT_MATMUL_PREF_", Preference),
        ("CUBLASLT_ALGO_CONFIG_", layer.Config),
        ("CUBLASLT_REDUCTION_SCHEME_", layer.Reduction),
        ("CUBLASLT_EPILOGUE_", layer.Epilogue),
    ],
)
def test_numbers_are_those_of_the_header(prefix: str, names: type[enum.Enum], constants: dict[str, int]) -> None:
    assert {each.name: each.value for each in names.__members__.values()} == {
        name: constants[prefix + name] for name in names.__members__
    }


def test_kinds_of_computation_are_those_of_the_header(constants: dict[str, int]) -> None:
    assert constants["CUBLAS_COMPUTE_32F"] == Compute.F32
    assert constants["CUBLAS_COMPUTE_32F_FAST_TF32"] == Compute.TF32
    assert constants["CUBLAS_COMPUTE_32F_FAST_16F"] == Compute.FAST_16F
    assert constants["CUBLAS_COMPUTE_32F_FAST_16BF"] == Compute.FAST_16BF


def test_the_library_keeps_what_a_descriptor_is_told(library: CublasLt) -> None:
    desc = library.matmul_desc(Compute.TF32, DataType.R_32F)
    made = library.layout(DataType.R_16BF, 3, 5, 7)
    preference = library.preference()
    library.set(made, Layout.STRIDED_BATCH_OFFSET, 1 << 40)
    library.set(made, Layout.BATCH_COUNT, 12)
    library.set(desc, Desc.BIAS_POINTER, 0x7F0012345600)
    library.set(preference, Preference.MAX_WORKSPACE_BYTES, 1 << 33)

    assert library.get(desc, Desc.COMPUTE_TYPE) == Compute.TF32
    assert library.get(desc, Desc.SCALE_TYPE) == DataType.R_32F
    assert library.get(desc, Desc.BIAS_POINTER) == 0x7F0012345600
    assert [library.get(made, each) for each in Layout] == [DataType.R_16BF, 0, 3, 5, 7, 12, 1 << 40]
    assert library.get(preference, Preference.MAX_WORKSPACE_BYTES) == 1 << 33
    for each in (desc, made, preference):
        library.destroy(each)


def test_an_error_names_the_function_and_has_the_librarys_word(library: CublasLt) -> None:
    desc = library.matmul_desc(Compute.F32, DataType.R_32F)

    class Wrong(enum.Enum):
        NONE = 999

    with pytest.raises(CublasError, match=r"cublasLtMatmulDescSetAttribute: .*(value|parameter)"):
        library.set(desc, Wrong.NONE, 1)  # type: ignore[arg-type]  # no attribute of any descriptor


def test_its_version_is_that_of_its_header(library: CublasLt, wheel: Path) -> None:
    text = (wheel.parent.parent / "include" / "cublas_api.h").read_text(encoding="utf-8")
    major, minor, patch = (
        int(re.search(rf"#define CUBLAS_VER_{part} (\d+)", text)[1])  # type: ignore[index]
        for part in ("MAJOR", "MINOR", "PATCH")
    )

    assert library.version() == 10000 * major + 100 * minor + patch
