"""An object that is being written, as a file for pyarrow."""

from __future__ import annotations

import io

from hummock.object_store.base import ObjectWriter


class ObjectUpload(io.RawIOBase):
    """Writes to `writer`, which is closed by whoever made it."""

    def __init__(self, writer: ObjectWriter) -> None:
        self._writer, self._size = writer, 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, data: object) -> int:
        view = memoryview(data)  # type: ignore[arg-type]
        self._writer.write(view)
        self._size += view.nbytes
        return view.nbytes
