"""The last words of units that failed: the probe's own script, with programs that answer as systemd's do."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.host.contents import CONTENTS

SHOWN = (
    "Id=gpuprov-roce.service\nLoadState=loaded\nActiveState=failed\n\nId=gpuprov-pcie.service\nActiveState=active\n\n"
    "Id=nvidia-gridd.service\nActiveState=failed\n"
)
JOURNAL = """case $* in
*_SYSTEMD_UNIT=gpuprov-roce.service) printf 'mlx5_0 mtu 1500 -> 9000\\nroce: mlx5_0: no such | port\\n\\n' ;;
*_SYSTEMD_UNIT=nvidia-gridd.service) echo 'refused eyJhbGciOi.J9-x_' ;;
*) echo "not asked: $*" ;;
esac"""


def test_only_units_that_failed_are_asked_for(tmp_path: Path) -> None:
    for name, body in {"systemctl": f"printf '{SHOWN}'", "journalctl": JOURNAL}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "paths": "", "folders": "", "units": "x"}
    done = subprocess.run(["sh", "-c", CONTENTS.script], env=environment, check=True, capture_output=True, text=True)
    assert CONTENTS.parse(Output(done.stdout)).said == {
        "gpuprov-roce.service": "roce: mlx5_0: no such | port",
        "nvidia-gridd.service": "refused (token)",
    }
