"""The `.collage` file: everything a mixed executable needs, in one archive."""

from collage.runtime.package.manifest import FORMAT, MOST_THREADS, SCHEMA_VERSION, Manifest
from collage.runtime.package.plan import PackagedPlan
from collage.runtime.package.reader import Package, load_package
from collage.runtime.package.trust import TrustedPackage, TrustedPackages
from collage.runtime.package.writer import join_packages, save_package

__all__ = [
    "FORMAT",
    "MOST_THREADS",
    "SCHEMA_VERSION",
    "Manifest",
    "Package",
    "PackagedPlan",
    "TrustedPackage",
    "TrustedPackages",
    "join_packages",
    "load_package",
    "save_package",
]
