"""Options of a bake, and its outcome."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from gpuprov import __version__
from gpuprov.core.errors import CODES, Code
from gpuprov.core.time_limits import ACT_LIMIT
from gpuprov.verify.evaluate import Result

State = Literal["baked", "blocked", "failed", "interrupted"]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """root: the image's folder, resolved. wheels: gpuprov and what it needs, for a Python of the image. timeout:
    seconds that one act may take. own_root: it is the machine that this runs on, and root a bind mount of its root;
    clean_machine: its identity goes, too."""

    root: Path
    wheels: Path
    own_root: bool = False
    clean_machine: bool = False
    timeout: float = ACT_LIMIT
    verbose: bool = False
    log_dir: Path | None = None


class Baked(msgspec.Struct, kw_only=True):
    """The outcome."""

    host: str
    root: str
    state: State = "baked"
    kernels: tuple[str, ...] = ()
    # Checks that the image's files decide.
    results: tuple[Result, ...] = ()
    # Those that fail now, and whose differences the first boot removes.
    completed: tuple[Result, ...] = ()
    # Checks by name that the first boot makes.
    later: tuple[str, ...] = ()
    # What was removed.
    cleaned: tuple[str, ...] = ()
    # What of a host is still there.
    left: tuple[str, ...] = ()
    # What the image had before that every clone would share: ssh host keys; with --root / the machine's whole identity.
    kept: tuple[str, ...] = ()
    # Tasks that changed something.
    changed: tuple[str, ...] = ()
    task: str = ""
    # `message`, `fix`: why it failed.
    message: str = ""
    fix: str = ""
    log: str = ""
    seconds: float = 0.0

    @property
    def failing(self) -> tuple[Result, ...]:
        """Return the checks of the image that fail, or could not be judged."""
        return tuple(result for result in self.results if result.status in ("fail", "error"))

    @property
    def code(self) -> Code:
        """Return the exit code of bake: the image differs, too, where something of a host is left in it."""
        if self.state != "baked":
            return CODES["interrupted" if self.state == "interrupted" else "failed"]
        return CODES["differs" if self.failing or self.left else "ok"]


class BakedDocument(Baked, kw_only=True):
    """The document of --json."""

    gpuprov_bake: Annotated[int, msgspec.Meta(description="Version of this format")] = 1
    gpuprov: str = __version__
    exit_code: Code
