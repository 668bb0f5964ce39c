"""The examples of docs/how-to/images: each as its own program reads it, where Debian's package of that is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from gpuprov.cli import cli
from tests.rows import run_each

pytestmark = pytest.mark.install  # other projects' programs

FOLDER = Path(__file__).parents[2] / "docs/how-to/images"
SCRIPTS = ("mkosi/mkosi.finalize", "virt-customize/bake.sh")
BAKE = re.compile(r"\bgpuprov(?:\}\")? (bake inventory\.yaml --limit image --root \S+ --wheels wheels[a-z -]*)")


def run(*words: str | Path, folder: Path | None = None) -> str:
    """Run a validator, which ends well, and return what it printed."""
    if shutil.which(str(words[0])) is None:
        pytest.skip(f"apt-get install {words[0]}")
    done = subprocess.run([*map(str, words)], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """The examples, with what their users put beside each."""
    copy = tmp_path / "images"
    shutil.copytree(FOLDER, copy)
    for folder in ("mkosi", "packer", "virt-customize"):
        shutil.copy(copy / "inventory.yaml", copy / folder)
        (copy / folder / "wheels").mkdir()
    (copy / "packer/seed").mkdir()
    (copy / "packer/seed/user-data").touch()
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", copy / "packer/packer.pem")
    return copy


def read_cloud_config() -> dict[str, Any]:
    document = yaml.safe_load((FOLDER / "cloud-init/user-data.yaml").read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


def test_mkosi_takes_it(given: Path) -> None:
    summary = run("mkosi", "summary", folder=given / "mkosi")
    assert re.search(r"Finalize Script: \S*/mkosi\.finalize", summary)
    assert re.search(r"Output Format: directory", summary)


def test_packer_takes_it(given: Path) -> None:
    run("packer", "validate", "-var", "checksum=none", "gpu.pkr.hcl", folder=given / "packer")
    run("packer", "fmt", "-check", "gpu.pkr.hcl", folder=given / "packer")


def test_cloud_init_takes_it() -> None:
    printed = run("cloud-init", "schema", "--config-file", FOLDER / "cloud-init/user-data.yaml")
    assert "Valid cloud-config" in printed


def test_the_inventory_is_valid_also_where_it_is_repeated(tmp_path: Path) -> None:
    for text in (
        (FOLDER / "inventory.yaml").read_text(encoding="utf-8"),
        read_cloud_config()["write_files"][0]["content"],
    ):
        (tmp_path / "inventory.yaml").write_text(text, encoding="utf-8")
        done = CliRunner().invoke(cli, ["check", str(tmp_path / "inventory.yaml")])
        assert done.exit_code == 0, done.output


def scripts() -> dict[str, str]:
    """Return every script of the examples, by where it stands."""
    found = {name: (FOLDER / name).read_text(encoding="utf-8") for name in SCRIPTS}
    found["cloud-init"] = read_cloud_config()["write_files"][1]["content"]
    packer = (FOLDER / "packer/gpu.pkr.hcl").read_text(encoding="utf-8")
    (inline,) = re.findall(r"inline = \[\n(.*?)\n    \]", packer, re.DOTALL)
    found["packer"] = "\n".join(re.findall(r'^ *"(.*)",$', inline, re.MULTILINE))
    return found


@run_each("name", sorted(scripts()))
def test_a_script_is_one_and_bakes_by_options_that_exist(name: str, tmp_path: Path) -> None:
    text = scripts()[name]
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    (bake,) = BAKE.findall(text)
    (tmp_path / "wheels").mkdir()
    words = [str(tmp_path) if word in ('"$BUILDROOT"', "wheels") else word for word in bake.split()]
    with cli.make_context("gpuprov", [*words], resilient_parsing=False) as context:
        command = cli.get_command(context, "bake")
        assert command is not None
        command.make_context("bake", words[1:], parent=context)


@run_each("name", SCRIPTS)
def test_a_script_is_for_users_to_start(name: str) -> None:
    assert (FOLDER / name).stat().st_mode & 0o111


def test_the_blueprint_is_one() -> None:
    """Only what osbuild's reference names: https://osbuild.org/docs/user-guide/blueprint-reference"""
    blueprint = tomllib.loads((FOLDER / "image-builder/gpu.toml").read_text(encoding="utf-8"))
    assert set(blueprint) == {"name", "description", "version", "packages", "customizations"}
    assert set(blueprint["customizations"]) == {"repositories", "filesystem"}
    assert re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", blueprint["version"])
    assert all(set(package) == {"name"} for package in blueprint["packages"])
