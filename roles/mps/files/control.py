# A running MPS control daemon: asked, and told its limits. Python 3.6 and newer, standard library only.
# Commands and answers: https://docs.nvidia.com/deploy/mps/mpsv2-interface.html and mpsv3-interface.html
import os
import re
import subprocess
import time

from devices import Problem

PATIENCE = 10.0
"""Seconds for one answer: the program waits for ever on a daemon that hangs."""
PARTITION = re.compile(r"(GPU-[0-9a-f-]+/\S+)")


class Restart(Problem):
    """Why only a restart of the daemon brings what the configuration says."""


def shown(limit):
    """A memory limit as the daemon shows it: from 1024M on in whole gigabytes, rounded down."""
    number, unit = int(limit[:-1]), limit[-1]
    return "%dG" % (number // 1024) if unit == "M" and number >= 1024 else "%d%s" % (number, unit)


class Control:
    """One daemon, by its directories."""

    def __init__(self, daemon, config):
        self.daemon, self.config = daemon, config
        self.v3 = config["protocol"] == "v3"
        self.server = config["paths"]["server"]
        self.environment = dict(
            os.environ, CUDA_MPS_PIPE_DIRECTORY=daemon["pipe"], CUDA_MPS_LOG_DIRECTORY=daemon["log"]
        )

    def run(self, arguments, text, patience=PATIENCE):
        """(status, what it printed); Problem where it does not end in time."""
        process = subprocess.Popen(
            [self.config["control"]] + arguments,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
        )
        try:
            output, _ = process.communicate(text, timeout=patience)
        except subprocess.TimeoutExpired as error:
            process.kill()
            process.communicate()
            raise Problem(
                "%s does not answer within %d s: systemctl restart gpuprov-mps@%s"
                % (self.config["control"], patience, self.daemon["name"])
            ) from error
        return process.returncode, output.strip()

    def ask(self, command):
        """A command of protocol 2; Problem where there is no daemon."""
        status, output = self.run([], command + "\n")
        if status:
            raise Problem("gpuprov-mps@%s: %s: %s" % (self.daemon["name"], command, output or "status %d" % status))
        return output

    def ask3(self, *words):
        """A command of protocol 3."""
        status, output = self.run(list(words), "")
        if status:
            raise Problem(
                "gpuprov-mps@%s: %s: %s" % (self.daemon["name"], " ".join(words), output or "status %d" % status)
            )
        return output

    def wait(self, seconds=30.0):
        """Until the daemon answers."""
        end = time.monotonic() + seconds
        while True:
            try:
                return self.ask3("server", "list") if self.v3 else self.ask("get_default_active_thread_percentage")
            except Problem:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)

    def stop(self, seconds):
        """End the daemon with its servers; after these seconds clients are not waited for. A status other than 0 is no failure."""
        if self.v3:
            return self.run(["-q"], "", seconds + PATIENCE)
        return self.run([], "quit -t %d\n" % seconds, seconds + PATIENCE)

    def servers(self):
        """PIDs of the running servers."""
        if self.v3:
            rows = [line.split(",") for line in self.ask3("server", "list", "--format=csv,noheader").splitlines()]
            return [row[2] for row in rows if len(row) > 2 and row[2].isdigit()]
        return [line for line in self.ask("get_server_list").split() if line.isdigit()]

    def clients(self):
        """PIDs of the processes that use it now."""
        if self.v3:
            rows = self.ask3("client", "list", "--all", "--format=csv,noheader").splitlines()
            return [row.split(",")[0] for row in rows if row.split(",")[0].isdigit()]
        return [
            pid for server in self.servers() for pid in self.ask("get_client_list " + server).split() if pid.isdigit()
        ]

    def limits(self):
        """Device ordinal and memory limit, in the daemon's order, as asked for."""
        wanted, memory = [], self.config["memory"]
        for ordinal, device in enumerate(self.daemon["devices"]):
            gpu = self.daemon["gpus"][ordinal] if not self.daemon["mig"] else None
            names = [key for key in memory if key == "all" or (gpu and names_it(key, gpu))]
            chosen = [name for name in names if name != "all"] or names
            wanted.append((ordinal, device, memory[chosen[0]] if chosen else ""))
        return wanted

    def settle(self, change=True):
        """What differs from the configuration, put right if `change`. Servers that run are told too; their clients keep what they have."""
        return self.settle3(change) if self.v3 else self.settle2(change)

    def settle2(self, change):
        told, config = [], self.config
        percentage = "%.1f" % config["percentage"]
        pairs = [
            (
                "get_default_active_thread_percentage",
                percentage,
                "set_default_active_thread_percentage %d" % config["percentage"],
            ),
            ("get_default_client_priority", config["priority"], "set_default_client_priority " + config["priority"]),
        ]
        for ordinal, _, limit in self.limits():
            ask = "get_default_device_pinned_mem_limit %d" % ordinal
            if limit:
                pairs.append((ask, shown(limit), "set_default_device_pinned_mem_limit %d %s" % (ordinal, limit)))
            elif self.ask(ask):
                raise Restart(
                    "it has a memory limit of device %d that the spec has not, and no command takes one away" % ordinal
                )
        for server in self.servers() if not config["partitions"] else []:
            pairs.append(
                (
                    "get_active_thread_percentage " + server,
                    percentage,
                    "set_active_thread_percentage %s %d" % (server, config["percentage"]),
                )
            )
            pairs += [
                (
                    "get_device_pinned_mem_limit %s %d" % (server, ordinal),
                    shown(limit),
                    "set_device_pinned_mem_limit %s %d %s" % (server, ordinal, limit),
                )
                for ordinal, _, limit in self.limits()
                if limit
            ]
        for ask, wanted, command in pairs:
            found = self.ask(ask)
            if found == wanted:
                continue
            told.append("%s: %s -> %s" % (ask.replace("get_", "", 1), found or "none", wanted))
            if change:
                self.ask(command)
                if self.ask(ask) != wanted:
                    raise Problem(
                        "gpuprov-mps@%s: %s had no effect: see %s/control.log"
                        % (self.daemon["name"], command, self.daemon["log"])
                    )
        return told

    def settle3(self, change):
        told = []
        wanted = [
            ("active-thread-percentage", str(self.config["percentage"])),
            ("client-priority", self.config["priority"]),
        ]
        wanted += [("pinned-memory-limit", self.config["memory"]["all"])] if self.config["memory"] else []
        for field, value in wanted:
            found = self.ask3("namespace", "get", "default", self.server, field)
            if found in (value, value + ".0", shown(value) if value[-1:] in "GM" else value):
                continue
            told.append("%s: %s -> %s" % (field, found or "none", value))
            if change:
                self.ask3("server", "set", self.server, "--%s=%s" % (field, value))
        return told

    def partitions(self):
        """Partitions by device: {UUID: [(chunks, partition)]}."""
        rows = {}
        if self.v3:
            lines = self.ask3(
                "sm-partition", "list", "--server=" + self.server, "--all", "--format=csv,noheader"
            ).splitlines()
            for cells in [[cell.strip() for cell in line.split(",")] for line in lines]:
                if len(cells) > 7 and cells[6] == "created":
                    rows.setdefault(cells[1], []).append((int(cells[3]), "%s/%s" % (cells[1], cells[7])))
            return rows
        for line in self.ask("lspart").splitlines():
            cells = line.split()
            if len(cells) > 3 and cells[0].startswith("GPU-") and cells[1] != "-" and cells[3].isdigit():
                full = next((one for one in self.daemon["devices"] if one.startswith(cells[0])), cells[0])
                rows.setdefault(full, []).append((int(cells[3]), "%s/%s" % (full, cells[1])))
        return rows

    def partition(self, change=True):
        """What partitions differ from the configuration, made or removed if `change`; those of protocol 3 are made at start."""
        told = []
        for uuid in self.daemon["devices"] if self.config["partitions"] else []:
            there, missing = list(self.partitions().get(uuid, [])), []
            for chunks in self.config["partitions"]:
                same = next((one for one in there if one[0] == chunks), None)
                missing += [] if same else [chunks]
                there.remove(same) if same else None
            told += ["SM partition %s: removed" % name for _, name in there]
            told += ["SM partition of %d chunks on %s: made" % (chunks, uuid) for chunks in missing]
            if self.v3 and told:
                raise Restart("it has other SM partitions")
            for _, name in there if change else []:
                self.ask("sm_partition rm %s %s" % (uuid, name.partition("/")[2]))
            for chunks in missing if change else []:
                answer = self.ask("sm_partition add %s %d" % (uuid, chunks))
                if not PARTITION.search(answer):
                    raise Problem(
                        "gpuprov-mps@%s: no SM partition of %d chunks on %s: %s"
                        % (self.daemon["name"], chunks, uuid, answer)
                    )
        return told


def names_it(key, gpu):
    """Whether an index, a PCI address or the beginning of a UUID names this GPU."""
    text = key.lower()
    return text == str(gpu["index"]) or gpu["uuid"].startswith(key) or text in (gpu["address"], gpu["address"][5:])
