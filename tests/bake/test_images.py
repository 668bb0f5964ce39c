"""What an image answers, and what only a machine can."""

from __future__ import annotations

import json

import jsonschema

from gpuprov.bake import hardware, run, text
from gpuprov.bake.model import Baked
from gpuprov.capabilities import BY_NAME
from gpuprov.catalog import fabric
from gpuprov.catalog.gpus import find_by_pci_id
from gpuprov.cli.reference import document_schema
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.play.preflight.judging import judge
from gpuprov.spec.model import GpuSpec, HostSpec
from gpuprov.verify import images
from gpuprov.verify.evaluate import Result
from tests.rows import run_each

CHECKS = {check.id: check for capability in BY_NAME.values() for check in capability.checks}


def result(check: str, status: str = "fail", **more: object) -> Result:
    values = {"host": "image", "capability": check.partition(".")[0], "check": check, "status": status, **more}
    return Result(**values)  # type: ignore[arg-type]


def test_each_list_names_checks_of_its_kind() -> None:
    assert {name for name in images.STOPS if not CHECKS[name].stops} == set()
    assert {name for name in images.BOOT if CHECKS[name].moment != "next-boot"} == set()
    assert {name for name in images.FILES if CHECKS[name].moment != "now" or CHECKS[name].stops} == set()


def test_users_and_machines_are_never_an_images_to_judge() -> None:
    words = ("clients", "hardware", "machine_")
    found = {check.id for check in CHECKS.values() if check.stops and any(word in check.id for word in words)}
    assert found <= images.STOPS


def test_modules_and_holds_are_the_images_to_judge() -> None:
    for name in ("nvidia_driver.modules_built", "nvidia_driver.held", "kernel.initramfs", "nvidia_driver.packages"):
        assert not images.waits(name, CHECKS[name].moment, stops=False)
    for name in ("nvidia_driver.loaded", "fabric_manager.registered", "host.gpu", "persistence.active"):
        assert images.waits(name, CHECKS[name].moment, stops=False)


FABRIC = HostSpec(name="image", capabilities={"fabric_manager": BY_NAME["fabric_manager"].fragment()})
EMPTY_BUS = Facts({"nvidia_functions": Output(""), "fabric_bridges": Output(""), "container": Output("none\n")})


def test_a_builder_without_switches_is_not_blocked() -> None:
    refused = judge(FABRIC, EMPTY_BUS, ["fabric_manager"], preflight=True)
    assert any("fabric_manager.hardware" in one for one in refused.refusals)
    image = judge(FABRIC, EMPTY_BUS, ["fabric_manager"], preflight=True, image=True)
    assert not any("fabric_manager.hardware" in one for one in image.refusals)


def test_what_stops_a_bake() -> None:
    assert run.stops(result("nvidia_driver.resolvable", moment="preflight"))
    assert not run.stops(result("fabric_manager.hardware", moment="preflight"))
    assert not run.stops(result("nvidia_driver.resolvable", "pass", moment="preflight"))


def test_results_are_divided() -> None:
    made = Baked(host="image", root="/srv/image")
    results = [
        result("nvidia_driver.modules_built", moment="next-boot"),
        result("fabric_manager.enabled", moment="next-boot"),
        result("kernel.initramfs", "pass", moment="next-boot"),
        result("host.gpu", "pass"),
        result("nvidia_driver.loaded", "error"),
    ]
    run._judge(results, made)
    assert [one.check for one in made.failing] == ["nvidia_driver.modules_built"]
    assert [one.check for one in made.completed] == ["fabric_manager.enabled"]
    assert made.later == ("host.gpu", "nvidia_driver.loaded")
    assert made.code == 1
    jsonschema.validate(json.loads(text.as_json(made)), json.loads(document_schema("bake")))
    told = text.as_text(made)
    assert "fail nvidia_driver.modules_built" in told
    assert f"{images.AT_FIRST_BOOT}: 3 checks" in told


@run_each(
    ("changed", "code"),
    [({}, 0), ({"left": ("/etc/machine-id",)}, 1), ({"state": "blocked"}, 3), ({"state": "interrupted"}, 130)],
)
def test_exit_codes(changed: dict[str, object], code: int) -> None:
    made = Baked(host="image", root="/srv/image", **changed)  # type: ignore[arg-type]
    assert made.code == code


def test_the_image_sees_the_hardware_of_its_spec() -> None:
    tree = hardware.tree(HostSpec(name="image", gpu=GpuSpec(model="H100-SXM5-80GB", count=8)))
    links = {name: str(to) for name, to in tree.items() if name.startswith("bus/pci/devices/")}
    found = []
    for name, to in links.items():
        folder = to.removeprefix("../../../")
        vendor, device = (tree[f"{folder}/{file}"] for file in ("vendor", "device"))
        assert isinstance(vendor, bytes)
        assert isinstance(device, bytes)
        found.append(f"{vendor.decode().strip()[2:]}:{device.decode().strip()[2:]}")
        assert name.endswith(folder.rpartition("/")[2])
    gpus = [one for one in map(find_by_pci_id, found) if one]
    assert [one.key for one in gpus] == ["H100-SXM5-80GB"] * 8
    assert sum(one in fabric.list_switches() for one in found) == 4


def test_without_gpus_in_the_spec_there_is_no_hardware() -> None:
    assert hardware.tree(HostSpec(name="image")) == {}
