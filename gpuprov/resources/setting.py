"""A setting of the kernel, of a device or of a service as a resource: a value that holds until something sets
another."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from gpuprov.host_code import settings
from gpuprov.resources.difference import Difference

# Values of a host, by device and key.
Values = Mapping[tuple[str, str], str]
How = Literal["equal", "least", "exact"]


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A value that a key should have, of a device if it is a device's."""

    # What is set, in the words of a plan, which names it `DEVICE KIND` unless `name` says otherwise.
    kind: str
    value: str
    device: str = ""
    key: str = ""
    name: str = ""
    # The predicate of the comparison (gpuprov/host_code/settings.py).
    how: How = "equal"
    # How a difference is reported: {key} and {before} stand for what differs, {devices} and {values} (KEY=BEFORE) for
    # all that is reported in the same words.
    words: str = "{values}"
    # `shown`, `before`: the value, and the host's other one, as a plan shows them, where they are not as they are set.
    shown: str | None = None
    before: str | None = None
    # The word for a value that the host does not have.
    missing: str = "missing"
    # The file by which apply sets it, which a plan names then.
    file: str = ""
    # When it holds.
    moment: Literal["now", "next-boot"] = "now"
    # Why only a reboot brings it.
    reboot: str = ""
    # It takes GPUs, or devices, that nobody uses.
    clients: bool = False
    # What to do where it differs; empty: apply.
    fix: str = ""
    # A file of others decides it, whatever apply does.
    outdone: bool = False

    @property
    def label(self) -> str:
        """The setting as a plan names it."""
        return self.name or " ".join(filter(None, (self.device, self.kind)))

    @property
    def end(self) -> str:
        """The value as a plan shows it."""
        return self.value if self.shown is None else self.shown

    def compare(self, values: Values) -> Difference | None:
        """Compare it with what the host has."""
        actual = values.get((self.device, self.key))
        if settings.is_met(self.value, actual, self.how):
            return None
        before = self.missing if actual is None else actual
        words = self.words.replace("{key}", self.key).replace("{before}", before)
        return Difference(
            self.file or self.label,
            before if self.before is None else self.before,
            self.end,
            kind="file" if self.file else "setting",
            device=f"{self.key}={before}" if "{values}" in words else self.device,
            words=words.replace("{values}", "{devices}"),
            moment=self.moment,
            reboot=self.reboot,
            fix=self.fix,
            outdone=self.outdone,
        )


def describe_setting(setting: Setting) -> str:
    """Describe the wanted value, when it holds, and what it takes."""
    notes = ["at the next boot"] * (setting.moment == "next-boot") + ["takes idle devices"] * setting.clients
    return " ".join([setting.end, *([f"({', '.join(notes)})"] if notes else [])])
