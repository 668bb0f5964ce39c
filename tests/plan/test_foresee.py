"""What is foreseen of a host: by the same decisions as its roles."""

from __future__ import annotations

from gpuprov.capabilities import BY_NAME
from gpuprov.capabilities.generated import asks
from gpuprov.plan.foresee import foresee, probes, request
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import HostSpec
from tests.capabilities.asking import facts, good
from tests.capabilities.specs import SPECS
from tests.contracts.test_desired import MORE
from tests.rows import run_each

DECIDED = [name for name, one in BY_NAME.items() if one.desired]


@run_each("name", DECIDED)
def test_every_role_is_foreseen(name: str) -> None:
    block = SPECS.get(name) or BY_NAME[name].fragment()
    spec = HostSpec(name="gpu1", capabilities={name: block})
    asked = "".join(f"none|{path}\n" for path in asks(spec, BY_NAME)["paths"].splitlines())
    texts = {**good(), **MORE, "contents": f"{good()['contents']}{asked}"}
    found = foresee(spec, facts(**texts), (), {name: ""})
    # The host of these tests has no package of Fabric Manager on offer.
    assert found.unknown.keys() <= {"fabric_manager"}
    assert not [one for one in found.packages.get(name, ()) if one.empty or not one.of]
    wanted = BY_NAME[name].desired
    assert wanted
    assert {one.name for one in wanted.probes} <= {one.name for one in probes(spec)}


def test_what_is_foreseen_of_a_file_is_its_text() -> None:
    block = Kernel(blacklist=("nouveau",))
    spec = HostSpec(name="gpu1", capabilities={"kernel": block})
    (text,) = foresee(spec, facts(**good()), (), {"kernel": ""}).texts["kernel"]
    assert (text.path, text.before) == ("/etc/modprobe.d/gpuprov.conf", "absent")
    assert "blacklist nouveau\n" in text.text


def test_what_cannot_be_decided_is_told_and_the_rest_is_foreseen() -> None:
    spec = HostSpec(name="gpu1", capabilities={"kernel": Kernel(), "persistence": SPECS["persistence"]})
    known = {name: text for name, text in good().items() if name != "persistenced"}
    found = foresee(spec, facts(**known), (), {"kernel": "", "persistence": ""})
    assert list(found.unknown) == ["persistence"]
    assert "kernel" in found.files


def test_a_source_that_stays_is_no_difference() -> None:
    """The role is told of a site's repository at each apply, and finds it in place."""
    block = SPECS["container_toolkit"]
    site: dict[str, object] = {"container_toolkit_repository": "https://mirror.example/toolkit"}
    with_site, without = (
        foresee(HostSpec(name="gpu1", capabilities={"container_toolkit": block}, site=one), facts(**good(), **MORE))
        for one in (site, dict[str, object]())
    )
    assert with_site.sources["container_toolkit"]["url"] == "https://mirror.example/toolkit"
    assert with_site.differing == without.differing


def test_what_the_site_set_of_its_package_manager_goes_along() -> None:
    site = {"host_package_lock_timeout": "90", "host_package_lists_max_age": 3600}
    block = SPECS["dcgm"]
    spec = HostSpec(name="gpu1", capabilities={"dcgm": block}, site=site)
    asked = request(foresee(spec, facts(**good()), (), {"dcgm": ""}))
    assert (asked["lock_timeout"], asked["max_age"]) == (90, 3600)
