"""The few file operations that durability rests on. Tests replace this class by one that fails at any of them."""

import hashlib
import os
from pathlib import Path
from typing import IO


class Storage:
    """Operations on local or shared POSIX file systems. All raise OSError."""

    def create(self, path: Path) -> IO[bytes]:
        """Open a new file for appending; FileExistsError if it is there: two writers never share one."""
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644), "wb", buffering=0)

    def append(self, file: IO[bytes], data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]

    def sync(self, file: IO[bytes]) -> None:
        """Make what was appended durable. After a failure the file must not be used again: the kernel may have dropped
        the data and a second fdatasync would report success (PostgreSQL's fsync lesson, 2018)."""
        os.fdatasync(file.fileno())

    def sync_path(self, path: Path) -> None:
        """Make a closed file, or the names in a folder, durable."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def publish(self, temporary: Path, final: Path) -> None:
        """Give a finished file its final name, which must not exist: a hard link is atomic everywhere, NFS included."""
        self.sync_path(temporary)
        os.link(temporary, final)
        self.sync_path(final.parent)
        temporary.unlink()

    def replace(self, temporary: Path, final: Path) -> None:
        """Give a finished file its final name, whatever was there."""
        self.sync_path(temporary)
        temporary.replace(final)
        self.sync_path(final.parent)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)


def sha256_file(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
