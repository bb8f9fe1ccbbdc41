"""Bytes of large blobs in an object store, by fsspec (`pip install 'collage-engine[objects]'`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from collage.store.blobs.blob_files import LEAST_BYTES
from collage.store.errors import DatabaseDiskError, DatabaseNameError


class BlobBucket:
    """See `BlobFiles`.

    fsspec knows object stores by URL and has a package for each: s3fs, gcsfs, adlfs, ... An object is there as a whole
    or not at all. Credentials are those that these packages find in the environment.

    Args:
        url: Such as `s3://bucket/folder`.
        least_bytes: See `BlobFiles`.

    Raises:
        DatabaseNameError: If fsspec or the package for this kind of URL is not installed.
    """

    def __init__(self, url: str, least_bytes: int = LEAST_BYTES) -> None:
        try:
            import fsspec

            self._files, self._root = fsspec.url_to_fs(url)
        except (ImportError, ValueError) as error:
            advice = "pip install 'collage-engine[objects]', and fsspec's package for this kind of URL"
            raise DatabaseNameError(url, f"blobs cannot be kept there: {error}; {advice}") from None
        self._url = url
        self._least_bytes = least_bytes

    @property
    def least_bytes(self) -> int:
        """See `BlobFiles`."""
        return self._least_bytes

    def put(self, checksum: str, data: bytes) -> None:
        """See `BlobFiles`."""
        try:
            if not self._files.exists(self._path(checksum)):
                self._files.pipe_file(self._path(checksum), data)
        except Exception as error:  # each store's package has errors of its own
            raise DatabaseDiskError(self._url, f"a blob cannot be written: {error}") from None

    def get(self, checksum: str) -> bytes | None:
        """See `BlobFiles`."""
        try:
            found: Any = self._files.cat_file(self._path(checksum))
        except Exception:
            return None
        return bytes(found)

    def remove(self, checksums: Iterable[str]) -> None:
        """See `BlobFiles`."""
        for checksum in checksums:
            try:
                self._files.rm_file(self._path(checksum))
            except Exception:
                continue

    def _path(self, checksum: str) -> str:
        return f"{self._root}/{checksum[:2]}/{checksum}"
