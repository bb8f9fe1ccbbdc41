"""Execution plans of graphs, each built once for a device: they are kept in the toolchain's blob cache.

A graph is part of many candidates: of its group alone, and of every region around it. Building one of its plans takes
0.4 to 3 s on an H200 (cuDNN 9.19, a DCGAN's convolutions in float16), most of what a candidate takes; asking the
heuristics takes 0.2 s.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator

from collage_core.contract import BlobCache, Device
from collage_cudnn.errors import CudnnError, NotSupportedError
from collage_cudnn.graph import Graph
from collage_cudnn.library import Found, Library, Offer


class KeptPlans:
    """Gives plans of a graph from the cache, or has the library build them and keeps them there.

    What could not be built is not kept: NVRTC, memory or a driver may have been missing.

    Args:
        library: The cuDNN library.
        handle: Returns its handle on the device; called when something has to be built.
        device: The device.
        blobs: The cache.
        graph: Graph that the plans compute.
        exact: Whether float32 products do without tensor cores.
    """

    def __init__(
        self,
        library: Library,
        handle: Callable[[], int],
        device: Device,
        blobs: BlobCache,
        graph: Graph,
        *,
        exact: bool,
    ) -> None:
        self._library, self._handle, self._blobs = library, handle, blobs
        self._graph, self._exact = graph, exact
        self._offer: Offer | None = None
        facts = [graph.to_json(), exact, device.model, device.compute_capability, library.version()]
        self._key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def plans(self, *, workspace_limit_bytes: int, only: str | int | None = None) -> Iterator[Found]:
        """Yield plans of the library's heuristics, best guess first, each built on demand.

        Args:
            workspace_limit_bytes: Limit of scratch memory.
            only: Name or position of the only requested plan; no other is built.

        Raises:
            CudnnError: If none of them can be built; a `NotSupportedError` unless one failed for another reason.
            DeviceError: As soon as the device fails.
        """
        problem: CudnnError = NotSupportedError("the library's heuristics know no plan")
        found_none = True
        names = self._names()
        for position, name in enumerate(names):
            # the fallback's engines are what they were if the first heuristic knew them already, as of norms and
            # depthwise convolutions on compute capability 9.0 (seen with 9.20)
            if name in names[:position] or only not in (None, position, name):
                continue
            try:
                found = self._plan(position, name)
            except CudnnError as error:  # another engine may do
                if isinstance(problem, NotSupportedError):
                    problem = error
                continue
            if found.workspace_bytes <= workspace_limit_bytes:
                found_none = False
                yield found
            elif isinstance(problem, NotSupportedError):
                problem = NotSupportedError(
                    f"{name} needs {found.workspace_bytes} bytes of workspace; {workspace_limit_bytes} are allowed"
                )
        if found_none:
            raise problem

    def _names(self) -> tuple[str, ...]:
        """Return the names of the plans that the heuristics know, best guess first."""
        known = self._blobs.get(f"{self._key}/names")
        if known is not None:
            return tuple(json.loads(known))
        names = self._asked().names
        self._blobs.put(f"{self._key}/names", json.dumps(names).encode())
        return names

    def _plan(self, position: int, name: str) -> Found:
        known = self._blobs.get(f"{self._key}/{name}")
        if known is not None:
            head, _, data = known.partition(b"\n")
            return Found(name, position, json.loads(head)["workspace_bytes"], data)
        found = self._asked().build(position)
        head = json.dumps({"workspace_bytes": found.workspace_bytes}).encode()
        self._blobs.put(f"{self._key}/{name}", head + b"\n" + found.data)
        return found

    def _asked(self) -> Offer:
        if self._offer is None:
            self._offer = self._library.offer(self._graph, self._handle(), exact=self._exact)
        return self._offer
