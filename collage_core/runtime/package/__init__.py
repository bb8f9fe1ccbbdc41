"""The `.collage` file: everything a mixed executable needs, in one archive."""

from collage_core.runtime.package.manifest import FORMAT, MOST_THREADS, SCHEMA_VERSION, Manifest
from collage_core.runtime.package.reader import Package, export_model, load_package
from collage_core.runtime.package.writer import save_package

__all__ = [
    "FORMAT",
    "MOST_THREADS",
    "SCHEMA_VERSION",
    "Manifest",
    "Package",
    "export_model",
    "load_package",
    "save_package",
]
