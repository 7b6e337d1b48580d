"""Dependencies go in one direction: from floor to floor, and from module to module."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.layers import Package, circle, floor_of, imported_names, upward_imports

PACKAGE = Package(ROOT / "batchrunner", linked=("kernels",))

ENGINE = {"engine", "engine/request", "engine/text", "engine/kv", "engine/counters", "engine/scheduling"}
ENGINE |= {"engine/scheduling/predictors", "engine/scheduling/policies", "engine/model/layers", "engine/model"}
SIMULATE = {"simulate/load", "simulate/cost", "simulate"}
DATA = {"data/input", "data/prompt", "data/spool", "data"}
# floor → the floors it may import, from the ground up. A floor is a folder or a module, without the floors in it.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "cache_folder": set(),
    "spec": set(),
    "identity": {"spec"},
    "kernels": {"cache_folder"},
    "data/input": {"errors", "spec"},
    "data/prompt": {"data/input", "errors", "spec"},
    "data/spool": {"data/input", "data/prompt", "identity", "errors", "spec"},
    "data": {"data/spool", "errors"},
    "plan": {"data/prompt", "data/spool", "identity", "errors", "spec"},
    "engine/request": {"errors", "spec"},
    "engine/text": {"engine/request", "kernels", "identity", "errors", "spec"},
    "engine/kv": {"engine/request", "kernels", "errors", "spec"},
    "engine/counters": {"engine/request", "engine/kv"},
    "engine/scheduling/predictors": {"engine/request", "spec"},
    "engine/scheduling/policies": {"engine/request", "engine/scheduling/predictors"},
    "engine/scheduling": {
        *("engine/request", "engine/kv", "engine/counters", "engine/scheduling/policies"),
        *("engine/scheduling/predictors", "errors", "spec"),
    },
    "engine/model/layers": {"engine/request", "engine/text", "engine/kv", "kernels", "errors"},
    "engine/model": {
        *("engine/model/layers", "engine/scheduling", "engine/kv", "engine/text", "kernels"),
        *("cache_folder", "errors", "spec"),
    },
    "engine": {*ENGINE, "errors", "spec"},
    "generate": {*ENGINE, "plan", "identity", "errors", "spec"},
    "job_file": {"data/input", "data/prompt", "engine/model", "errors", "spec"},
    "simulate/load": {
        *("data/input", "data/prompt", "plan", "engine/request", "engine/scheduling/predictors", "engine/text"),
        *("engine/model", "identity", "errors", "spec"),
    },
    "simulate/cost": {
        *("simulate/load", "plan", "job_file", "engine/request", "engine/kv", "engine/scheduling", "engine/model"),
        *("errors", "spec"),
    },
    "simulate": {*SIMULATE, *ENGINE, "generate", "plan", "errors", "spec"},
    "forecast": {*SIMULATE, *ENGINE, "plan", "data/spool", "cache_folder", "spec"},
    "checkpoint": {"identity", "errors"},
    "output": {"checkpoint", "data", "engine/counters", "errors"},
    "run": {
        *("output", "checkpoint", "forecast", "plan", *DATA, *ENGINE, "generate", "errors", "spec"),
    },
    "preview": {
        *("output", "checkpoint", "forecast", *SIMULATE, "plan", *DATA, *ENGINE, "identity", "errors", "spec"),
    },
    "bench": {*ENGINE, "generate", "errors", "spec"},
    "api": {"run", "output", "job_file", "errors", "spec"},
    "": {"api", "generate", "engine/request", "output", "spec"},
    "cli": {"", "run", "output", "preview", "bench", *SIMULATE, "job_file", "errors", "spec"},
}
# Decisions are made without torch: these must run in a simulator and answer in milliseconds.
WITHOUT_TORCH = (
    *("errors", "spec", "identity", "job_file", "plan", "data", "cli", "api", "checkpoint", "output"),
    *("engine/request", "engine/counters", "engine/scheduling", "engine/kv", "simulate"),
    *("engine/model/prefix_groups", "engine/model/step_times", "engine/model/speeds", "engine/model/model_files"),
    *("forecast/forecaster", "forecast/length_history", "preview", "kernels/attention_work"),
)
WITH_TORCH = ("engine/kv/kv_store", "engine/kv/paged_kv", "engine/kv/slot_copies")
HEAVY = ("torch", "transformers", "tokenizers")


def test_every_module_imports_only_what_its_floor_may() -> None:
    assert upward_imports(PACKAGE, MAY_IMPORT) == []


def test_the_floors_stand_on_each_other() -> None:
    floors = list(MAY_IMPORT)
    for floor, below in MAY_IMPORT.items():
        higher = [name for name in below if floors.index(name) > floors.index(floor)]
        assert not higher, f"{floor} may import {higher}, which stand above it"
    used = {floor_of(module, MAY_IMPORT) for module in PACKAGE.modules()}
    assert used == set(floors), "a floor has no module"


def test_no_modules_import_each_other() -> None:
    assert circle(PACKAGE.imports()) == []


def plant(folder: Path, **sources: str) -> Package:
    """A package of two floors; sources: file name → text."""
    for name, text in {"__init__": "", "low": "", "high": "import planted.low\n", **sources}.items():
        (folder / "planted").mkdir(exist_ok=True)
        (folder / "planted" / f"{name}.py").write_text(text)
    return Package(folder / "planted")


FLOORS = {"low": set[str](), "high": {"low"}, "": set[str]()}


@pytest.mark.parametrize(
    "source",
    [
        "import planted.high\n",
        "from planted import high\n",
        "from planted.high import something\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from planted.high import Something\n",
        "def later():\n    from planted.high import something\n",
    ],
)
def test_an_import_that_runs_up_or_in_a_circle_is_found_wherever_it_stands(tmp_path: Path, source: str) -> None:
    assert upward_imports(plant(tmp_path), FLOORS) == [] == circle(plant(tmp_path).imports())
    package = plant(tmp_path, low=source)
    assert upward_imports(package, FLOORS) == ["low imports high"]
    assert set(circle(package.imports())) == {"low", "high"}


def test_decisions_are_made_without_torch() -> None:
    modules = [
        name
        for name in PACKAGE.modules()
        if name not in WITH_TORCH and any(name == entry or name.startswith(f"{entry}/") for entry in WITHOUT_TORCH)
    ]
    code = "".join(f"import {'.'.join(['batchrunner', *name.split('/')])}\n" for name in sorted(modules))
    code += f"import sys; print([name for name in {HEAVY} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_kernels_are_never_imported_by_their_top_level_name() -> None:
    paths = PACKAGE.modules().values()
    assert [path for path in paths if any(name.split(".")[0] == "kernels" for name in imported_names(path))] == []
    assert not (ROOT / "kernels" / "__init__.py").exists()
    assert (PACKAGE.folder / "kernels").resolve() == ROOT / "kernels"
    assert (PACKAGE.folder / "job_files").resolve() == ROOT / "jobs"


def test_the_house_has_no_loose_rooms() -> None:
    """A stranger reads the names of the folders, and of a folder at most twenty."""
    loose = {path.name for path in PACKAGE.folder.iterdir() if path.is_file()}
    assert loose == {"__init__.py", "api.py", "errors.py", "identity.py", "cache_folder.py"}
    for top in ("batchrunner", "kernels", "tests", "docs", "examples", "jobs"):
        for folder in (ROOT / top, *(path for path in (ROOT / top).rglob("*") if path.is_dir())):
            files = [path for path in folder.iterdir() if path.is_file() and path.suffix != ".pyc"]
            assert len(files) <= 20, f"{folder}: {len(files)} files"
