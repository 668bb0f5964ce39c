"""A masked unit: plan and apply refuse it before anything changes, and verify says how to unmask it."""

from __future__ import annotations

import pytest

from gpuprov.capabilities import BY_NAME
from gpuprov.capabilities.base import Context, Outcome
from gpuprov.host_code.unit_files import parse_show
from gpuprov.host_code.wanted_units import Wanted, list_differences
from gpuprov.spec.model import HostSpec
from tests.capabilities.asking import CHECKS, facts, good

UNIT = "nvidia-persistenced.service"
OTHER = "Id=gpuprov-persistence.service\nLoadState=not-found\nActiveState=inactive\nUnitFileState=\n\n"


def show(file: str, active: str = "active", wanted: str = "multi-user.target") -> str:
    """How systemd shows a unit in this state, whose package's file is newer than what systemd has read."""
    return (
        f"Id={UNIT}\nLoadState={'masked' if file.startswith('masked') else 'loaded'}\nNeedDaemonReload=yes\n"
        f"ActiveState={active}\nUnitFileState={file}\nWantedBy={wanted}\n\n"
    )


def ask(check: str, shown: str, *more: str) -> Outcome:
    text = "\n".join(["@contents", *(f"unit|{line}" for line in (shown + OTHER).split("\n")[:-1]), *more]) + "\n"
    texts = {**good(), "contents": text}
    block = BY_NAME["persistence"].fragment()
    spec = HostSpec(name="gpu1", capabilities={"persistence": block})
    return CHECKS[f"persistence.{check}"].run(Context(spec, block, facts(**texts)))


@pytest.mark.parametrize(
    ("file", "fix"),
    [("masked", f"systemctl unmask {UNIT}"), ("masked-runtime", f"systemctl unmask --runtime {UNIT}")],
)
def test_apply_is_refused_before_it_begins(file: str, fix: str) -> None:
    outcome = ask("unmasked", show(file))
    assert (outcome.status, outcome.fix) == ("fail", fix)
    assert f"{UNIT} is {file}" in outcome.found


def test_masks_that_dpkg_left_go_with_the_installation() -> None:
    assert ask("unmasked", show("masked"), f"dpkg|{UNIT}").status == "pass"
    assert ask("unmasked", show("enabled")).status == "pass"


def test_verify_names_the_mask_alone_and_no_change_of_apply() -> None:
    outcome = ask("enabled", show("masked"))
    assert (outcome.status, outcome.found) == ("fail", f"{UNIT} is masked")
    assert not outcome.changes, "apply does not unmask it"


def test_a_mask_in_run_is_gone_after_a_boot() -> None:
    wanted = [Wanted(UNIT, enabled=True, active=True)]
    assert [one.moment for one in list_differences(wanted, parse_show(show("masked-runtime")))] == ["now"]
    both = list_differences(wanted, parse_show(show("masked-runtime", wanted="")))
    assert [one.moment for one in both] == ["next-boot", "now"]
    off = list_differences([Wanted(UNIT, enabled=False)], parse_show(show("masked-runtime")))
    assert [(one.moment, one.after) for one in off] == [("next-boot", "disabled")]
    assert not list_differences([Wanted(UNIT, enabled=False)], parse_show(show("masked")))
    now = ask("active", show("masked-runtime"))
    assert (now.status, now.fix) == ("fail", f"systemctl unmask --runtime {UNIT}")
