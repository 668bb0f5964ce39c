"""Does once what Ansible would repeat in the process of each task, or in each run: in the process of
`ansible-playbook`, before it forks task processes, which inherit it; and cached from run to run.

* A module is packed with everything that it imports, and Ansible parses the same sixty files of its own again for every
module.
* The first filter that a task names makes Ansible load all filters.
* A module packed by an earlier run of the same gpuprov and the same Ansible is packed already (`Packed`).
* Polling for a host's answer becomes less frequent the longer it takes (`Patience`).

If an Ansible does one of these differently, it is left unchanged.
"""

import gc
import hashlib
import importlib
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from gpuprov.core import disk_cache as keep

ROOM = "packed"
LARGEST = 64 * 1024 * 1024


def parse_once() -> None:
    """Parse in advance what every module imports."""
    from ansible.executor import module_common

    parse = getattr(module_common, "_compile_module_ast", None)
    if parse is None:
        return
    importlib.import_module("ansible.module_utils.basic")  # what every module imports
    known: dict[bytes, Any] = {}

    def parsed(name: str, source: Any) -> Any:
        return known[source] if source in known else parse(name, source)

    for name, module in list(sys.modules.items()):
        file = str(getattr(module, "__file__", None) or "")
        if name.startswith("ansible.module_utils.") and file.endswith(".py"):
            with open(file, "rb") as source:
                text = source.read()
            known[text] = parse(name, text)
    module_common._compile_module_ast = parsed


def load_filters() -> None:
    """Load filters and tests in advance when a process for a task starts; a role with its own makes Ansible forget them
    all."""
    from ansible.executor.process.worker import WorkerProcess
    from ansible.plugins import loader

    loaders: list[Any] = [getattr(loader, f"{kind}_loader", None) for kind in ("filter", "test")]
    if not all(hasattr(loader, "_ensure_non_collection_wrappers") for loader in loaders):
        return
    start = WorkerProcess.start

    def ready(worker: Any) -> None:
        for plugin_loader in loaders:
            plugin_loader._ensure_non_collection_wrappers()
        start(worker)

    WorkerProcess.start = ready


class Patience:
    """Replacement for the module `time` in Ansible's loop over running tasks: the longer nothing has happened, the
    longer it sleeps."""

    SHORTEST, LONGEST, SHARE, WORK = 0.002, 0.05, 0.04, 0.005
    """Seconds; share of the time waited; and duration of the loop's work between two sleeps when something has
    happened."""

    def __init__(self) -> None:
        self._since = self._until = 0.0

    def sleep(self, _seconds: float) -> None:
        now = time.monotonic()
        if now - self._until > self.WORK:
            self._since = now
        time.sleep(min(max(self.SHORTEST, (now - self._since) * self.SHARE), self.LONGEST))
        self._until = time.monotonic()

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def wait_patiently() -> None:
    """Let Ansible's default polling interval, which keeps a tenth of a core busy while a host works, grow. Another
    interval in ansible.cfg stays (internal_poll_interval)."""
    from ansible import constants
    from ansible.plugins import strategy

    if constants.DEFAULT_INTERNAL_POLL_INTERVAL == 0.001 and getattr(strategy, "time", None) is time:
        strategy.time = Patience()


class Packed:
    """The modules that earlier runs have packed. Their key covers everything that could be packed: the files of the
    project and of Ansible."""

    def __init__(self, project: Path) -> None:
        from ansible import constants

        self._place = Path(constants.DEFAULT_LOCAL_TMP) / "ansiballz_cache"
        self._name = f"{_compute_digest(project)}.msgpack"
        self._kept: dict[str, bytes] = {}

    def bring(self) -> bool:
        """Put them where Ansible looks for packed modules. Return whether there are any."""
        body = keep.read(ROOM, self._name)
        try:
            self._kept = msgspec.msgpack.decode(body, type=dict[str, bytes]) if body else {}
        except msgspec.MsgspecError:
            return False
        self._place.mkdir(mode=0o700, exist_ok=True)
        for name, packed in self._kept.items():
            (self._place / Path(name).name).write_bytes(packed)
        return bool(self._kept)

    def keep(self) -> None:
        """Add the modules packed by this run."""
        files = sorted(self._place.glob("*-none")) if self._place.is_dir() else []
        fresh = {file.name: file.read_bytes() for file in files if file.name not in self._kept}
        if fresh and sum(map(len, (packed := self._kept | fresh).values())) < LARGEST:
            keep.write(ROOM, self._name, msgspec.msgpack.encode(packed))


def _compute_digest(project: Path) -> str:
    """Return a digest: of the project's files by content, since they are rendered for each run; of Ansible's own, which
    are installed, by modification time. There are no others: `gpuprov.plan.playbook.environment`."""
    import ansible

    digest = hashlib.sha256(f"{sys.version}\0{ansible.__file__}\0{ansible.__version__}\0".encode())
    for folder in ("library", "module_utils"):
        for file in _list_files([project / folder]):
            digest.update(f"{file.relative_to(project)}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    installed = [Path(ansible.__file__).parent / name for name in ("module_utils", "modules")]
    for file in _list_files(installed):
        status = file.stat()
        digest.update(f"{file}\0{status.st_size}\0{status.st_mtime_ns}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:32]


def _list_files(folders: Iterable[Path]) -> Iterator[Path]:
    seen: set[str] = set()
    for folder in folders:
        for place, inner, names in os.walk(folder, followlinks=True):
            real = os.path.realpath(place)
            inner[:] = [] if real in seen else sorted(name for name in inner if name != "__pycache__")
            seen.add(real)
            yield from (file for name in sorted(names) if (file := Path(place) / name).is_file())


def warm(*, packs: bool) -> None:
    """Do all of it before there are tasks; finally, exclude the existing objects from garbage collection. packs: modules
    are still to be packed."""
    wait_patiently()
    if packs:
        parse_once()
    load_filters()
    gc.freeze()
