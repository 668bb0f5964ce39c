"""The container image is built of a release's wheel, and its gpuprov works."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpuprov.simulate import engine, image
from tests import release
from tests.image import build_image, select_requirements
from tests.test_release import LOCK, PROJECT, made

pytestmark = pytest.mark.install
# The engine's default limits cannot be set everywhere; nor does every machine reach its package sources by a public certificate.
LIMITS = ("--ulimit", "nofile=20000:20000", "--ulimit", "nproc=10000:10000")
OUTSIDE = ("--network", "host", "--volume", "/etc/ssl/certs:/etc/ssl/certs:ro")
INVENTORY = "all: {hosts: {gpu001: {gpuprov: {gpu: {model: H100-SXM5-80GB, count: 8}}}}}\n"


def test_the_image_checks_an_inventory(tmp_path: Path) -> None:
    release.built(release.ROOT, tmp_path / "release")
    (tmp_path / "inventory.yaml").write_text(INVENTORY)
    name = build_image(
        engine.command(),
        (release.ROOT / "Containerfile").read_text(encoding="utf-8"),
        next((tmp_path / "release").glob("*.whl")),
        select_requirements(LOCK, made()),
        {"VERSION": PROJECT["version"], "REVISION": "0" * 40},
        *LIMITS,
        *OUTSIDE,
        *("--build-arg", f"BASE={image.build('debian12')}"),
    )
    try:

        def run(*words: str) -> subprocess.CompletedProcess[str]:
            command = engine.command("run", "--rm", "--network", "none", *LIMITS, "-v", f"{tmp_path}:/work:ro", *words)
            return subprocess.run(command, capture_output=True, text=True, check=False)

        assert run(name, "--version").stdout.split()[-1] == PROJECT["version"]
        checked = run(name, "check", "inventory.yaml")
        assert checked.returncode == 0, checked.stdout + checked.stderr
        assert run("--entrypoint", "ssh", name, "-V").returncode == 0
    finally:
        engine.engine("rmi", "--force", name)
