"""--extra-vars of those who work a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.jobs import extra
from gpuprov.spec.model import RawHost

HOSTS = [RawHost(name="gpu001", connection={"ansible_host": "192.0.2.1"}), RawHost(name="gpu002")]
VAULTED = "$ANSIBLE_VAULT;1.1;AES256\n6338643463\n"


def test_group_vars_of_the_folder_that_somebody_works_in_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be vaulted, and this is not their inventory."""
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "all.yml").write_text(VAULTED)
    (tmp_path / "more.yaml").write_text("ansible_port: 2222\n")
    monkeypatch.chdir(tmp_path)
    first, second = extra.over(HOSTS, ["ansible_user=ops", "@more.yaml"])
    assert first.connection == {"ansible_host": "192.0.2.1", "ansible_user": "ops", "ansible_port": 2222}
    assert second.connection == {"ansible_user": "ops", "ansible_port": 2222}
    with pytest.raises(GpuprovError, match="stands in the job"):
        extra.over(HOSTS, ['{"gpuprov": {}}'])
