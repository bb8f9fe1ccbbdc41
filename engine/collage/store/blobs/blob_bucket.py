"""Bytes of large blobs in an object store, by fsspec (`pip install 'collage-engine[objects]'`)."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from collage.store.blobs.blob_files import LEAST_BYTES, warn_unkept
from collage.store.errors import DatabaseNameError


class BlobBucket:
    """See `BlobFiles`.

    fsspec knows object stores by URL and has a package for each: s3fs, gcsfs, adlfs, ... An object is there as a whole
    or not at all. Credentials are those that these packages find in the environment.

    Args:
        url: Such as `s3://bucket/folder`.
        least_bytes: See `BlobFiles`.

    Raises:
        DatabaseNameError: By its methods, if fsspec or the package for this kind of URL is not installed.
    """

    def __init__(self, url: str, least_bytes: int = LEAST_BYTES) -> None:
        self._url = url
        self._least_bytes = least_bytes

    @functools.cached_property
    def _opened(self) -> tuple[Any, str]:
        """Fsspec's file system, and the folder in it; opened when it is first needed."""
        try:
            import fsspec

            files, root = fsspec.url_to_fs(self._url)
        except (ImportError, ValueError) as error:
            advice = "pip install 'collage-engine[objects]', and fsspec's package for this kind of URL"
            raise DatabaseNameError(self._shown, f"blobs cannot be kept there: {error}; {advice}") from None
        return files, str(root)

    @property
    def _shown(self) -> str:
        """The URL without user, password and options."""
        scheme, _, rest = self._url.partition("://")
        place, slash, path = rest.partition("/")
        return f"{scheme}://{place.rpartition('@')[2]}{slash}{path.partition('?')[0]}"

    @property
    def least_bytes(self) -> int:
        """See `BlobFiles`."""
        return self._least_bytes

    def put(self, checksum: str, data: bytes) -> bool:
        """See `BlobFiles`."""
        files, root = self._opened
        try:
            if not files.exists(_path(root, checksum)):
                files.pipe_file(_path(root, checksum), data)
        except Exception as error:  # each store's package has errors of its own
            warn_unkept(self._shown, error)
            return False
        return True

    def get(self, checksum: str) -> bytes | None:
        """See `BlobFiles`."""
        files, root = self._opened
        try:
            found: Any = files.cat_file(_path(root, checksum))
        except Exception:
            return None
        return bytes(found)

    def remove(self, checksums: Iterable[str]) -> None:
        """See `BlobFiles`."""
        for checksum in checksums:
            files, root = self._opened
            try:
                files.rm_file(_path(root, checksum))
            except Exception:
                continue


def _path(root: str, checksum: str) -> str:
    return f"{root}/{checksum[:2]}/{checksum}"
