"""Stand-ins of scontrol and squeue: what real ones of Slurm 22.05 and 24.11 have said, of a node that a file keeps.

tests/e2e/test_drain_slurm.py has the real ones.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

DATA = Path(__file__).parent / "data"
PROGRAM = """#!{python}
import json, os, pathlib, sys
folder = pathlib.Path({folder!r})
asked = sys.argv[1:]
with open(folder / "asked", "a") as file:
    file.write(json.dumps([{name!r}, *asked]) + "\\n")
state = json.loads((folder / "cluster.json").read_text())
node = state["nodes"].get(next((a.split("=")[-1] for a in asked if a.split("=")[-1] in state["nodes"]), ""))
def fail(words):
    print(words, file=sys.stderr)
    sys.exit(1)
if state.get("fails"):
    fail(state["fails"])
if {name!r} == "squeue":
    hidden = os.environ.get("SQUEUE_STATES", "")
    state["jobs"] = [job for job in state["jobs"] if not hidden or job.split()[1] in hidden.split(",")]
    print("\\n".join(state["jobs"]), end="\\n" if state["jobs"] else "")
elif asked[0] == "show":
    if "--json" in asked:
        fail("scontrol: unrecognized option '--json'\\nTry \\"scontrol --help\\" for more information")
    if state.get("said") is not None:
        sys.stdout.buffer.write(state["said"].encode("latin-1"))
        sys.exit(0)
    if node is None:
        fail(f"Node {{asked[2]}} not found")
    at = "Ystday 18:29" if os.environ.get("SLURM_TIME_FORMAT") == "relative" else "2026-11-23T18:29:20"
    template = pathlib.Path({template!r}).read_text().splitlines()
    for line in template:
        if line.startswith("NodeName="):
            line = line.replace("gpu4", asked[2])
        if line.startswith("   State="):
            line = f"   State={{node['state']}} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A"
        if line.startswith("   Reason="):
            if not node["reason"]:
                continue
            line = "   Reason=" + node["reason"].replace("\\n", f" [root@{{at}}]\\n          ", 1)
            line += "" if "\\n" in node["reason"] else f" [root@{{at}}]"
        print(line)
elif asked[0] == "update":
    if state.get("denied"):
        fail("slurm_update error: " + state["denied"])
    given = dict(word.split("=", 1) for word in asked[1:])
    if state.get("meanwhile"):
        node.update(state["meanwhile"])
    elif given["State"] == "DRAIN":
        node["state"], node["reason"] = node["state"].split("+")[0] + "+DRAIN", given["Reason"]
    else:
        node["state"], node["reason"] = "IDLE+NOT_RESPONDING", ""
    (folder / "cluster.json").write_text(json.dumps(state))
"""


class Cluster:
    """A node, gpu1, and what is on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("scontrol", "squeue"):
            program = folder / name
            template = str(DATA / "node-22.05-gpu4.txt")
            program.write_text(PROGRAM.format(python=sys.executable, folder=str(folder), name=name, template=template))
            program.chmod(0o755)
        (folder / "asked").touch()
        self.put()

    def put(self, state: str = "IDLE", reason: str = "", jobs: tuple[str, ...] = (), **more: object) -> None:
        """What there is now."""
        node = {"state": state, "reason": reason}
        told = {"nodes": {"gpu1": node}, "jobs": list(jobs), **more}
        (self.folder / "cluster.json").write_text(json.dumps(told))

    @property
    def node(self) -> tuple[str, str]:
        """State and reason of gpu1."""
        node = json.loads((self.folder / "cluster.json").read_text())["nodes"]["gpu1"]
        return node["state"], node["reason"]

    @property
    def changes(self) -> list[list[str]]:
        """What was asked that changes something."""
        asked = [json.loads(line) for line in (self.folder / "asked").read_text().splitlines()]
        return [words[1:] for words in asked if words[0] == "scontrol" and words[1] != "show"]
