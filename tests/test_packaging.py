"""Wheel and sdist, built without a network, installed in clean environments and imported whole."""

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("models", "inference", "acquisition")

IMPORT_ALL = """
import importlib, json, pkgutil
import labelzoo
names = {module.name for module in pkgutil.walk_packages(labelzoo.__path__, "labelzoo.")}
files = {name: importlib.import_module(name).__file__ for name in sorted(names - {"labelzoo.__main__"})}
print(json.dumps({"labelzoo": labelzoo.__file__, **files}))
"""


def source_files() -> set[str]:
    """Paths that every wheel must hold: the package root and, under it, the three top folders."""
    roots = {ROOT / "src" / "labelzoo": "labelzoo"} | {ROOT / name: f"labelzoo/{name}" for name in FOLDERS}
    found = set()
    for root, prefix in roots.items():
        for path in root.rglob("*.py"):
            relative = path.relative_to(root)
            # The links are skipped here: their content is listed from the top folders.
            if prefix == "labelzoo" and relative.parts[0] in FOLDERS:
                continue
            found.add(f"{prefix}/{relative.as_posix()}")
    return found


def call(command: list[str | Path], cwd: Path) -> str:
    """Run a command away from the checkout; return its output, or fail with all that it printed."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(
        command, cwd=cwd, env=kept, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build(source: Path, kind: str, out: Path) -> Path:
    """Build one archive with the hatchling of this environment, so that no network is asked."""
    call([sys.executable, "-m", "build", f"--{kind}", "--no-isolation", "--outdir", out, source], out.parent)
    (archive,) = out.iterdir()
    return archive


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the sdist, the wheel from the checkout and the wheel made from the unpacked sdist."""
    base = tmp_path_factory.mktemp("archives")
    archives = {"sdist": build(ROOT, "sdist", base / "sdist"), "wheel": build(ROOT, "wheel", base / "wheel")}
    with tarfile.open(archives["sdist"]) as opened:
        opened.extractall(base / "unpacked", filter="data")
    (unpacked,) = (base / "unpacked").iterdir()
    return archives | {"sdist to wheel": build(unpacked, "wheel", base / "rebuilt")}


def clean_environment(folder: Path) -> Path:
    """Make an environment that sees our dependencies but not the editable install of the checkout.

    A path line in a .pth file adds the folder without reading the .pth files inside it, and it is the latter
    that put a checkout on the path.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    site = Path(
        call([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder).strip()
    )
    libraries = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site / "dependencies.pth").write_text("\n".join(sorted(libraries)) + "\n", encoding="utf-8")
    before = subprocess.run([python, "-c", "import labelzoo"], cwd=folder, capture_output=True, text=True)
    assert "No module named 'labelzoo'" in before.stderr, f"labelzoo leaks into {folder}: {before.stderr}"
    return python


@pytest.mark.parametrize("kind", ["wheel", "sdist to wheel"])
def test_wheel_holds_every_module_and_the_data(built: dict[str, Path], kind: str) -> None:
    with zipfile.ZipFile(built[kind]) as opened:
        names = opened.namelist()
        notice = opened.read("labelzoo/data/emoji_NOTICE.md").decode()
    wanted = source_files() | {"labelzoo/py.typed", "labelzoo/data/emoji.npz"}
    assert not wanted - set(names), f"missing from the {kind}: {sorted(wanted - set(names))}"
    assert len(names) == len(set(names)), "a file is in the wheel twice"
    assert notice.strip(), "the notice of the emoji data is empty"
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    strangers = {name.split("/")[0] for name in names if not name.startswith("labelzoo-")} - {"labelzoo"}
    assert not strangers, f"the {kind} installs more than labelzoo: {strangers}"


def test_sdist_can_be_built_and_tested_from(built: dict[str, Path]) -> None:
    with tarfile.open(built["sdist"]) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    wanted = {"pyproject.toml", "README.md", "LICENSE", "Makefile", "constraints.txt", "tests/conftest.py"}
    wanted |= {f"{name}/__init__.py" for name in FOLDERS} | {"src/labelzoo/data/emoji.npz"}
    assert not wanted - names, f"missing from the sdist: {sorted(wanted - names)}"
    assert not [name for name in names if name.startswith((".venv", ".cache", "demo/"))]


@pytest.mark.parametrize("kind", ["wheel", "sdist to wheel"])
def test_installed_package_imports_and_lists(built: dict[str, Path], kind: str, tmp_path: Path) -> None:
    python = clean_environment(tmp_path / "clean")
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", python]
    call([*pip, "install", "--quiet", "--no-deps", "--no-index", built[kind]], tmp_path)
    files = json.loads(call([python, "-W", "error", "-c", IMPORT_ALL], tmp_path).splitlines()[-1])
    outside = {
        name: path for name, path in files.items() if not Path(path).is_relative_to(tmp_path / "clean")
    }
    assert not outside, f"imported from somewhere else: {outside}"
    modules = {
        path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in source_files()
    }
    assert set(files) == modules - {"labelzoo.__main__"}
    listed = json.loads(call([python.parent / "labelzoo", "list", "--json"], tmp_path))
    assert listed["models"], "the installed command lists no model"
