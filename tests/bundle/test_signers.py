"""The line of the key that signs, as it is written beside a bundle."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuprov.bundle import bundles, opened
from gpuprov.core.errors import GpuprovError
from tests.bundle.carried import Carried


def test_another_users_file_and_link_do_not_take_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may write the file afterwards would say whose bundles count."""
    made = Carried(tmp_path)
    manifest = opened.opened(made.place, made.signers, now=0)
    monkeypatch.setattr(bundles, "read_needs", lambda *_: {})
    monkeypatch.setattr(bundles, "_write_bundle", lambda *_: bundles.Made(manifest=manifest, licences=()))
    options = bundles.Options(out=made.place, key=made.key)
    beside = tmp_path / "bundle.allowed_signers"
    beside.write_text("whose key?")
    theirs = os.open(beside, os.O_RDWR)
    bundles.make(made.fleet, options, 0.0)
    assert beside.read_text() == made.signers.read_text()
    assert os.read(theirs, 99) == b"whose key?"
    os.close(theirs)
    beside.unlink()
    (tmp_path / "victim").write_text("precious")
    beside.symlink_to(tmp_path / "victim")
    os.lchown(beside, 54321, 54321)
    bundle = tmp_path / "bundle2"
    beside.rename(tmp_path / "bundle2.allowed_signers")
    with pytest.raises(GpuprovError, match="is a link that another user has put there"):
        bundles.make(made.fleet, bundles.Options(out=bundle, key=made.key), 0.0)
    assert (tmp_path / "victim").read_text() == "precious"
    assert not bundle.exists()
