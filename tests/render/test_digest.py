"""The digest in the receipt covers what can change a role's result, and no more: each of these is changed, and somebody notices."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest

from gpuprov import assets
from gpuprov.capabilities import CAPABILITIES
from gpuprov.capabilities.container_toolkit.fragment import ContainerToolkit
from gpuprov.capabilities.mig.fragment import LayoutEntry, Mig
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.catalog import gpus
from gpuprov.catalog.cuda import packages
from gpuprov.catalog.reader import Source
from gpuprov.render import code, digest, digests, reach, reached
from gpuprov.render.digest import Digest
from gpuprov.render.variables import host_variables
from gpuprov.spec.model import Fragment, GpuSpec, HostSpec

ALL = {one.name: one.fragment() for one in CAPABILITIES}
PACKAGED = {one.name for one in CAPABILITIES if one.packages}
Edit = Callable[[str, str, str], set[str]]


def host(gpu: str = "", site: dict[str, object] | None = None, **blocks: Fragment) -> HostSpec:
    return HostSpec(name="gpu1", gpu=GpuSpec(model=gpu) if gpu else None, capabilities=ALL | blocks, site=site or {})


def differ(one: HostSpec, other: HostSpec) -> set[str]:
    return between(digests(one), digests(other))


def between(before: dict[str, Digest], after: dict[str, Digest]) -> set[str]:
    return {name for name in before if before[name] != after[name]}


@cache
def unchanged() -> dict[str, Digest]:
    """Of this checkout."""
    return digests(host())


@pytest.fixture(autouse=True)
def forget(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test has changed is read anew after it."""
    yield
    if "monkeypatch" not in request.fixturenames:
        return
    for kept in (reach.of_role, reach.of_entry, code._module, digest.catalog):
        kept.cache_clear()
    digest._tables.clear()
    reached._known.clear()


@pytest.fixture
def edit(monkeypatch: pytest.MonkeyPatch) -> Edit:
    """Who has another digest where a file of gpuprov has another text."""
    before = unchanged()

    def edited(path: str, old: str, new: str) -> set[str]:
        place, real = assets.root() / path, Path.read_text
        assert old in real(place)

        def read(file: Path, *args: str, **kinds: str) -> str:
            text = real(file, *args, **kinds)
            return text.replace(old, new, 1) if file == place else text

        monkeypatch.setattr(Path, "read_text", read)
        monkeypatch.setattr(reached, "files_as_they_are", lambda: f"{path} {new}")
        reached._known.clear()
        for kept in (reach.of_role, reach.of_entry, code._module):
            kept.cache_clear()
        digest._tables.clear()
        return between(before, digests(host()))

    return edited


def test_a_gpu_that_a_host_does_not_have_changes_nothing_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new PCI id in the catalogue, as the roles' tables have it."""
    known, unknown = host("H100-SXM5-80GB"), host()
    before, before_all = (digests(known), digests(unknown)), gpus.gpus()
    tables = digest.catalog()
    more: dict[str, object] = {}
    models = {**gpus.models_by_nvml_id(), "0xFFFF10DE": "X1"}
    monkeypatch.setattr(gpus, "models_by_nvml_id", lambda: models)
    monkeypatch.setattr(digest, "catalog", lambda: tables | more)
    other = msgspec.structs.replace(gpus.gpus()[0], key="X1")
    monkeypatch.setattr(gpus, "gpus", lambda: (*before_all, other))
    digest._tables.clear()
    assert not between(before[0], digests(known))
    assert between(before[1], digests(unknown)) >= {"nvidia_driver", "mig"}, "whose GPUs the spec does not name"


def test_what_is_worked_out_for_a_role_rests_on_its_facts_of_the_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    known = packages.toolkits_file()
    before = digests(host())
    told = msgspec.structs.replace(known, sources={**known.sources, "more": Source(description="another page")})
    monkeypatch.setattr(packages, "toolkits_file", lambda: told)
    assert not between(before, digests(host())), "where it is known from decides nothing"
    monkeypatch.setattr(packages, "toolkits_file", lambda: msgspec.structs.replace(known, metapackages=("cuda-all",)))
    assert between(before, digests(host())) == {"cuda_toolkit"}


READS = re.compile(r'\bload\(\s*"(\w+)"')
OF_OTHERS = {"drivers", "repositories"}
"""What nvidia_driver decides by: its own digest has it."""


@pytest.mark.parametrize("name", [one.name for one in CAPABILITIES if one.desired])
def test_no_facts_are_left_out(name: str) -> None:
    """What is worked out by code that reads a file of the catalogue says what of it, in `Desired.facts`."""
    desired = next(one.desired for one in CAPABILITIES if one.name == name)
    read = {file for text in reach.of_role(name).texts.values() for file in READS.findall(text)} - OF_OTHERS
    assert desired
    assert (desired.facts(host()) is not None) == bool(read), f"{name} reads {sorted(read)}"


def test_a_gpu_that_a_host_has_does(monkeypatch: pytest.MonkeyPatch) -> None:
    before, known = digests(host("H100-SXM5-80GB")), gpus.find_gpu("H100-SXM5-80GB")
    assert known
    needs = msgspec.structs.replace(known.kernel_modules, flavour="proprietary-required")
    other = msgspec.structs.replace(known, kernel_modules=needs)
    monkeypatch.setattr(gpus, "find_gpu", lambda model: other if model == known.key else None)
    assert "nvidia_driver" in between(before, digests(host("H100-SXM5-80GB")))


def test_a_changed_resolver_is_noticed_where_it_resolves(edit: Edit) -> None:
    found = edit("gpuprov/shared/resolve.py", 'kind, reason = "proprietary", f"', 'kind, reason = "open", f"')
    assert found == {"nvidia_driver", "gpudirect_rdma"}, "the latter decides by the flavour, too"


def test_what_several_resolve_by_is_noticed_by_all(edit: Edit) -> None:
    found = edit(
        "gpuprov/shared/resolve.py", "def order(", "def order(\n    # other code\n    _other: int = 1,\n    *,\n"
    )
    assert {"nvidia_driver", "fabric_manager"} <= found
    assert not found & {"kernel", "nouveau", "persistence", "topology"}


@pytest.mark.parametrize(
    ("path", "old", "new", "found"),
    [
        ("gpuprov/shared/resolve.py", '"""Which kernel modules: ', '"""Other words: ', set()),
        ("gpuprov/shared/resolve.py", "def flavour(", "# A comment.\n\n\ndef flavour(", set()),
        ("gpuprov/shared/engines.py", "CRUN_SINCE = (1, 31)", "CRUN_SINCE = (1, 32)", {"container_toolkit"}),
        ("gpuprov/onhost/mig/fit.py", "def ", "ANOTHER = 1\n\n\ndef ", {"mig"}),
        ("gpuprov/shared/reach.py", "import re", "import re, sys", set()),
        ("gpuprov/cli/__init__.py", "import", "import sys; import", set()),
        ("gpuprov/capabilities/base.py", "import", "import sys; import", set()),
        ("roles/host/tasks/reboot.yml", "---", "---\n- name: Another", set()),
        ("roles/host/tasks/unlock.yml", "---", "---\n- name: Another", set()),
        ("roles/nouveau/tasks/configure.yml", "capability: nouveau", "capability: other", {"nouveau"}),
        ("roles/nouveau/meta/argument_specs.yml", "Kernel modules", "Modules", set()),
        ("playbooks/site.yml", "Reboot the host, or say why it should be", "Reboot", set()),
        ("playbooks/site.yml", "acts/service.yml", "acts/configure.yml", set(ALL)),
    ],
)
def test_who_notices_what(edit: Edit, path: str, old: str, new: str, found: set[str]) -> None:
    if old not in (assets.root() / path).read_text():
        pytest.fail(f"{path} has no {old!r}: name something else of it")
    assert edit(path, old, new) == found


def test_a_step_of_the_house_is_noticed_by_the_roles_that_take_it(edit: Edit) -> None:
    found = edit("plugins/modules/gpuprov_packages.py", "def main() -> None:", "def main(_other: int = 1) -> None:")
    assert found >= PACKAGED
    assert not found & {"nouveau", "kernel", "topology", "cgpu", "vgpu_guest"}


def test_an_entry_takes_of_its_role_what_it_names_and_no_more() -> None:
    texts = reach.of_entry("host", "unlock")
    assert "roles/host/tasks/unlock.yml" in texts
    assert not [place for place in texts if "reboot" in place or "reach" in place]


def test_what_the_site_set_for_a_role_counts_for_it() -> None:
    assert differ(host(), host(site={"container_toolkit_repository": "https://mirror /"})) == {"container_toolkit"}
    assert not differ(host(), host(site={"host_reboot_timeout": 60, "host_max_clock_skew": 600}))


def test_a_variable_of_another_role_counts_where_it_is_named() -> None:
    assert "gpudirect_rdma" in differ(host(), host(nvidia_driver=NvidiaDriver(kernel_modules="open")))
    assert "gpudirect_rdma" not in differ(host(), host(nvidia_driver=NvidiaDriver(hold=False)))
    assert differ(host(), host(container_toolkit=ContainerToolkit(hold=False))) == {"container_toolkit"}


def test_what_is_worked_out_of_another_block_counts() -> None:
    source = differ(host(), host(nvidia_driver=NvidiaDriver(source="nvidia")))
    assert "persistence" in source
    assert "persistence" not in differ(host(), host(nvidia_driver=NvidiaDriver(version="580")))
    layout = Mig(layout=(LayoutEntry(gpus="all", instances={"3g.40gb": 2}),))
    assert differ(host(mig=Mig()), host(mig=layout)) == {"mig", "kubernetes"}, (
        "the operator's MIG manager has the layout"
    )


def test_a_role_that_asks_the_judge_again_rests_on_its_own_capability_alone() -> None:
    places = " ".join(reach.of_role("cuda_toolkit").texts)
    assert "gpuprov.capabilities.cuda_toolkit.decision:decide" in places
    assert "gpuprov.capabilities.mig" not in places


def test_what_is_read_beyond_the_own_block_is_named_and_a_variable() -> None:
    variables, asks = set(host_variables(host("H100-SXM5-80GB"))), re.compile(r"""capabilities(?:\.get\(|\[)"(\w+)\"""")
    found = set()
    for one in CAPABILITIES:
        if one.desired:
            make = code.Name(one.desired.make.__module__, one.desired.make.__qualname__)
            blocks = set(asks.findall("\n".join(code.rests_on([make]).values()))) - {one.name}
            found |= blocks
            unnamed = {block for block in blocks if not any(read.startswith(f"{block}_") for read in one.desired.reads)}
            assert not unnamed, f"{one.name}: `reads` names nothing of {unnamed}"
            assert set(one.desired.reads) <= variables, one.name
    assert found >= {"mig", "nvidia_driver"}


def test_what_stands_beside_counts_where_it_is_asked_for() -> None:
    without = HostSpec(name="gpu1", capabilities={k: v for k, v in ALL.items() if k != "nvidia_driver"})
    found = between(digests(without), digests(host()))
    assert {"dcgm", "fabric_manager"} <= found
    assert not found & {"nouveau", "topology", "acceptance"}


def test_a_program_for_hosts_rests_on_what_it_imports() -> None:
    names = code.imported_by(assets.root() / "plugins" / "modules" / "gpuprov_lock.py")
    assert {place.module for place in code.rests_on(names)} >= {"gpuprov.onhost.lock"}


def test_every_include_of_another_role_is_followed() -> None:
    """An include that `reach` cannot read would leave out what it brings."""
    for file in (assets.root() / "roles").glob("*/tasks/**/*.yml"):
        text = file.read_text(encoding="utf-8")
        asked = len(re.findall(r"(?:include|import)_role:(?!\s*\*|\s*\{name: \"\{\{ host_role)", text))
        assert len(reach.ROLE.findall(text)) == asked, f"{file}: write include_role: {{name: ROLE, tasks_from: ENTRY}}"
        for role, entry in reach.ROLE.findall(text):
            there = assets.root() / "roles" / role / "tasks" / f"{entry}.yml"
            assert there.is_file(), f"{file} includes {entry} of {role}, which is not there"
        for value in reach.TASKS.findall(text):
            assert list(reach._files(value, file, file.parents[len(file.relative_to(assets.root()).parts) - 4])), (
                file,
                value,
            )
