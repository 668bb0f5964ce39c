"""The probe of gpuprov's own files and units, run here with stand-ins of systemd's programs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from gpuprov.probe.base import Output
from gpuprov.probe.host import contents

SHOWN = r"Id=a.service\nLoadState=loaded\nActiveState=failed\n\nId=b@x.service\nLoadState=loaded\nActiveState=active\n"


def test_of_a_failed_unit_what_its_program_said_last_is_read(tmp_path: Path) -> None:
    for name, text in (
        ("systemctl", f"printf '{SHOWN}'"),
        ("journalctl", 'case "$*" in *_SYSTEMD_UNIT=a.service) printf "first\\n503|in use: a & b\\n\\n" ;; *) echo no ;; esac'),
    ):  # fmt: skip
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "units": "a.service\nb@x.service"}
    done = subprocess.run(["sh", "-c", contents.CONTENTS.script], env=environment, capture_output=True, check=False)
    found = contents.parse(Output(done.stdout.decode()))
    assert found.said == {"a.service": "503|in use: a & b"}
    assert found.units["b@x.service"].active == "active"
