"""Every error Collage raises on purpose.

An error says what failed, on what, why, and what to do; its facts are attributes too. A *refusal* is not an
error: it is the value `collage_core.contract.Unsupported`.
"""

from collage_core.errors.base import CollageError, UsageError
from collage_core.errors.database import (
    DatabaseDamagedError,
    DatabaseDiskError,
    DatabaseError,
    DatabaseForeignError,
    DatabaseLockedError,
    DatabaseNameError,
    DatabaseReadOnlyError,
    DatabaseVersionError,
)
from collage_core.errors.devices import (
    DeviceCapabilityError,
    DeviceCaptureError,
    DeviceError,
    DeviceLostError,
    DeviceMemoryError,
    DeviceUnavailableError,
    DeviceUseError,
    DriverTooOldError,
    MemoryNeededError,
)
from collage_core.errors.models import (
    EvaluationError,
    ExternalDataError,
    InputShapeError,
    InvalidModelError,
    ModelError,
    ModelFileError,
    NewerModelError,
)
from collage_core.errors.packages import (
    FeedError,
    NotAPackageError,
    PackageDamagedError,
    PackageError,
    PackageVersionError,
    RecordError,
)
from collage_core.errors.plans import (
    NoCoverError,
    PartitioningError,
    PinError,
    PlanBuildError,
    PlanFileError,
    SearchError,
    SolverMissingError,
    VerificationError,
)
from collage_core.errors.plugins import (
    KernelError,
    KernelLoadError,
    KernelRunError,
    LibraryClashError,
    LoweredAgainWarning,
    LoweringError,
    PluginError,
)
from collage_core.errors.suggestions import did_you_mean
from collage_core.errors.workers import DeadlineExceededError, WireError, WorkerError

__all__ = [
    "CollageError",
    "DatabaseDamagedError",
    "DatabaseDiskError",
    "DatabaseError",
    "DatabaseForeignError",
    "DatabaseLockedError",
    "DatabaseNameError",
    "DatabaseReadOnlyError",
    "DatabaseVersionError",
    "DeadlineExceededError",
    "DeviceCapabilityError",
    "DeviceCaptureError",
    "DeviceError",
    "DeviceLostError",
    "DeviceMemoryError",
    "DeviceUnavailableError",
    "DeviceUseError",
    "DriverTooOldError",
    "EvaluationError",
    "ExternalDataError",
    "FeedError",
    "InputShapeError",
    "InvalidModelError",
    "KernelError",
    "KernelLoadError",
    "KernelRunError",
    "LibraryClashError",
    "LoweredAgainWarning",
    "LoweringError",
    "MemoryNeededError",
    "ModelError",
    "ModelFileError",
    "NewerModelError",
    "NoCoverError",
    "NotAPackageError",
    "PackageDamagedError",
    "PackageError",
    "PackageVersionError",
    "PartitioningError",
    "PinError",
    "PlanBuildError",
    "PlanFileError",
    "PluginError",
    "RecordError",
    "SearchError",
    "SolverMissingError",
    "UsageError",
    "VerificationError",
    "WireError",
    "WorkerError",
    "did_you_mean",
]
