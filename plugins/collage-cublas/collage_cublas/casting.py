"""The kernel that rounds float32 numbers to 16 bits, as PTX.

PTX rather than a cubin, because the driver compiles it for the installed device when it loads it; rather
than a library's kernel, because no library that is present on every machine that runs a package rounds
without a compiler (CuPy's kernel needs NVRTC). The instruction is `cvt.rn`, round to nearest, ties to even
(PTX ISA, "cvt"; from `sm_53` for float16, `sm_80` for bfloat16).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

THREADS = 256
"""Threads per block; each rounds one number."""

_PTX = """\
.version 7.0
.target {target}
.address_size 64

.visible .entry {name}(.param .u64 source, .param .u64 result, .param .u64 count)
{{
    .reg .pred  %beyond;
    .reg .b16   %low;
    .reg .f32   %number;
    .reg .b32   %block, %size, %thread;
    .reg .b64   %from, %to, %count, %at, %offset;

    ld.param.u64 %from, [source];
    ld.param.u64 %to, [result];
    ld.param.u64 %count, [count];
    cvta.to.global.u64 %from, %from;
    cvta.to.global.u64 %to, %to;
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %thread, %tid.x;
    cvt.u64.u32 %at, %thread;
    mad.wide.u32 %at, %block, %size, %at;
    setp.ge.u64 %beyond, %at, %count;
    @%beyond bra done;
    shl.b64 %offset, %at, 2;
    add.u64 %offset, %from, %offset;
    ld.global.f32 %number, [%offset];
    cvt.rn.{type}.f32 %low, %number;
    shl.b64 %offset, %at, 1;
    add.u64 %offset, %to, %offset;
    st.global.b16 [%offset], %low;
done:
    ret;
}}
"""


def _entry(name: str, kind: str, target: str) -> tuple[str, bytes]:
    return name, _PTX.format(name=name, type=kind, target=target).encode() + b"\0"  # the driver takes a C string


KERNELS: Mapping[str, tuple[str, bytes]] = MappingProxyType(
    {
        "R_16F": _entry("round_to_float16", "f16", "sm_70"),
        "R_16BF": _entry("round_to_bfloat16", "bf16", "sm_80"),
    }
)
"""Name and PTX of the kernel by type, named as in `cudaDataType`."""
