"""Size limits for texts and files of a host or an inventory, and the error for what exceeds them or is something
else."""

# Levels of mappings and lists, aliases followed. No group of groups and no file of a host comes near.
DEPTH = 100
# Digits of a whole number, so that it fits 64 bits.
DIGITS = 18
# Characters of a line of a YAML text in which Ansible looks for what is wrong.
LONGEST_LINE = 1000
# Characters of a number in YAML, JSON and TOML; Python itself refuses to read 4,300 digits, and takes long over less.
LONGEST_NUMBER = 100
# Nodes that the aliases of one YAML document stand for, all together.
ALIASED = 1_000_000
# Numbers that one list of ranges means: CPUs, ports, interrupts.
NUMBERS = 1 << 16
# Bytes of one document of a host.
HOST_TEXT = 4 << 20
# Bytes of a TOML document of a host; a container engine's configuration has 10 KiB.
TOML_TEXT = 512 << 10
# Bytes that one host may print in one reading; a busy host prints about one.
LARGEST = 8 << 20
# Bytes of a line of an INI inventory.
LINE = 64 << 10
# Bytes of one file of an inventory.
FILE = 64 << 20


class Unreadable(ValueError):
    """A text or file that is not what its reader reads, or is more than it may be. `line` and `column` count from 1; 0:
    unknown."""

    def __init__(self, message: str, allowed: str = "", line: int = 0, column: int = 0) -> None:
        super().__init__(f"{message}; allowed: {allowed}" if allowed else message)
        self.message, self.allowed, self.line, self.column = message, allowed, line, column


def make_size_error(largest: int) -> Unreadable:
    """For what has more bytes than it may."""
    size = f"{largest >> 20} MiB" if largest >> 20 else f"{largest >> 10} KiB"
    return Unreadable("too large", size)
