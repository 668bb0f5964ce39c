"""MIG of this host according to /etc/gpuprov/mig.json: `python -m mig state|plan|apply|boot`.

state: the current state. plan: the changes by apply; changes nothing. apply: make them. boot: wait for the driver's
GPUs, then apply. Standard output is one JSON object; `problem` in it, and one line on standard error, give the reason
for a failure. Exit status: 0 it matches (plan: it can), 1 it does not, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import sys
import time
from typing import Any, Sequence

from . import users as mig_users
from .apply import Broken, Judged, Refused, carry_out, describe_state
from .nvml import Nvml

WANTED = "/etc/gpuprov/mig.json"
MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "models.json")
LOCK = "/run/gpuprov-mig.lock"
POLL = 1.0


class NoDriver(Refused):
    """NVML does not answer, or does not see all GPUs yet."""


def load(path: str) -> Any:
    """Return the contents of a JSON file. Raises Refused."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise Refused(f"{path}: {error}; gpuprov apply writes it again") from error


def open_nvml(models: dict[str, str], wait: float = 0, binding: Any = None) -> Nvml:
    """Return NVML, once it answers and sees every GPU that the driver is bound to. Raises NoDriver when the time is
    up."""
    until = time.monotonic() + wait
    while True:
        try:
            nvml = Nvml(models, binding)
            seen, bound = len(nvml.handles()), len(list_bound_gpus())
        except Exception as error:  # pynvml is imported here, so that its errors have no name yet
            wrong = f"NVML does not answer: {error}"
        else:
            if seen and seen >= bound:
                return nvml
            wrong = f"NVML sees {seen} of the {bound} GPUs that the driver has"
            nvml.close()
        if time.monotonic() >= until:
            raise NoDriver(f"{wrong}; nvidia-smi -L, and dmesg | grep NVRM, say more")
        time.sleep(POLL)


def list_bound_gpus() -> list[str]:
    """Return the GPUs that the driver has found, by address, without those that it is configured to leave out
    (NVreg_ExcludedGpus)."""
    folder = os.path.join(mig_users.ROOT, "proc/driver/nvidia/gpus")
    gpus = []
    for address in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        try:
            with open(os.path.join(folder, address, "information"), encoding="utf-8", errors="replace") as file:
                # /proc/driver/nvidia/gpus/0001:12:00.0/information: `GPU Excluded:    Yes`
                excluded = re.search(r"^GPU Excluded:\s*Yes", file.read(), re.MULTILINE)
        except OSError:
            excluded = None
        if not excluded:
            gpus.append(address)
    return gpus


def run(options: argparse.Namespace, binding: Any = None) -> dict[str, Any]:
    """Return the answer to one command. Raises Refused."""
    config = {} if options.command == "state" else load(options.wanted)
    nvml, failed = open_nvml(load(options.models), options.wait, binding), Refused
    try:
        if options.command == "state":
            cards = nvml.cards()
            return describe_state(cards, mig_users.list_users(nvml, cards))
        plan = Judged(nvml, config, options.services)
        answer = plan.answer()
        if options.command == "plan" or not answer["changed"]:
            return answer
        if answer["problem"]:
            return {**answer, "changed": False}
        failed = Broken
        problem = carry_out(nvml, plan, options.services, may_reset=options.may_reset)
        remaining = Judged(nvml, config, options.services).answer()["steps"]
        if remaining and not problem:
            problem = f"the driver did not do all that it was asked; still to do: {'; '.join(remaining)}"
        return {**answer, "problem": problem}
    except nvml.error as error:
        raise failed(f"NVML: {error}; nvidia-smi, and dmesg | grep NVRM, say more") from error
    finally:
        nvml.close()


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="MIG mode, GPU instances and compute instances of this host")
    parser.add_argument("command", choices=["state", "plan", "apply", "boot"])
    parser.add_argument("--wanted", default=WANTED, metavar="FILE", help=f"what is wanted ({WANTED})")
    parser.add_argument("--models", default=MODELS, metavar="FILE", help="models by PCI id")
    parser.add_argument(
        "--wait", type=float, default=0, metavar="SECONDS", help="how long to wait for the driver's GPUs"
    )
    parser.add_argument(
        "--services", default="", metavar="UNIT,...", help="units that are stopped for it, so that they do not count"
    )
    parser.add_argument("--may-reset", action="store_true", help="reset a GPU by nvidia-smi where NVML could not")
    options = parser.parse_args(arguments)
    options.services = [unit for unit in options.services.split(",") if unit]
    return options


def main(arguments: Sequence[str] | None = None, binding: Any = None) -> int:
    options = parse_arguments(arguments)
    try:
        if options.command in ("apply", "boot"):
            with open(LOCK, "w", encoding="utf-8") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                answer = run(options, binding)
        else:
            answer = run(options, binding)
    except Refused as refused:
        answer = {key: [] for key in ("steps", "in_use", "resets", "services", "beside", "watching")}
        answer.update(driver=not isinstance(refused, NoDriver), changed=refused.midway, problem=str(refused))
        answer["reboot"] = refused.reboot
    if options.command != "boot":
        print(json.dumps(answer))
    elif not answer["problem"]:
        print("\n".join(answer["steps"]) or "matches the spec: nothing changed")
    if answer["problem"]:
        print(f"gpuprov-mig: {answer['problem']}", file=sys.stderr)
    return 1 if answer["problem"] else 0


if __name__ == "__main__":
    sys.exit(main())
