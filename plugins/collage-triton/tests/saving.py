"""For tests: kernels built, loaded and run on a device, one of CUDA or an emulated one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir

from collage_core.contract import (
    Artifact,
    BoundCall,
    Buffer,
    BuildContext,
    Host,
    KernelFunction,
    Requirement,
    RunContext,
    Target,
    TensorSpec,
    Unsupported,
    Weights,
)
from collage_core.device import DeviceStream, open_device, placed_on
from collage_core.errors import DeviceError
from collage_core.testing import FakeDevice
from collage_core.testing.contexts import MemoryBlobs
from collage_triton.emulation import HOST, emulated
from collage_triton.interpreter import Interpreter
from collage_triton.plugin import TritonPlugin

Array = np.ndarray[Any, Any]

DEVICE = "cuda:0"
_SPOILT = 77
_DEADLINE_S = 600.0
_MOST_VARIANTS = 16


@dataclasses.dataclass(frozen=True, slots=True)
class Machine:
    """A device kernels are tried on.

    Attributes:
        plugin: Builds and loads them.
        host: The machine they are built for.
        device: Where they run.
        is_real: Whether it is a GPU.
    """

    plugin: TritonPlugin
    host: Host
    device: DeviceStream
    is_real: bool

    @classmethod
    def real(cls) -> Machine | Unsupported:
        """This machine's first GPU, or why nothing can be tried on it; Triton need not be there if nothing is built."""
        host = Host.this()
        if host.device(DEVICE) is None:
            return Unsupported("this machine has no NVIDIA GPU")
        try:
            return cls(TritonPlugin(), host, open_device(DEVICE), True)
        except DeviceError as error:
            return Unsupported(str(error))

    @classmethod
    def emulated(cls, interpreter: Interpreter) -> Machine:
        """A GPU that is not there, whose kernels are interpreted."""
        device = FakeDevice(DEVICE)
        return cls(emulated(device, interpreter), HOST, device.open(DEVICE), False)

    def target(self, **options: str) -> Target:
        """The toolchain's target with these options, such as `precision="tf32"`.

        Raises:
            LookupError: If this machine has none; says why.
        """
        answer = self.plugin.collage_targets(self.host)
        if isinstance(answer, Unsupported):
            raise LookupError(answer.reason)
        wanted = tuple(sorted(options.items()))
        for target in answer:
            if target.device == DEVICE and target.options == wanted:
                return target
        raise LookupError(f"no target has {wanted}: {', '.join(target.name for target in answer)}")

    def variants(self, function: KernelFunction, folder: Path, **options: str) -> list[Artifact]:
        """Every variant of a kernel.

        Args:
            function: What it computes.
            folder: For the compiler's files.
            **options: The target's.

        Raises:
            AssertionError: If it is refused.
        """
        build = BuildContext(
            threads=1,
            effort=2,
            deadline_s=_DEADLINE_S,
            workspace_limit_bytes=0,
            seed=0,
            blobs=MemoryBlobs(),
            scratch=folder,
            max_variants=_MOST_VARIANTS,
            host=self.host,
            launch="graph",
        )
        answer = self.plugin.collage_lower(self.target(**options), function, build)
        assert isinstance(answer, Iterator), answer
        return list(answer)

    def bound(
        self,
        artifact: Artifact,
        inputs: Sequence[Array],
        outputs: Sequence[TensorSpec],
        weights: Mapping[str, Array],
        skip: int = 0,
    ) -> Bound:
        """A kernel loaded and bound to places of its own, whose outputs hold what nobody should find.

        Args:
            artifact: The kernel.
            inputs: What it reads, in its order.
            outputs: What it writes.
            weights: Its constants by content hash.
            skip: Elements by which its places start later than the device's memory is aligned.

        Raises:
            AssertionError: If it is refused.
        """
        device = self.device
        held = Weights(weights)
        placed = {key: placed_on(device, key, held[key]) for key in artifact.constants.values()}
        run = RunContext(threads=1, device=DEVICE, stream=device.handle, capture=True, placed=placed)
        kernel = self.plugin.collage_load(artifact, run)
        assert not isinstance(kernel, Unsupported), kernel.reason
        read = [self._placed(array, skip) for array in inputs]
        spoilt = [np.full(spec.static_shape, _SPOILT).astype(spec.numpy_dtype) for spec in outputs]
        written = [self._placed(array, skip) for array in spoilt]
        call = kernel.bind(read, written, None)
        device.synchronise()
        return Bound(device, call, tuple(written), (read, placed))

    def _placed(self, array: Array, skip: int) -> Buffer:
        source = np.ascontiguousarray(array).reshape(array.shape)
        dtype = onnx_ir.DataType.from_numpy(source.dtype)
        beyond = skip * source.itemsize
        memory = self.device.allocate(source.nbytes + beyond)
        spec = TensorSpec(name="value", dtype=dtype, shape=source.shape)
        self.device.write(memory.pointer + beyond, source)
        self.device.synchronise()
        return Buffer.at(spec, device=DEVICE, pointer=memory.pointer + beyond, keeps=memory)


@dataclasses.dataclass(frozen=True, slots=True)
class Bound:
    """A bound call.

    Attributes:
        device: Where it runs.
        call: Enqueues it.
        outputs: Where it writes.
        keeps: What has to stay as long as it may run.
    """

    device: DeviceStream
    call: BoundCall
    outputs: tuple[Buffer, ...]
    keeps: object

    def run(self) -> list[Array]:
        """Calls it, waits, and gives what it wrote."""
        self.call()
        return self.read()

    def read(self) -> list[Array]:
        """What its outputs hold once the device has come so far."""
        arrays = [np.empty(buffer.spec.static_shape, buffer.spec.numpy_dtype) for buffer in self.outputs]
        for array, buffer in zip(arrays, self.outputs, strict=True):
            self.device.read(array, buffer.pointer)
        self.device.synchronise()
        return arrays

    def spoil(self) -> None:
        """Has its outputs hold what nobody should find."""
        for buffer in self.outputs:
            array = np.full(buffer.spec.static_shape, _SPOILT).astype(buffer.spec.numpy_dtype)
            self.device.write(buffer.pointer, array)
        self.device.synchronise()


def weights_of(function: KernelFunction) -> Mapping[str, Array]:
    """The constants of a function, by content hash."""
    return {content: function.constant(name) for name, content in function.constants.items()}


def save(artifact: Artifact, folder: Path) -> None:
    """Writes an artifact as files: JSON, and the bytes it holds."""
    fields = {field.name: getattr(artifact, field.name) for field in dataclasses.fields(artifact)}
    for name, data in fields.pop("files").items():
        (folder / name).write_bytes(data)
    fields["requires"] = [dataclasses.asdict(each) for each in artifact.requires]
    fields |= {name: dict(fields[name]) for name in ("metadata", "constants")}
    (folder / "artifact.json").write_text(json.dumps(fields | {"names": list(artifact.files)}))


def saved(folder: Path) -> Artifact:
    """Reads what `save` wrote."""
    fields = json.loads((folder / "artifact.json").read_text())
    files = {name: (folder / name).read_bytes() for name in fields.pop("names")}
    requires = tuple(Requirement(**each) for each in fields.pop("requires"))
    return Artifact(files=files, requires=requires, **fields)
