"""What the documents name is there."""

import re

from batchrunner.cli.main import cli
from tests import ROOT

FEATURES = (ROOT / "docs" / "features.md").read_text()
NAMED = re.compile(r"`([\w./*]+(?:/|\.py|\.sbatch))`")


def rows() -> dict[str, list[str]]:
    """Number of the part → the cells of its row, of the tables that have a column "where"."""
    found = {}
    for line in FEATURES.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 6 and cells[0].isdecimal():
            assert cells[0] not in found, f"part {cells[0]} is there twice"
            found[cells[0]] = cells
    return found


def test_every_part_says_where_it_is_and_what_tests_it() -> None:
    parts = rows()
    assert set(parts) == {str(number) for number in range(1, 29)}
    for number, (_, _, _, where, test, _) in parts.items():
        names = NAMED.findall(where)
        assert names, f"part {number} has no place"
        for name in names:
            assert (ROOT / "batchrunner" / name).exists(), f"part {number}: there is no {name}"
        for name in NAMED.findall(test):
            folder = ROOT if name.startswith("tests/") else ROOT / "tests"
            assert list(folder.glob(name)), f"part {number}: there is no test {name}"


def test_every_folder_of_the_package_stands_in_the_tree() -> None:
    """In the README the folders at the top, in the architecture all of them."""
    package = ROOT / "batchrunner"
    folders = [path for path in package.rglob("*") if path.is_dir() and (path / "__init__.py").exists()]
    named = re.findall(r"([a-z_]+)/  ", (ROOT / "README.md").read_text())
    assert {path.name for path in folders if path.parent == package} <= set(named)
    named = re.findall(r"`([a-z_/]+)/`", (ROOT / "docs" / "architecture.md").read_text())
    assert {path.relative_to(package).as_posix() for path in folders} <= set(named)


def test_paths_in_the_documents_are_there() -> None:
    for document in (ROOT / "docs").glob("*.md"):
        for name in re.findall(r"`((?:[a-z_]+/)+[\w]+\.(?:py|yaml|c|h))`", document.read_text()):
            places = [ROOT / name, ROOT / "batchrunner" / name, ROOT / "tests" / name]
            assert any(place.exists() for place in places), f"{document.name}: there is no {name}"


def test_every_verb_stands_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    assert [verb for verb in cli.commands if f"batchrun {verb}" not in text] == []
