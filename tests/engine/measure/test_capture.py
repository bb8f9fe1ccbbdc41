from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx_ir

from collage.devices.this_host import this_host
from collage.measure.driver.capture import Capture
from collage.measure.driver.client import Worker
from collage.measure.driver.fallback import worker_fallback
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.function_codec import decode_function
from collage.measure.wire.messages import AskEvaluate
from collage_core.contract import Target
from collage_core.ir.graph.dataflow import DataflowGraph


class FakeWorker:
    """Notes what it is asked to evaluate."""

    def __init__(self) -> None:
        self.asked: list[AskEvaluate] = []

    def evaluate(self, ask: AskEvaluate) -> list[Any]:
        self.asked.append(ask)
        return [np.array([True, False])]


def test_a_worker_that_stands_in_is_given_constant_strings_as_constants(tmp_path: Path) -> None:
    model = onnx_ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["" : 21, "vendor" : 1]>
        g (string[2] words) => (bool[2] y) <string[1] wanted = {"a word"}> { y = vendor.Same(words, wanted) }"""
    )
    graph, store, worker = DataflowGraph(model), BlobStore(tmp_path), FakeWorker()
    fallback = worker_fallback(
        cast(Worker, worker),
        graph,
        this_host(),
        store,
        threads=1,
        deadline_s=1.0,
        target=Target(toolchain="t", fingerprint="t 1"),
    )

    capture = Capture.take(graph.model, {"words": np.array(["a word", "another"])}, store, fallback=fallback)

    function = decode_function(worker.asked[0].function, store)
    assert capture.value("y").tolist() == [True, False]
    assert [spec.name for spec in function.inputs] == ["words"]
    assert function.constant("wanted").tolist() == [b"a word"]
