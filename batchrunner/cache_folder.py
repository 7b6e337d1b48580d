"""Where what was made once is kept for later runs: converted models, compiled kernels."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """$BATCHRUNNER_CACHE, else below the user's cache folder."""
    if "BATCHRUNNER_CACHE" in os.environ:
        return Path(os.environ["BATCHRUNNER_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "batchrunner"  # an empty one is none
