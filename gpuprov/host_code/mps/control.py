"""A running MPS control daemon: queries and limits.

Commands and answers: https://docs.nvidia.com/deploy/mps/mpsv2-interface.html and mpsv3-interface.html
"""

from __future__ import annotations

import os
import re
import subprocess
import time

from .devices import Config, Daemon, Gpu, Problem

# Seconds for one answer: the program waits for ever for a daemon that hangs.
PATIENCE = 10.0
PARTITION = re.compile(r"(GPU-[0-9a-f-]+/\S+)")


class Restart(Problem):
    """The reason why only a restart of the daemon applies its configuration."""


def format_limit(limit: str) -> str:
    """Return a memory limit as the daemon shows it: from 1024M on in whole gigabytes, rounded down."""
    number, unit = int(limit[:-1]), limit[-1]
    return f"{number // 1024}G" if unit == "M" and number >= 1024 else f"{number}{unit}"


class Control:
    """One daemon, by its directories."""

    def __init__(self, daemon: Daemon, config: Config) -> None:
        self.daemon, self.config = daemon, config
        self.v3 = config["protocol"] == "v3"
        self.server = config["paths"]["server"]
        self.environment = dict(
            os.environ, CUDA_MPS_PIPE_DIRECTORY=daemon["pipe"], CUDA_MPS_LOG_DIRECTORY=daemon["log"]
        )

    def run(self, arguments: list[str], text: str, patience: float = PATIENCE) -> tuple[int, str]:
        """Run the control program; return (status, output). Raises Problem if it does not end in time."""
        process = subprocess.Popen(
            [self.config["control"]] + arguments,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        )
        try:
            output, _ = process.communicate(text, timeout=patience)
        except subprocess.TimeoutExpired as error:
            process.kill()
            process.communicate()
            raise Problem(
                f"{self.config['control']} does not answer within {patience:.0f} s: "
                f"systemctl restart gpuprov-mps@{self.daemon['name']}"
            ) from error
        return process.returncode, output.strip()

    def ask(self, command: str) -> str:
        """Return the answer to a command of protocol 2. Raises Problem if there is no daemon."""
        status, output = self.run([], command + "\n")
        if status:
            raise Problem(f"gpuprov-mps@{self.daemon['name']}: {command}: {output or f'status {status}'}")
        return output

    def ask3(self, *words: str) -> str:
        """Return the answer to a command of protocol 3."""
        status, output = self.run(list(words), "")
        if status:
            raise Problem(f"gpuprov-mps@{self.daemon['name']}: {' '.join(words)}: {output or f'status {status}'}")
        return output

    def wait(self, seconds: float = 30.0) -> str:
        """Wait until the daemon answers."""
        end = time.monotonic() + seconds
        while True:
            try:
                return self.ask3("server", "list") if self.v3 else self.ask("get_default_active_thread_percentage")
            except Problem:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)

    def stop(self, seconds: int) -> tuple[int, str]:
        """End the daemon with its servers; after these seconds it no longer waits for clients. A status other than 0 is
        no failure."""
        if self.v3:
            return self.run(["-q"], "", seconds + PATIENCE)
        return self.run([], f"quit -t {seconds}\n", seconds + PATIENCE)

    def servers(self) -> list[str]:
        """Return PIDs of the running servers."""
        if self.v3:
            rows = [line.split(",") for line in self.ask3("server", "list", "--format=csv,noheader").splitlines()]
            return [row[2] for row in rows if len(row) > 2 and row[2].isdigit()]
        return [line for line in self.ask("get_server_list").split() if line.isdigit()]

    def clients(self) -> list[str]:
        """Return PIDs of the current clients."""
        if self.v3:
            rows = self.ask3("client", "list", "--all", "--format=csv,noheader").splitlines()
            return [row.split(",")[0] for row in rows if row.split(",")[0].isdigit()]
        return [
            pid for server in self.servers() for pid in self.ask("get_client_list " + server).split() if pid.isdigit()
        ]

    def limits(self) -> list[tuple[int, str, str]]:
        """Return device ordinal and memory limit, in the daemon's order, as configured."""
        settings, memory = [], self.config["memory"]
        for ordinal, device in enumerate(self.daemon["devices"]):
            gpu = self.daemon["gpus"][ordinal] if not self.daemon["mig"] else None
            names = [key for key in memory if key == "all" or (gpu and is_name_of(key, gpu))]
            chosen = [name for name in names if name != "all"] or names
            settings.append((ordinal, device, memory[chosen[0]] if chosen else ""))
        return settings

    def settle(self, change: bool = True) -> list[str]:
        """List the differences from the configuration, and fix them if `change`. Running servers are updated, too;
        their clients keep their limits."""
        return self.settle3(change) if self.v3 else self.settle2(change)

    def settle2(self, change: bool) -> list[str]:
        changes = []
        for ask, desired, command in [*self.list_defaults(), *self.list_limits_of_servers()]:
            actual = self.ask(ask)
            if actual == desired:
                continue
            changes.append(f"{ask.replace('get_', '', 1)}: {actual or 'none'} -> {desired}")
            if change:
                self.ask(command)
                if self.ask(ask) != desired:
                    log = f"{self.daemon['log']}/control.log"
                    raise Problem(f"gpuprov-mps@{self.daemon['name']}: {command} had no effect: see {log}")
        return changes

    def list_defaults(self) -> list[tuple[str, str, str]]:
        """Return what new servers get: the question, the answer that it should have, and the command for that."""
        percentage, priority = self.config["percentage"], self.config["priority"]
        rows = [
            ("active_thread_percentage", f"{percentage:.1f}", f"{percentage}"),
            ("client_priority", priority, priority),
        ]
        for ordinal, _, limit in self.limits():
            name = f"device_pinned_mem_limit {ordinal}"
            if limit:
                rows.append((name, format_limit(limit), f"{limit}"))
            elif self.ask(f"get_default_{name}"):
                message = f"it has a memory limit of device {ordinal} that the spec has not"
                raise Restart(f"{message}, and no command takes one away")
        return [(f"get_default_{name}", desired, f"set_default_{name} {value}") for name, desired, value in rows]

    def list_limits_of_servers(self) -> list[tuple[str, str, str]]:
        """Return the same for the servers that run."""
        percentage = self.config["percentage"]
        rows = []
        for server in self.servers() if not self.config["partitions"] else []:
            rows.append((f"active_thread_percentage {server}", f"{percentage:.1f}", f"{percentage}"))
            rows += [
                (f"device_pinned_mem_limit {server} {ordinal}", format_limit(limit), f"{limit}")
                for ordinal, _, limit in self.limits()
                if limit
            ]
        return [(f"get_{name}", desired, f"set_{name} {value}") for name, desired, value in rows]

    def settle3(self, change: bool) -> list[str]:
        changes = []
        settings = [
            ("active-thread-percentage", str(self.config["percentage"])),
            ("client-priority", self.config["priority"]),
        ]
        settings += [("pinned-memory-limit", self.config["memory"]["all"])] if self.config["memory"] else []
        for field, value in settings:
            actual = self.ask3("namespace", "get", "default", self.server, field)
            if actual in (value, value + ".0", format_limit(value) if value[-1:] in "GM" else value):
                continue
            changes.append(f"{field}: {actual or 'none'} -> {value}")
            if change:
                self.ask3("server", "set", self.server, f"--{field}={value}")
        return changes

    def partitions(self) -> dict[str, list[tuple[int, str]]]:
        """Return partitions by device: {UUID: [(chunks, partition)]}."""
        rows: dict[str, list[tuple[int, str]]] = {}
        if self.v3:
            lines = self.ask3(
                "sm-partition", "list", "--server=" + self.server, "--all", "--format=csv,noheader"
            ).splitlines()
            for cells in [[cell.strip() for cell in line.split(",")] for line in lines]:
                if len(cells) > 7 and cells[6] == "created":
                    rows.setdefault(cells[1], []).append((int(cells[3]), f"{cells[1]}/{cells[7]}"))
            return rows
        for line in self.ask("lspart").splitlines():
            cells = line.split()
            if len(cells) > 3 and cells[0].startswith("GPU-") and cells[1] != "-" and cells[3].isdigit():
                full = next((device for device in self.daemon["devices"] if device.startswith(cells[0])), cells[0])
                rows.setdefault(full, []).append((int(cells[3]), f"{full}/{cells[1]}"))
        return rows

    def partition(self, change: bool = True) -> list[str]:
        """List the partitions that differ from the configuration, and create or remove them if `change`; those of
        protocol 3 are created at start."""
        changes: list[str] = []
        for uuid in self.daemon["devices"] if self.config["partitions"] else []:
            present, missing = list(self.partitions().get(uuid, [])), []
            for chunks in self.config["partitions"]:
                same = next((partition for partition in present if partition[0] == chunks), None)
                missing += [] if same else [chunks]
                present.remove(same) if same else None
            changes += [f"SM partition {name}: removed" for _, name in present]
            changes += [f"SM partition of {chunks} chunks on {uuid}: made" for chunks in missing]
            if self.v3 and changes:
                raise Restart("it has other SM partitions")
            for _, name in present if change else []:
                self.ask(f"sm_partition rm {uuid} {name.partition('/')[2]}")
            for chunks in missing if change else []:
                answer = self.ask(f"sm_partition add {uuid} {chunks}")
                if not PARTITION.search(answer):
                    raise Problem(
                        f"gpuprov-mps@{self.daemon['name']}: no SM partition of {chunks} chunks on {uuid}: {answer}"
                    )
        return changes


def is_name_of(key: str, gpu: Gpu) -> bool:
    """Return whether an index, a PCI address or the beginning of a UUID is this GPU's."""
    text = key.lower()
    return text == str(gpu["index"]) or gpu["uuid"].startswith(key) or text in (gpu["address"], gpu["address"][5:])
