"""Every error this package raises on purpose, and the exit code each one ends the command line with.

    BatchrunError
    ├── UsageError          64   the command line or a call is wrong
    ├── DataError           65   input, state or a model file cannot be used as it is
    │   └── ModelError           the model cannot be loaded
    ├── DeviceError         69   the device asked for is not there
    ├── OutputError         73   the output cannot be created
    ├── StorageError        74   reading or writing failed
    │   └── TierError            the disk tier of the KV cache cannot be written; results still can
    ├── Interrupted         75   stopped on request, its state saved; run again to go on
    ├── LockedError         75   another runner works on this output
    ├── JobFileError        78   the job file is wrong
    └── RowError                 one row cannot be answered; it becomes an error row and the job goes on

Two more exit codes are results, not errors: 0 (done) and 3 (done, with failed rows). Ctrl-C ends with 130.
"""

EXIT_DONE = 0
EXIT_FAILED_ROWS = 3
EXIT_INTERRUPTED = 75
EXIT_CTRL_C = 130


class BatchrunError(Exception):
    """Base of all errors raised on purpose; its text is meant for the person who started the job."""

    exit_code = 70


class UsageError(BatchrunError):
    exit_code = 64


class DataError(BatchrunError):
    exit_code = 65


class ModelError(DataError):
    pass


class DeviceError(BatchrunError):
    exit_code = 69


class OutputError(BatchrunError):
    exit_code = 73


class StorageError(BatchrunError):
    exit_code = 74


class TierError(StorageError):
    pass


class Interrupted(BatchrunError):  # noqa: N818  it is no fault
    """The run was asked to stop and has saved its state.

    exit_code is 130 after Ctrl-C and 75 after any other signal.
    """

    exit_code = EXIT_INTERRUPTED

    def __init__(self, message: str, exit_code: int = EXIT_INTERRUPTED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class LockedError(BatchrunError):
    exit_code = EXIT_INTERRUPTED


class JobFileError(BatchrunError):
    exit_code = 78


class RowError(BatchrunError):
    """One row cannot be answered. error_type is a stable name in lower snake case, written to the output."""

    def __init__(self, error_type: str, message: str) -> None:
        super().__init__(message)
        self.error_type = error_type


def described(error: OSError, otherwise: str = "") -> str:
    """The file and the reason. otherwise: what to begin with where no file is named."""
    return f"{f'{error.filename}: ' if error.filename else otherwise}{error.strerror or error}"
