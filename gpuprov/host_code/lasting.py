"""Settings as the receipt lists them: values that stay when no spec declares them any longer. Pure."""

from __future__ import annotations

from typing import Collection, Iterable, Iterator, NamedTuple, Tuple

# How a line of a setting begins; how that of a check begins whose settings cannot be known, which no receipt keeps.
SETTING, UNREAD = "setting ", "unread "
# What ends a value.
BOOT, DRIVER, AGAIN = "the next boot", "the driver is next loaded", "something sets it again"
# A setting's check, its device and its name.
Place = Tuple[str, str, str]


class Lasting(NamedTuple):
    """A setting that was applied."""

    # The check that compares it.
    check: str
    # Empty if it is not a device's.
    device: str
    name: str
    value: str
    # The value before its first apply; empty if unknown.
    before: str = ""
    # What ends the value.
    until: str = AGAIN
    # The boot in which an apply found it no longer declared; empty while it is.
    left: str = ""

    @property
    def key(self) -> Place:
        return self.check, self.device, self.name

    @property
    def words(self) -> tuple[str, str, str]:
        """The name, the value and the value before."""
        return self.name, self.value, self.before


def format_setting(setting: Lasting) -> str:
    return SETTING + "\t".join(" ".join(word.split()) for word in setting)


def parse_settings(lines: Iterable[str]) -> Iterator[Lasting]:
    """Yield the settings among the lines of a receipt."""
    for line in lines:
        words = line[len(SETTING) :].split("\t")
        if line.startswith(SETTING) and len(words) == len(Lasting._fields):
            yield Lasting(*words)


def list_changing(lines: Iterable[str]) -> list[str]:
    """Return the lines of settings that an apply changes: it found another value, which is noted as the one before."""
    return [format_setting(setting) for setting in parse_settings(lines) if setting.before]


def is_over(setting: Lasting, boot: str) -> bool:
    """Return whether a boot has ended the value since an apply no longer declared it; `boot`: the present one."""
    return bool(setting.left and boot) and setting.left != boot and setting.until != AGAIN


def merge_settings(now: Collection[str], before: Iterable[str], boot: str) -> Iterator[str]:
    """Yield the lines of declared settings, each with the value before its first apply, then those of earlier ones that
    are still in force."""
    earlier = {setting.key: setting for setting in parse_settings(before)}
    unread = {line[len(UNREAD) :] for line in now if line.startswith(UNREAD)}
    for setting in parse_settings(now):
        known = earlier.pop(setting.key, setting)
        yield format_setting(setting._replace(before=known.before))
    for setting in earlier.values():
        if setting.check in unread:
            yield format_setting(setting)
        elif not is_over(setting, boot):
            yield format_setting(setting._replace(left=setting.left or boot))
