"""The last words of units that failed: the probe's own script, with programs that answer as systemd's do."""

from __future__ import annotations

from pathlib import Path

from gpuprov.facts.probes.host.contents import CONTENTS
from tests.facts.probes import run_well

SHOWN = (
    "Id=gpuprov-roce.service\nLoadState=loaded\nActiveState=failed\n\nId=gpuprov-pcie.service\nActiveState=active\n\n"
    "Id=nvidia-gridd.service\nActiveState=failed\nResult=exit-code\n\nId=x.service\nActiveState=failed\nResult=oom-kill\n"
)
JOURNAL = """case $* in
*_SYSTEMD_UNIT=gpuprov-roce.service) printf 'mlx5_0 mtu 1500 -> 9000\\nroce: mlx5_0: no such | port\\n\\n' ;;
*_SYSTEMD_UNIT=nvidia-gridd.service) echo 'refused eyJhbGciOi.J9-x_' ;;
*_SYSTEMD_UNIT=x.service) ;;
*) echo "not asked: $*" ;;
esac"""


def test_only_units_that_failed_are_asked_for(tmp_path: Path) -> None:
    answers = {"systemctl": f"case $* in *' -p Result '*) printf '{SHOWN}' ;; esac", "journalctl": JOURNAL}
    output = run_well(f"paths= folders= units=x\n{CONTENTS.script}", tmp_path, answers)
    assert CONTENTS.parse(output).ends == {
        "gpuprov-roce.service": '"roce: mlx5_0: no such | port"',
        "nvidia-gridd.service": '"refused (token)"',
        "x.service": "killed, as memory ran out",
    }
