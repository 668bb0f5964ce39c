"""Run at each boot by gpuprov-gpu-settings.service: wait for the driver, then set what its configuration says."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Sequence

from .act import Answer, run
from .selection import Config

CONFIG = "/etc/gpuprov/gpu_settings.json"
PROGRAM = "gpuprov-gpu-settings"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description="Settings of this host's GPUs, as gpuprov wrote them down."
    )
    parser.add_argument("--config", default=CONFIG, metavar="FILE", help=f"what is asked for ({CONFIG})")
    parser.add_argument(
        "--wait", type=float, default=0, metavar="SECONDS", help="how long to wait for the driver's GPUs"
    )
    options = parser.parse_args(arguments)
    try:
        with open(options.config, encoding="utf-8") as file:
            config = json.load(file)
        answer = wait_for_gpus(config, options.wait)
    except (OSError, ValueError, KeyError, TypeError) as error:
        answer = Answer(problems=[f"{options.config} cannot be read ({error}); gpuprov apply writes it anew"])
    for step in answer.steps:
        print(step)
    if answer.waiting:
        print(f"the ECC mode of {', '.join(answer.waiting)} changes at the next boot")
    for problem in answer.problems:
        print(f"{PROGRAM}: {problem}", file=sys.stderr)
    return 1 if answer.problems else 0


def wait_for_gpus(config: Config, seconds: float) -> Answer:
    if not isinstance(config, dict):
        raise TypeError("it is not an object")
    end = time.monotonic() + seconds
    while True:
        answer = run(config, change=True, partly=True)
        if answer.driver or time.monotonic() >= end:
            return answer
        time.sleep(2)


if __name__ == "__main__":
    sys.exit(main())
