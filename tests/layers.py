"""The imports of a package, read from its sources: those for type hints and those inside functions are imports too."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path


@dataclass(frozen=True)
class Package:
    """folder: the package's; its name is that of its imports. linked: folders in it that are links to elsewhere."""

    folder: Path
    linked: tuple[str, ...] = ()

    def modules(self) -> dict[str, Path]:
        """Name below the package ("engine/kv/chain", "" for the package itself) → file."""
        found = {}
        for root in (self.folder, *(self.folder / name for name in self.linked)):
            for path in sorted(root.rglob("*.py")):
                found[path.relative_to(self.folder).with_suffix("").as_posix().removesuffix("__init__").strip("/")] = (
                    path
                )
        return found

    def imports(self) -> dict[str, set[str]]:
        """Module → the modules of the package that it imports, wherever in the file."""
        modules = self.modules()
        return {name: set(self._own(path, modules)) for name, path in modules.items()}

    def _own(self, path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
        for name in imported_names(path):
            first, *rest = name.split(".")
            if first != self.folder.name:
                continue
            while "/".join(rest) not in modules:  # what follows is something in a module
                rest.pop()
            yield "/".join(rest)


def imported_names(path: Path) -> Iterator[str]:
    """In full: `from a.b import c` is a.b.c, which may be a module or something in one."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module and not node.level, f"{path}: imports are written in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def floor_of(module: str, floors: Mapping[str, object]) -> str:
    """The innermost floor that the module lies on."""
    parts = module.split("/")
    return next(name for end in range(len(parts), -1, -1) if (name := "/".join(parts[:end])) in floors)


def upward_imports(package: Package, may_import: Mapping[str, set[str]]) -> list[str]:
    """Imports of a floor that the module's own may not import."""
    wrong = []
    for module, imported in package.imports().items():
        own = floor_of(module, may_import)
        allowed = {own, *may_import[own]}
        wrong += [f"{module} imports {name}" for name in sorted(imported) if floor_of(name, may_import) not in allowed]
    return wrong


def circle(imports: Mapping[str, set[str]]) -> list[str]:
    """Names that import each other, in a circle; empty where there is none."""
    try:
        TopologicalSorter({name: found - {name} for name, found in imports.items()}).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []
