"""`python -m tests.campaign --sabotage`: does the judge catch what it is there for? A broken copy of the product is
applied.

What the judge saw is kept in `recorded/`, and judged again by tests, without hosts.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from gpuprov.simulate import container, hosts
from tests.campaign import outside
from tests.campaign.group import HOST, ROOT, Group, Stage

RECORDED = Path(__file__).with_name("recorded")
BREAKS = {
    "reboots": ("systemctl --no-block reboot", ("reboot", "process")),
    "kills": ("kill -KILL $(systemctl show --property=MainPID --value site-job)", ("process",)),
    "loses": (
        "rm -f /etc/modprobe.d/site.conf; chmod 0644 /home/alice/results.csv; apt-mark unhold hostname",
        ("site",),
    ),
    "tells": ("umask 077; echo '{{ ansible_become_password }}' > /var/log/debug.log", ("secret",)),
}
"""What an apply does on a host that it must not, and the invariants that this breaks."""


def copied(place: Path, scripts: dict[str, str]) -> Path:
    """A copy of the product that runs a script on each of these hosts when it configures them."""
    left_out = shutil.ignore_patterns(".*", "build", "tests", "__pycache__")
    shutil.copytree(ROOT, place, ignore=left_out)
    role = place / "roles" / "kernel" / "tasks" / "configure.yml"
    lines = [f"- name: Break something\n  ansible.builtin.shell: |\n    {script}\n  when: inventory_hostname == "
             f"'{name}'\n"
             for name, script in scripts.items()]  # fmt: skip
    role.write_text(role.read_text(encoding="utf-8") + "".join(lines), encoding="utf-8")
    return place


def sabotage(stage: Stage) -> Iterator[tuple[str, list[str]]]:
    """Each break with what the judge says of it."""
    RECORDED.mkdir(exist_ok=True)
    group = Group(stage, "small", [False] * len(BREAKS))
    try:
        boxes = [f"{container.PREFIX}{name}" for name in group.names]
        scripts = {name: script for name, (script, _) in zip(group.names, BREAKS.values(), strict=True)}
        group.code = copied(stage.place / "broken", scripts)
        before = [outside.look(box) for box in boxes]
        _, told = group.apply()
        print(told, file=sys.stderr)
        for what, name, box, was in zip(BREAKS, group.names, boxes, before, strict=True):
            hosts.up(name, HOST)
            now = outside.look(box)
            kept = {"versions": stage.versions, "before": asdict(was), "now": asdict(now)}
            if BREAKS[what][1] != ("secret",):  # that is looked for on the host itself
                (RECORDED / f"{what}.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
            found = outside.judge(was, now, stage.versions, died=False)
            yield what, [*found, *outside.secret_on_host(stage.secret, box)]
    finally:
        group.close()
