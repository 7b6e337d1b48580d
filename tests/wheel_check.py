"""Build the wheel and the sdist, install the wheel in a fresh environment, use it from another folder."""

import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
CHECK = """
import importlib.util, batchrunner, batchrunner.kernels.paged_attention, batchrunner.engine.scheduling.scheduler
from importlib.resources import files
assert importlib.util.find_spec("kernels") is None, "a top-level package named kernels"
assert importlib.util.find_spec("jobs") is None, "a top-level package named jobs"
assert (files("batchrunner") / "job_files" / "starter.yaml").is_file(), "the job files are not in the wheel"
for name in ("engine/model/layers/calibration.txt", "simulate/cost/devices.yaml", "preview/page.html"):
    assert files("batchrunner").joinpath(*name.split("/")).is_file(), f"{name} is not in the wheel"
from batchrunner.kernels.cpu.cpu_kernels import CpuKernels
assert CpuKernels([(64, 64)]).name == "C", "the C sources are not in the wheel"
print("wheel", batchrunner.__version__, "in", batchrunner.__file__)
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
        wheel = next(folder.glob("*.whl"))
        assert next(folder.glob("*.tar.gz")).stat().st_size > 10_000
        assert {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()} == {
            "batchrunner",
            f"{wheel.name.split('-py3')[0]}.dist-info",
        }
        # The dependencies are those of this environment: they are what was tested, and weigh gigabytes.
        venv.create(folder / "env", with_pip=True)
        python = folder / "env" / "bin" / "python"
        site = next((folder / "env" / "lib").glob("python*/site-packages"))
        own = next(path for path in sys.path if path.endswith("site-packages"))
        (site / "dependencies.pth").write_text(f"import sys; sys.path.append({own!r})\n")
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", str(wheel)], check=True)
        shown = subprocess.run([python, "-c", CHECK], cwd=folder, check=True, capture_output=True, text=True).stdout
        assert str(site) in shown, shown
        subprocess.run([folder / "env" / "bin" / "batchrun", "init", "jobs.yaml"], cwd=folder, check=True)
        print(shown.strip())


if __name__ == "__main__":
    main()
