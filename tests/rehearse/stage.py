"""A rehearsal without simulated hosts: a backend that only notes what it is asked, and acts that answer from a script.

Run as a program (`stage.py FOLDER`) it rehearses one host whose bring-up and reboot take long; tests interrupt it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from gpuprov.apply import ApplyRun, HostOutcome
from gpuprov.core.errors import GpuprovError
from gpuprov.plan.read import Pair
from gpuprov.rehearse import Options, acts, format_text
from gpuprov.rehearse.acts import rehearse
from gpuprov.simulate.description import Description
from gpuprov.simulate.host import SimulatedHost
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.verify.evaluate import Result, ResultStatus


def pair(name: str, connection: dict[str, object] | None = None, **more: Any) -> Pair:
    """A host with a spec that needs no GPU, unless `more` says so."""
    return RawHost(name=name, connection=connection or {}), HostSpec(
        name=name, **{"capabilities": {"kernel": Kernel()}, **more}
    )


class Noting:
    """Backend: notes calls; hosts whose name holds `broken` do not come up, `lost` do not come back, `stuck` stay."""

    def __init__(self, note: Path | None = None, patience: float = 0.0) -> None:
        self.calls: list[tuple[str, str]] = []
        self.present: set[str] = set()
        self._note, self._patience = note, patience

    def _say(self, call: str, name: str) -> None:
        self.calls.append((call, name))
        if self._note:
            with self._note.open("a") as file:
                file.write(f"{call} {name}\n")

    def up(self, name: str, _description: Description, /) -> SimulatedHost:
        self._say("up", name)
        self.present.add(name)
        time.sleep(self._patience)
        if "broken" in name:
            raise GpuprovError(f"{name}: systemd is unknown", "python -m gpuprov.simulate logs")
        return SimulatedHost(name, "192.0.2.1", 22, "gpuadmin", "/key")

    def down(self, name: str, /) -> bool:
        self._say("down", name)
        if "stuck" in name:
            raise GpuprovError(f"{name} cannot be removed")
        self.present.discard(name)
        return True

    def reboot(self, name: str, /) -> None:
        self._say("reboot", name)
        time.sleep(self._patience)
        if "lost" in name:
            raise GpuprovError(f"{name}: no sshd after 180 s")

    def run(self, name: str, _script: str, /) -> str:
        count = sum(call == ("run", name) for call in self.calls)
        self.calls.append(("run", name))
        return f"# packages\na {count}\n# held\n# files\n/etc/new file {count}\n# enabled\n# active\n"

    def logs(self, name: str, /) -> str:
        return f"the last words of {name}\n"


def result(host: str, check: str, status: ResultStatus, **more: Any) -> Result:
    return Result(host=host, capability=check.partition(".")[0], check=check, status=status, **more)


def outcome(name: str, again: bool) -> HostOutcome:
    if "failing" in name:
        return HostOutcome(host=name, state="failed", task="kernel: Write", message="no space", fix="make some")
    if "restless" in name or not again:
        return HostOutcome(host=name, state="changed", ran={"kernel": "never applied"}, changed=["kernel: Write"])
    return HostOutcome(host=name, state="unchanged")


@contextmanager
def scripted(results: Sequence[tuple[str, ResultStatus, dict[str, Any]]] = ()) -> Iterator[None]:
    """apply and verify answer without a host; `results` are those of every host, beside one that passes."""
    applied: set[str] = set()

    def apply(pairs: Sequence[Pair], *_given: Any, **_more: Any) -> ApplyRun:
        outcomes = [outcome(raw.name, raw.name in applied) for raw, _ in pairs]
        applied.update(raw.name for raw, _ in pairs)
        return ApplyRun(run="r", hosts=outcomes)

    def verify(pairs: Sequence[Pair], **_more: Any) -> list[Result]:
        told = [("kernel.sysctl", "pass", {"found": "right"}), ("host.gpu", "skip", {"found": "no GPU"}), *results]
        return [result(raw.name, check, status, **more) for raw, _ in pairs for check, status, more in told]  # type: ignore[arg-type]

    with (
        mock.patch.object(acts, "apply", apply),
        mock.patch.object(acts, "verify", verify),
        mock.patch.object(acts, "plan", return_value=[]),
    ):
        yield


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    with scripted():
        whole = rehearse([pair("gpu01"), pair("gpu02", reboot="if-needed")], Options(), Noting(folder / "note", 0.7))
    print(format_text(whole), flush=True)
    sys.exit(whole.exit_code)
