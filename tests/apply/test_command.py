"""The result of `gpuprov apply`, as it is printed and written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpuprov.apply import command
from gpuprov.apply.first_look import left
from gpuprov.apply.model import ApplyRun, HostOutcome, Options
from gpuprov.core.errors import GpuprovError, UnreachableError
from gpuprov.plan.read import Pair
from gpuprov.spec.model import HostSpec, RawHost

PAIR: Pair = (RawHost(name="gpu1", values={"nouveau": {}}), HostSpec(name="gpu1"))
FULL = GpuprovError("gpu2: 10 MB are free, and the packages need 900 MB", "make room")
AWAY = UnreachableError("gpu3 does not answer", "see that it runs")


@pytest.mark.parametrize(
    ("reasons", "code"), [({}, 0), ({"gpu2": FULL}, 3), ({"gpu3": AWAY}, 4), ({"gpu2": FULL, "gpu3": AWAY}, 3)]
)
def test_hosts_that_take_no_part_stand_in_every_result(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    reasons: dict[str, GpuprovError],
    code: int,
) -> None:
    def apply(pairs: Sequence[Pair], options: Options, *_: Any, **__: Any) -> ApplyRun:
        assert not options.reboot
        return ApplyRun(run="r1", hosts=[HostOutcome(host=raw.name) for raw, _ in pairs])

    monkeypatch.setattr(command, "apply", apply)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    page = tmp_path / "page.html"
    left_out = {name: left(name, error) for name, error in reasons.items()}
    assert command.run([PAIR], Options(as_json=True), html=page, left_out=left_out) == code
    told = {one["host"]: one for one in json.loads(capsys.readouterr().out)["hosts"]}
    assert told.keys() == {"gpu1", *reasons}
    for name, error in reasons.items():
        assert told[name]["state"] == ("unreachable" if error is AWAY else "blocked")
        assert told[name]["message"] in error.message
        assert told[name]["fix"] == error.fix
        assert name in page.read_text(encoding="utf-8")
