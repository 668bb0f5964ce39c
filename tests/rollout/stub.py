"""Stands for `gpuprov fleet work` where hosts are many or are to fail: the same arguments, files and heartbeats, and no
host.

`$STUB/behaviour.json`: by host what each attempt at apply comes to (the last one stays), and `seconds` that a host
takes. `$STUB/log`: a line for the begin and the end of each host. As `gpuprov fleet work` it leaves out hosts whose
result of this run and act is green.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

RESULTS: dict[str, dict[str, object]] = {
    "green": {"state": "changed", "verdict": "matches"},
    "failed": {"state": "failed", "message": "nvidia_driver: Install the set: apt-get ended with 100"},
    "locked": {"state": "locked", "message": "locked by run 4711"},
    "unreachable": {"state": "unreachable", "message": "no route to host"},
    "unproven": {"state": "changed", "verdict": "not proven"},
    "wrong": {"state": "changed", "verdict": "differs"},
    "repaired": {"state": "changed", "verdict": "matches", "repair": "done"},
    "unrepaired": {"state": "blocked", "message": "no repair is left for it", "repair": "none left"},
    "waits": {"state": "changed", "verdict": "differs", "reboot": ["the running driver is 535"]},
}


def stamp() -> str:
    return f"{datetime.now(UTC).isoformat(timespec='milliseconds').removesuffix('+00:00')}Z"


def note(folder: Path, *words: object) -> None:
    handle = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(handle, (" ".join(map(str, words)) + "\n").encode())
    os.close(handle)


def beat(state: str, done: int, of: int, host: str = "") -> None:
    print(json.dumps({"at": stamp(), "state": state, "done": done, "of": of, "host": host}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("job", type=Path)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--act", default="apply")
    parser.add_argument("--run", required=True)
    parser.add_argument("--reboot", action="store_true")
    parser.add_argument("--repair", type=int, default=-1)
    given = parser.parse_args()
    stub = Path(os.environ["STUB"])
    with (stub / "folders").open("a") as folders:
        folders.write(f"{Path.cwd()}\n")
    behaviour = json.loads((stub / "behaviour.json").read_text())
    job = json.loads(given.job.read_text())
    given.results.mkdir(parents=True, exist_ok=True)
    for number, host in enumerate(job["hosts"]):
        name = host["name"]
        target = given.results / f"{name}.json"
        known = json.loads(target.read_text()) if target.exists() else {}
        if (known.get("run"), known.get("act"), known.get("verdict")) == (given.run, given.act, "matches"):
            continue
        begun = stamp()
        note(stub, "begin", given.act, name, os.getpid())
        time.sleep(behaviour.get("seconds", 0))
        words = behaviour.get(name if given.act == "apply" else f"{given.act} {name}", ["green"])
        tries = sum(line.startswith(f"end {given.act} {name} ") for line in (stub / "log").read_text().splitlines())
        if "repaired" in words and given.act == "apply":
            with (stub / "repairs").open("a") as repairs:
                repairs.write(f"{name} {given.repair}\n")
            words = words if given.repair > 0 else ["unrepaired"]
            given.repair -= 1
        result = dict(RESULTS[words[min(tries, len(words) - 1)]])
        if result["state"] == "changed" and given.act != "apply":
            result["state"] = {"verify": "verified", "prepare": "prepared"}[given.act]
        note(stub, "end", given.act, name, os.getpid())
        head = {"gpuprov_result": 1, "run": given.run, "job": job["digest"], "fleet": job["fleet"], "host": name}
        part = given.results / f".{name}.{os.getpid()}"
        with part.open("w") as file:
            json.dump({**head, "act": given.act, **result, "started": begun, "ended": stamp()}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
        beat(str(result["state"]), number + 1, len(job["hosts"]), name)
    sys.exit(0)


if __name__ == "__main__":
    main()
