"""What a user installs: the wheel and the sdist, in a clean environment, from any folder."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from gpuprov.cli import manual

pytestmark = pytest.mark.install
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "inventories" / "example" / "inventory.yaml"


def run(*command: str | Path, cwd: str | Path = "/") -> str:
    """Standard output of a command run without this checkout on any path."""
    clean = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV", "ANSIBLE"))
    }
    done = subprocess.run([*map(str, command)], cwd=cwd, env=clean, text=True, capture_output=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel built from it."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "docs/generate.py", "--pages", cwd=ROOT)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


@pytest.fixture(scope="module")
def clean(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment that holds nothing but the wheel and its dependencies."""
    folder = tmp_path_factory.mktemp("clean") / "venv"
    run(sys.executable, "-m", "venv", folder)
    (wheel,) = dist.glob("*.whl")
    run(folder / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
    return folder / "bin"


def files_of(folder: Path) -> set[str]:
    """Tracked by nobody or not: every file below, without caches."""
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(ROOT)) for path in found}


def test_wheel_carries_roles_playbooks_and_data(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("roles", "playbooks", "plugins/modules", "plugins/action"):
        wanted = {f"gpuprov/_ansible/{name}" for name in files_of(ROOT / folder)}
        assert wanted <= names, wanted - names
    assert files_of(ROOT / "gpuprov") <= names, files_of(ROOT / "gpuprov") - names
    assert "gpuprov/py.typed" in names
    pages = {name.rpartition("/")[2] for name in names if "/share/man/man1/" in name}
    assert pages == set(manual.pages()), "where `man gpuprov` finds them"
    assert not [name for name in names if name.startswith(("tests/", "docs/", "inventories/"))]


def test_sdist_builds_the_same_wheel_and_holds_the_tests(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "roles/host/tasks/reboot.yml",
        "tests/install/test_wheel.py",
    } <= names


def test_installed_gpuprov_is_the_wheels(clean: Path) -> None:
    where = run(clean / "python", "-c", "import gpuprov; print(gpuprov.__file__)").strip()
    assert where.startswith(str(clean.parent)), where
    assert (clean.parent / "share" / "man" / "man1" / "gpuprov-verify.1").is_file()
    assert run(clean / "gpuprov", "--version").startswith("gpuprov")


def test_render_and_syntax_check_from_any_folder(clean: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    run(clean / "gpuprov", "render", EXAMPLE, "--out", project)
    assert (project / "roles" / "nvidia_driver" / "tasks" / "main.yml").is_file()
    assert (project / "roles" / "mig" / "files" / "pynvml.py").is_file()
    assert (project / "module_utils" / "gpuprov_host_code" / "lock.py").is_file()
    playbooks = [path for path in sorted(project.glob("*.yml")) if path.name != "inventory.yml"]
    assert playbooks
    run(clean / "ansible-playbook", "-i", project / "inventory.yml", "--syntax-check", *playbooks)


def test_render_is_the_same_bytes_as_from_the_checkout(clean: Path, tmp_path: Path) -> None:
    run(clean / "gpuprov", "render", EXAMPLE, "--out", tmp_path / "wheel")
    run(sys.executable, "-m", "gpuprov", "render", EXAMPLE, "--out", tmp_path / "checkout", cwd=ROOT)
    trees = [
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (tmp_path / "wheel", tmp_path / "checkout")
    ]
    assert trees[0] == trees[1]


def test_check_catalog_explain_and_schema_work(clean: Path) -> None:
    run(clean / "gpuprov", "check", EXAMPLE)
    assert "H100-SXM5-80GB" in run(clean / "gpuprov", "catalog", "gpus", "H100")
    assert "fabric" in run(clean / "gpuprov", "explain", "802").lower()
    assert '"nvidia_driver"' in run(clean / "gpuprov", "schema")


def test_pytest_plugin_is_registered(clean: Path) -> None:
    found = run(clean / "python", "-c", "from importlib.metadata import entry_points as e; print(e(group='pytest11'))")
    assert "gpuprov.pytest_plugin" in found
