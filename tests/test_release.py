"""Anybody can build the same release from the same commit, and its signature and list of software are valid."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests import audit, image, release
from tests.pull.site import new_key

LOCK = (release.ROOT / "requirements.lock").read_text(encoding="utf-8")
PROJECT = tomllib.loads((release.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def made() -> dict[str, Any]:
    return release.sbom(LOCK, PROJECT, {"gpuprov-0-py3-none-any.whl": "0" * 64}, 1_790_000_000)


def test_every_locked_package_is_in_the_list_with_its_hashes() -> None:
    rows = made()["components"]
    assert {(row["name"], row["version"]) for row in rows} == {
        (name, version) for name, versions in audit.locked(LOCK).items() for version in versions
    }
    assert sum(len(row["externalReferences"][0]["hashes"]) for row in rows) == LOCK.count("--hash=sha256:")
    assert all(row["externalReferences"][0]["hashes"] for row in rows)


def test_what_runs_is_told_from_what_only_development_needs() -> None:
    scope = {row["name"]: row["scope"] for row in made()["components"]}
    assert {scope[name] for name in ("ansible-core", "jinja2", "markupsafe", "msgspec", "paramiko", "pytest")} == {
        "required"
    }
    assert (scope["temporalio"], scope["ruff"], scope["molecule"]) == ("optional", "excluded", "excluded")
    links = {row["ref"]: row["dependsOn"] for row in made()["dependencies"]}
    assert any("markupsafe" in one for ref, needs in links.items() if "/jinja2@" in ref for one in needs)


def test_the_list_is_valid() -> None:
    validation = pytest.importorskip(
        "cyclonedx.validation.json", reason="pip install cyclonedx-python-lib, which has the schema"
    )
    from cyclonedx.schema import SchemaVersion

    judge = validation.JsonStrictValidator(SchemaVersion.V1_6)
    assert judge.validate_str(json.dumps(made())) is None
    assert judge.validate_str(json.dumps({**made(), "components": [{"type": "deb"}]})) is not None


def verified(folder: Path, signers: Path, namespace: str = release.NAMESPACE) -> bool:
    """Return whether the release verifies as described in docs/explanation/security.md."""
    words = ["ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", release.WHO, "-n", namespace, "-s"]
    with (folder / release.SUMS).open("rb") as sums:
        signed = subprocess.run(
            [*words, str(folder / f"{release.SUMS}.sig")], stdin=sums, capture_output=True, check=False
        )
    whole = subprocess.run(["sha256sum", "--strict", "-c", release.SUMS], cwd=folder, capture_output=True, check=False)
    return signed.returncode == 0 and whole.returncode == 0


@pytest.mark.install
def test_two_releases_of_a_commit_are_the_same_bytes_and_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if subprocess.run(
        ["git", "-C", str(release.ROOT), "rev-parse", "HEAD"], capture_output=True, check=False
    ).returncode:
        pytest.skip("this is not a clone of the repository")
    key = new_key(tmp_path)
    signers = tmp_path / "allowed_signers"
    public = key.with_name("key.pub").read_text().split()
    signers.write_text(f'{release.WHO} namespaces="{release.NAMESPACE}" {public[0]} {public[1]}\n')
    names = release.release(release.ROOT, tmp_path / "one", key)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    old = os.umask(0o077)
    try:
        release.release(release.ROOT, tmp_path / "two")
    finally:
        os.umask(old)
    version = PROJECT["version"]
    built = [
        f"gpuprov-{version}-py3-none-any.whl",
        f"gpuprov-{version}.cdx.json",
        f"gpuprov-{version}.md",
        f"gpuprov-{version}.tar.gz",
        f"gpuprov-gpuprov-{version}.tar.gz",
        "SHA256SUMS",
    ]
    assert names == sorted([*built, "SHA256SUMS.sig"])
    for name in built:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name
    assert verified(tmp_path / "one", signers)
    assert not verified(tmp_path / "one", signers, "file")
    with (tmp_path / "one" / built[0]).open("ab") as wheel:
        wheel.write(b"x")
    assert not verified(tmp_path / "one", signers)


def test_a_tag_that_is_another_version_is_refused(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True)

    git("init")
    git("commit", "--allow-empty", "-m", "Begin")
    release.refuse_other_tag(tmp_path, "1.2.3")
    git("tag", "v1.2.4")
    with pytest.raises(SystemExit, match=r"tagged v1\.2\.4, and pyproject\.toml says 1\.2\.3. Fix: tag it v1\.2\.3"):
        release.refuse_other_tag(tmp_path, "1.2.3")
    git("tag", "v1.2.3")
    release.refuse_other_tag(tmp_path, "1.2.3")


def test_the_notes_are_the_changelog_of_the_version() -> None:
    changelog = (
        "# Changelog\n\n## 1.10.0\n\nOther.\n\n## 1.1.0 (2026-12-01)\n\n* A fix.\n\n### Part\n\n## 1.0.0\n\nOld.\n"
    )
    assert release.read_notes(changelog, "1.1.0") == "* A fix.\n\n### Part\n"
    assert release.read_notes(changelog, "1.0.0") == "Old.\n"
    with pytest.raises(SystemExit, match=r"nothing under a heading ## 1\.1\.1\. Fix: write"):
        release.read_notes(changelog, "1.1.1")


def test_the_image_has_what_gpuprov_needs_to_run_and_no_more() -> None:
    rows = image.select_requirements(LOCK, made())
    names = {row.split("==")[0] for row in rows.splitlines() if not row.startswith(" ")}
    assert names == {row["name"] for row in made()["components"] if row["scope"] == "required"}
    assert "ansible-core" in names
    assert names.isdisjoint({"ruff", "molecule", "temporalio"})
    assert rows.count("--hash=sha256:") > len(names)
