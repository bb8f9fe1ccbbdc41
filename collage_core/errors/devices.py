"""Memory, and devices beside the CPU."""

from __future__ import annotations

from collage_core.errors.base import CollageError


class MemoryNeededError(CollageError):
    """A model needs more memory than there is.

    Attributes:
        nbytes: What it needs in one piece.
        reason: What there is.
    """

    def __init__(self, nbytes: int, reason: str) -> None:
        self.nbytes = nbytes
        self.reason = reason
        super().__init__(
            f"the values of this model need {nbytes / 2**30:.1f} GiB of memory in one piece: {reason}. "
            "Give it smaller inputs, or a larger machine."
        )


class DeviceError(CollageError):
    """A device beside the CPU cannot do what is asked of it.

    Attributes:
        device: Its name, `"cuda:0"`.
        reason: What happened.
        advice: What to do.
    """

    advice = "A plan for the CPU does without it: leave out the device's toolchains with `--exclude`."

    def __init__(self, device: str, reason: str, advice: str = "") -> None:
        self.device = device
        self.reason = reason
        self.advice = advice or type(self).advice
        super().__init__(f"device {device}: {reason.rstrip('.')}. {self.advice.rstrip('.')}.")


class DeviceUnavailableError(DeviceError):
    """There is no such device here, or nothing installed that could use it."""


class DeviceMemoryError(DeviceError):
    """The device has not as much free memory as was asked for."""

    advice = "Give the model smaller inputs, end what else uses the device, or use a device with more memory"


class DeviceLostError(DeviceError):
    """The device no longer answers: it was reset, fell off the bus, or a kernel broke its context."""

    advice = (
        "Nothing more can be done on it in this process: start it again; if that fails too, look at the driver's log"
    )


class DeviceCapabilityError(DeviceError):
    """Code for this device was not made, or it cannot do what the code asks."""

    advice = "Optimize the model again on a machine with this device, or use one that the package was made for"


class DriverTooOldError(DeviceError):
    """The driver is older than the library that speaks to it."""

    advice = "Update the driver, or install the library's build for an older one"


class DeviceCaptureError(DeviceError):
    """Calls could not be captured in a graph of the device."""

    advice = "They run one by one instead; `launch=eager` of the target asks for that from the start"


class DeviceUseError(DeviceError):
    """The device was used against its rules, which is a defect of a plugin or of Collage."""

    advice = "Report it, with the model, to whoever brings the kernel named"
