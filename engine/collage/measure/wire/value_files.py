"""Write a model's input and output values as a JSON document beside a blob store, for other processes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.codec import make_converter
from collage.measure.wire.values import decode_value, encode_value
from collage.measure.wire.wire_values import WireValue


def write_values(path: Path, values: Mapping[str, Any], store: BlobStore) -> None:
    """Write values by name; the elements of tensors go into the store."""
    converter = make_converter()
    document = {
        "store": str(store.directory),
        "values": {name: converter.unstructure(encode_value(value, store)) for name, value in values.items()},
    }
    path.write_text(json.dumps(document), encoding="utf-8")


def read_values(path: Path) -> dict[str, Any]:
    """Read the values that `write_values` wrote; tensors are read-only views of mapped files.

    Raises:
        WireError: If a tensor's bytes are missing.
    """
    document = json.loads(path.read_text(encoding="utf-8"))
    store, converter = BlobStore(Path(document["store"])), make_converter()
    return {
        name: decode_value(converter.structure(value, WireValue), store) for name, value in document["values"].items()
    }
