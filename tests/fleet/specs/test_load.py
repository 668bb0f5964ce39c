"""Inventories to typed specs: what is merged, what is switched off, what is told once, what is only a warning."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from gpuprov.capabilities.nouveau import Nouveau
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.fleet.specs import Fleet, judge, load_fleet
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import GpuSpec, RawHost
from gpuprov.spec.problem import Origin, SpecError
from tests.rows import run_each


def load(folder: Path, text: str) -> Fleet:
    path = folder / "inventory.yaml"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return load_fleet([str(path)], cache=False)


def told(folder: Path, text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load(folder, text)
    return [str(problem).replace(f"{folder}/", "") for problem in caught.value.problems]


def test_a_spec(tmp_path: Path) -> None:
    fleet = load(
        tmp_path,
        """\
        all:
          vars:
            gpuprov:
              gpu: {model: H100-SXM5-80GB, count: 8}
              reboot: if-needed
              nouveau: {}
              nvidia_driver: {version: "580", module_parameters: {NVreg_EnableMSI: true}}
          hosts: {gpu1: {}, gpu2: {}}
        """,
    )
    (raw, spec), (_, other) = fleet.pairs
    assert (raw.name, spec.name, other.name) == ("gpu1", "gpu1", "gpu2")
    assert spec.gpu == GpuSpec(model="H100-SXM5-80GB", count=8)
    assert spec.reboot == "if-needed"
    assert list(spec.capabilities) == ["kernel", "nouveau", "nvidia_driver"], "apply order, kernel from contributions"
    kernel = spec.capabilities["kernel"]
    assert isinstance(kernel, Kernel)
    assert kernel.blacklist == ("nouveau", "nova_core")
    assert kernel.module_options["nvidia-current"] == {"NVreg_EnableMSI": True}
    assert spec.capabilities["nvidia_driver"] == NvidiaDriver(
        version="580", module_parameters={"NVreg_EnableMSI": True}
    )


def test_false_switches_off_what_a_group_turned_on(tmp_path: Path) -> None:
    fleet = load(
        tmp_path,
        """\
        all:
          vars:
            gpuprov: {gpu: {model: T4}, reboot: if-needed, nouveau: {}, persistence: {}}
          hosts:
            gpu1: {gpuprov: {nouveau: false, gpu: false, reboot: false}}
        """,
    )
    ((_, spec),) = fleet.pairs
    assert list(spec.capabilities) == ["persistence"]
    assert (spec.gpu, spec.reboot) == (None, "never")


def test_an_empty_block_takes_the_defaults(tmp_path: Path) -> None:
    ((_, spec),) = load(tmp_path, "all: {hosts: {a: {gpuprov: {nouveau: {}, nvidia_driver: {}}}}}").pairs
    assert spec.capabilities["nouveau"] == Nouveau()
    assert spec.capabilities["nvidia_driver"] == NvidiaDriver()


def test_hosts_without_a_spec_are_not_managed(tmp_path: Path) -> None:
    fleet = load(tmp_path, "all: {hosts: {a: {gpuprov: {nouveau: {}}}, b: {}, c: {gpuprov: {}}}}")
    assert [raw.name for raw, _ in fleet.pairs] == ["a"]
    assert fleet.unmanaged == ("b", "c")


def test_no_spec_at_all(tmp_path: Path) -> None:
    way_out = 'give a group or a host the variable "gpuprov", e.g. all: {vars: {gpuprov: {nvidia_driver: {}}}}'
    assert told(tmp_path, "all: {hosts: {a: {}}}") == [f"no host has a gpuprov spec; {way_out}"]
    assert told(tmp_path, "all: {hosts: {a: {}}, vars: {gpuprov: {}}}") == [f"no host has a gpuprov spec; {way_out}"]


@run_each(("written", "shown"), [("[]", "a list"), ('""', '""'), ("on", "true"), ("5", "5")])
def test_a_variable_that_is_no_mapping(written: str, shown: str, tmp_path: Path) -> None:
    (message,) = told(tmp_path, f"all:\n  hosts: {{a: {{}}}}\n  vars:\n    gpuprov: {written}\n")
    assert message.startswith("inventory.yaml:4:")
    assert message.endswith(f"gpuprov is {shown}; allowed: a mapping of blocks ({{}} for none)")


def test_the_same_problem_on_many_hosts_is_told_once(tmp_path: Path) -> None:
    text = """\
        all:
          vars:
            gpuprov: {nvidia_driver: {version: "536"}}
          hosts: {"gpu[001:032]": {}}
        """
    message = (
        'nvidia_driver.version is "536": there is no branch 536; the nearest is "535"; all: gpuprov catalog drivers'
    )
    assert told(tmp_path, text) == [f"inventory.yaml:3:40: {message}"]
    with pytest.raises(SpecError) as caught:
        load(tmp_path, text)
    (problem,) = caught.value.problems
    assert len(problem.hosts) == 32


def test_problems_of_many_hosts_stand_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = """\
        all:
          children:
            training:
              vars: {gpuprov: {nvidia_driver: {hold: 1}}}
              hosts:
                t1: {gpuprov: {gpu: {model: B20}}}
            inference:
              vars:
                gpuprov: {persistance: {}}
              hosts: {i1: {}, i2: {gpuprov: {reboot: soon}}}
        """
    assert told(tmp_path, text) == [
        "inventory.yaml:4:46: nvidia_driver.hold is 1; allowed: true, false; write true",
        'inventory.yaml:6:37: gpu.model "B20" is not in the catalogue; did you mean "B200"?',
        'inventory.yaml:9:19: unknown key "persistance"; did you mean "persistence"?',
        'inventory.yaml:10:46: reboot is "soon"; allowed: if-needed, never',
    ]


def test_a_conflict_is_told_where_the_kernel_block_says_it(tmp_path: Path) -> None:
    text = """\
        all:
          vars: {gpuprov: {nouveau: {}}}
          hosts:
            a:
              gpuprov:
                kernel:
                  module_options:
                    nouveau:
                      modeset: 2
        """
    message = "kernel.module_options.nouveau.modeset is 2 by kernel and 0 by nouveau"
    assert told(tmp_path, text) == [
        f"inventory.yaml:9:24: {message}; one host has one value: change or remove one of the two"
    ]


def test_a_branch_that_is_no_longer_supported_is_a_warning(tmp_path: Path) -> None:
    fleet = load(tmp_path, 'all: {hosts: {a: {gpuprov: {nvidia_driver: {version: "470"}}}}}')
    (warning,) = fleet.warnings
    assert warning.severity == "warning"
    assert ":1:54: warning: support of branch 470 is over" in str(warning)


def test_a_place_that_is_not_known_is_told_by_the_host() -> None:
    raw = RawHost(name="gpu1", values={"nouveau": {"modules": 3}})
    with pytest.raises(SpecError) as caught:
        judge([raw])
    assert str(caught.value) == "gpu1: nouveau.modules is 3; allowed: a list"


def test_a_source_without_lines_is_told_by_its_file() -> None:
    raw = RawHost(name="gpu1", values={"nouveau": {"modules": 3}}, origins={(): Origin("hosts.ini")})
    with pytest.raises(SpecError) as caught:
        judge([raw])
    assert str(caught.value) == "hosts.ini: nouveau.modules is 3; allowed: a list"


def test_hosts_from_a_generator_keep_their_own_problems() -> None:
    """Judging is shared by the identity of `values`, which must not be reused while the hosts are read."""
    hosts = (RawHost(name=f"gpu{n}", values={"nouveau": {"modules": n}}) for n in range(50))
    with pytest.raises(SpecError) as caught:
        judge(hosts)
    assert sorted(str(problem) for problem in caught.value.problems) == sorted(
        f"gpu{n}: nouveau.modules is {n}; allowed: a list" for n in range(50)
    )


def test_hosts_that_share_a_spec_share_its_fragments() -> None:
    values: dict[str, object] = {"nouveau": {}}
    fleet = judge([RawHost(name="a", values=values, groups=("x",)), RawHost(name="b", values=values, groups=("y",))])
    (_, first), (_, second) = fleet.pairs
    assert first.capabilities is second.capabilities
    assert (first.groups, second.groups) == (("x",), ("y",))


@run_each(
    ("rdma", "fabric"),
    [("{}", "efa"), ("{nccl: {}}", "efa"), ("{fabric: efa}", "efa"), ("{soft: {}}", "soft"), ("false", None)],
)
def test_an_instance_type_gives_model_count_and_fabric(rdma: str, fabric: str | None, tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    spec = f"gpu: {{model: p5.48xlarge}}, nvidia_driver: {{}}, fabric_manager: {{}}, rdma: {rdma}"
    path.write_text(f"all: {{hosts: {{h: {{}}}}, vars: {{gpuprov: {{{spec}}}}}}}\n")
    ((_, found),) = load_fleet([str(path)], cache=False).pairs
    assert found.gpu == GpuSpec(model="H100-SXM5-80GB", count=8)
    assert getattr(found.capabilities.get("rdma"), "fabric", None) == fabric
