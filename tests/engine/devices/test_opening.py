from __future__ import annotations

import types
from typing import Any

from collage.devices.opening import Devices


def test_a_device_is_opened_once() -> None:
    opened: list[str] = []

    def opening(name: str) -> Any:
        opened.append(name)
        return types.SimpleNamespace(name=name, dlpack_device=(2, 0))

    devices = Devices(opening)

    assert devices["cuda:0"] is devices["cuda:0"]
    assert opened == ["cuda:0"]
    assert devices.named((2, 0)) is devices["cuda:0"]
    assert devices.named((2, 1)) is None
