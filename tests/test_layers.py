"""Dependencies go in one direction."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "batchrunner"

# layer → the layers it may import besides itself; a module of the package's root is a layer of its own.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "spec_types": set(),
    "engine_spec": {"spec_types"},
    "spec": {"spec_types", "engine_spec"},
    "identity": {"spec"},
    "job_yaml": {"errors"},
    "job_errors": {"spec", "engine_spec"},
    "job_paths": {"spec", "engine_spec", "errors", "job_errors"},
    "job_file": {"spec", "errors", "job_yaml", "job_errors", "job_paths"},
    "cache_folder": set(),
    "kernels": {"cache_folder"},
    "plan": {"errors", "spec"},
    "data": {"errors", "spec", "identity"},
    "engine": {"errors", "spec", "engine_spec", "identity", "kernels", "cache_folder"},
    "run": {"errors", "spec", "engine_spec", "identity", "data", "plan", "engine", "simulate", "cache_folder"},
    "planned_engine": {"spec", "plan", "engine"},
    "bench": {"errors", "spec", "engine_spec", "engine", "planned_engine"},
    "simulate": {"errors", "spec", "engine_spec", "identity", "data", "plan", "engine", "job_yaml"},
    "validate": {"errors", "spec", "data", "engine"},
    "starter": {"errors"},
    "api": {"errors", "spec", "job_file", "run"},
    "plan_figures": {"spec", "engine_spec", "data", "plan", "engine", "simulate", "run"},
    "plan_table": {"plan"},
    "plan_page": {"plan"},
    "planning": {"errors", "spec", "identity", "data", "plan", "engine", "simulate", "run", "plan_figures"},
    "cli_parts": {"errors", "spec", "job_file"},
    "cli_plan": {"cli_parts", "errors", "planning", "plan_page", "plan_table"},
    "cli_simulate": {"cli_parts", "errors", "spec", "job_file", "simulate"},
    "cli": {"cli_parts", "errors", "run", "bench", "validate", "starter", "cli_plan", "cli_simulate", "__version__"},
    "": {"api", "engine", "planned_engine", "run", "spec"},
}
# Decisions are made without torch: these must run in a simulator and answer in milliseconds.
WITHOUT_TORCH = (
    "errors",
    "spec",
    "identity",
    "job_yaml",
    "job_errors",
    "job_paths",
    "job_file",
    "plan",
    "plan_table",
    "plan_page",
    "data",
    "validate",
    "engine_spec",
    "spec_types",
    "simulate",
    "engine/admission",
    "engine/batching",
    "engine/block_changes",
    "engine/block_pool",
    "engine/block_tables",
    "engine/build_scheduler",
    "engine/cadence",
    "engine/chain",
    "engine/congestion",
    "engine/counters",
    "engine/displacement",
    "engine/foresight",
    "engine/leaf_heap",
    "engine/limits",
    "engine/memory",
    "engine/places",
    "engine/policies",
    "engine/predictors",
    "engine/prefix_cache",
    "engine/prefix_groups",
    "engine/queues",
    "engine/quarantine",
    "engine/request",
    "engine/schedule",
    "engine/scheduler",
    "engine/siblings",
    "engine/speeds",
    "engine/step_builder",
    "engine/step_times",
    "engine/step_work",
    "engine/swap_choice",
    "engine/tiers",
    "engine/waiting",
    "kernels/attention_work",
)
HEAVY = ("torch", "transformers", "tokenizers")


def modules() -> list[Path]:
    return [path for path in PACKAGE.rglob("*.py") if "job_files" not in path.parts]


def imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            is_package = node.module == "batchrunner"
            names |= {f"batchrunner.{alias.name}" for alias in node.names} if is_package else {node.module}
    return names


def layer(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem.replace("__init__", "")


def test_every_module_imports_only_what_its_layer_may() -> None:
    wrong = []
    for path in modules():
        own = layer(path)
        for name in imports(path):
            if name.split(".")[0] != "batchrunner":
                continue
            target = name.split(".")[1] if "." in name else ""
            if target != own and target not in MAY_IMPORT[own]:
                wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert wrong == []


def test_decisions_are_made_without_torch() -> None:
    wrong = []
    for path in modules():
        name = path.relative_to(PACKAGE).with_suffix("").as_posix()
        if any(name == entry or name.startswith(f"{entry}/") for entry in WITHOUT_TORCH):
            wrong += [f"{name} imports {found}" for found in imports(path) if found.split(".")[0] in HEAVY]
    assert wrong == []


def test_kernels_are_never_imported_by_their_top_level_name() -> None:
    assert [path for path in modules() if any(name.split(".")[0] == "kernels" for name in imports(path))] == []
    assert not (PACKAGE.parent / "kernels" / "__init__.py").exists()
    assert (PACKAGE / "kernels").resolve() == PACKAGE.parent / "kernels"
    assert (PACKAGE / "job_files").resolve() == PACKAGE.parent / "jobs"
