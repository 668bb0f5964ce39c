"""What the unit of RoCE would set is said for people."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.here import ROLES, play

pytestmark = pytest.mark.install


def test_what_roce_differs_in_is_said_for_people(tmp_path: Path) -> None:
    """The program's rows are for programs: device|port|netdev|PCI address|setting|has|should have."""
    role = yaml.safe_load((ROLES / "rdma/tasks/service/roce/set.yml").read_text(encoding="utf-8"))
    said = next(task["gpuprov_unit"] for task in role if "gpuprov_unit" in task)["differs"]
    given = {"__rdma_roce_rows": ["mlx5_0|1|eth1|0000:18:00.0|pfc|none|3", "mlx5_1|1|eth2|0000:2a:00.0|tos|0|106"]}
    done = play(tmp_path, {"vars": given, "tasks": [{"ansible.builtin.debug": {"msg": f"({said})"}}]})
    assert "(mlx5_0 port 1 pfc: none -> 3; mlx5_1 port 1 tos: 0 -> 106)" in done.stdout, done.stdout + done.stderr
