"""The program of the role mig as a host has it, and a stand-in NVML to run it against."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from gpuprov.catalog.gpus import find_gpu
from gpuprov.catalog.mig import list_profiles
from gpuprov.host_code.mig import __main__ as program
from gpuprov.host_code.mig import act, plan, state, users
from gpuprov.host_code.mig import fit as mig_fit
from gpuprov.host_code.mig import layout as mig_layout
from tests.simulate.nvml_host import Host

__all__ = ["act", "plan", "program", "state", "users"]
H100, A100 = "H100-SXM5-80GB", "A100-SXM4-80GB"


def layout(*entries: dict[str, Any], mode: str = "enabled") -> dict[str, Any]:
    """What mig.json says."""
    return {"version": 1, "mode": mode, "layout": list(entries), "mig_parted": None}


def every(instances: object) -> dict[str, Any]:
    """All GPUs with these instances."""
    return layout({"gpus": "all", "instances": instances})


USUAL = every({"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1})


class Machine:
    """A host with the program, on the stand-in NVML."""

    def __init__(self, folder: Path, model: str, count: int = 1) -> None:
        self.folder, self.host = folder, Host(folder / "host", model, count)
        users.ROOT = str(self.host.root)
        (folder / "models.json").write_text("{}")
        self.problem = self.said = ""

    def run(self, command: str, wanted: object = None, *more: str) -> dict[str, Any]:
        """The program's answer; its exit status agrees with it, and its standard error is one line or none."""
        if wanted is not None:
            (self.folder / "mig.json").write_text(wanted if isinstance(wanted, str) else json.dumps(wanted))
        arguments = [command, f"--wanted={self.folder / 'mig.json'}", f"--models={self.folder / 'models.json'}", *more]
        out, err = StringIO(), StringIO()
        with self.binding() as nvml, redirect_stdout(out), redirect_stderr(err):
            status = program.main(arguments, nvml)
        self.said, error = out.getvalue(), err.getvalue()
        assert error.count("\n") == status
        self.problem = error.removeprefix("gpuprov-mig: ").strip()
        return json.loads(self.said) if command != "boot" else {}

    @contextmanager
    def binding(self) -> Iterator[Any]:
        """NVIDIA's binding to this host's library, not yet initialised where there is no driver."""
        try:
            with self.host.client() as nvml:
                yield nvml
        finally:
            pass

    def there(self, gpu: int = 0) -> list[tuple[str, int, list[int]]]:
        """Profile, start and compute instances of each GPU instance."""
        (found,) = [one for one in self.run("state")["gpus"] if one["index"] == gpu]
        return [(one["profile"], one["start"], [c["size"] for c in one["compute"]]) for one in found["instances"]]


class Given:
    """A binding that is open already."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml

    def __enter__(self) -> Any:
        return self.nvml

    def __exit__(self, *_: object) -> None: ...


def card(model: str = H100, *instances: Any, on: bool = True, resets: bool = False) -> Any:
    """A GPU of the catalogue with these instances."""
    known = find_gpu(model)
    assert known
    profiles = tuple(
        mig_fit.Profile(p.name, p.slices or 0, p.size or 0, p.starts, p.max_count, "me" in p.attributes)
        for p in list_profiles(known)
    )
    gpu = mig_layout.Gpu(0, "0000:3b:00.0", "GPU-0", model, known.key, "0x233010DE", "0x16C110DE", known.mig.capable)
    return state.Card(gpu, 0, resets, int(on), int(on), profiles, tuple(instances))


def present(number: int, profile: str, start: int, *compute: int) -> Any:
    """A GPU instance; without sizes one compute instance that has all slices."""
    slices = mig_layout.parse_profile(profile).slices
    size = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}[slices]
    at, made = 0, []
    for identifier, width in enumerate(compute or (slices,)):
        made.append(state.Compute(identifier, at, width))
        at += width
    return state.Present(number, profile, slices, start, size, tuple(made))


def user(gi: int | None = None, ci: int | None = None, *, computes: bool = True, unit: str = "") -> Any:
    """A process of alice's on GPU 0."""
    return state.User(4711, "train", "alice", unit, 0, gi, ci, computes)
