"""A unit of systemd as a resource."""

import msgspec

from gpuprov.host_code.wanted_units import Wanted


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """A unit of systemd. `enabled`: whether it starts at a boot, `active`: whether it runs; None: either is right.

    `waits`: why it cannot run on this host, and so need not. `reboot`: why it runs only after a reboot, before which it
    is not started. `outdated`: why it has to be started anew though it runs. `message`: the last output of its program,
    in place of what the journal has, which is reported where it failed; `note`: what else is reported where it does not
    run as it should. `fix`: what to do where it failed, `missing`: where there is no such unit; empty: apply.

    `reads`: what a daemon has read at its start: its program and the libraries that it loads, files of its settings,
    and folders of such files. While it runs, it is outdated if the content of one of them is newer than its start.
    `process`: the daemon's program among the unit's processes; empty: the main process.
    """

    name: str
    enabled: bool | None = None
    active: bool | None = None
    waits: str = ""
    reboot: str = ""
    outdated: str = ""
    message: str = ""
    fix: str = ""
    missing: str = ""
    note: str = ""
    reads: tuple[str, ...] = ()
    process: str = ""

    @property
    def desired(self) -> Wanted:
        return Wanted(self.name, self.enabled, self.active, self.outdated)


def in_words(unit: Unit) -> str:
    """Describe the wanted state, `enabled, active`, and why it cannot run."""
    words = [] if unit.enabled is None else ["enabled" if unit.enabled else "not enabled"]
    words += [] if unit.active is None else ["active" if unit.active else "stopped"]
    return (", ".join(words) or "as it is") + (f" ({unit.waits})" if unit.waits else "")
