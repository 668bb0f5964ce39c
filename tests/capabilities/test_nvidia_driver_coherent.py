"""nvidia_driver: the memory of superchips under Kubernetes, which is declared as a parameter of the module and proved
as one."""

from __future__ import annotations

from gpuprov.capabilities import nvidia_driver
from gpuprov.capabilities.kubernetes.fragment import Kubernetes
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.spec.model import Fragment, GpuSpec, HostSpec
from tests.capabilities.asking import GOOD, ask
from tests.facts.probes import REAL

KEY = "NVreg_CoherentGPUMemoryMode"


def problems(driver: NvidiaDriver, gpu: str = "GB200", *, kubernetes: bool = True) -> list[tuple[str, str]]:
    others: dict[str, Fragment] = {"nvidia_driver": driver} | ({"kubernetes": Kubernetes()} if kubernetes else {})
    host = HostSpec(name="h", gpu=GpuSpec(model=gpu), capabilities=others)
    return [(one.severity, one.message) for one in nvidia_driver.rules(host, driver) if KEY in one.message]


def test_superchips_under_kubernetes() -> None:
    for gpu in ("GB200", "GB300", "GH200-96GB"):
        ((severity, message),) = problems(NvidiaDriver(version="580"), gpu)
        assert severity == "warning"
        assert f"{gpu} under Kubernetes: without {KEY}=driver" in message
        assert len(problems(NvidiaDriver(), gpu)) == 1
    said = NvidiaDriver(version="580", module_parameters={KEY: "driver"})
    assert problems(said) == []
    assert problems(NvidiaDriver(version="580"), kubernetes=False) == []
    assert problems(NvidiaDriver(version="580"), "H100-SXM5-80GB") == []
    assert problems(NvidiaDriver(version="570")) == []


def test_what_the_driver_does_not_know() -> None:
    ((severity, message),) = problems(NvidiaDriver(version="570", module_parameters={KEY: "driver"}))
    assert (severity, "from branch 580 on, and the branch is 570" in message) == ("error", True)
    ((severity, message),) = problems(NvidiaDriver(version="580", module_parameters={KEY: "Driver"}))
    assert (severity, message) == ("error", f'nvidia_driver.module_parameters.{KEY} is "Driver"')


def test_the_loaded_driver_has_it() -> None:
    """The parameters are those of a real driver of branch 580, which was loaded without it."""
    asked = NvidiaDriver(module_parameters={KEY: "driver"})
    (file,) = (REAL / "params-580").glob("*.txt")
    text = file.read_text(encoding="utf-8")
    config = f"{GOOD['modprobe_config']}options nvidia {KEY}=driver\noptions nvidia_current {KEY}=driver\n"
    late = ask("nvidia_driver.module_parameters", asked, modprobe_config=config, driver_parameters=text)
    assert (late.status, bool(late.reboot)) == ("fail", True)
    took = text.replace('CoherentGPUMemoryMode: ""', 'CoherentGPUMemoryMode: "driver"')
    assert (
        ask("nvidia_driver.module_parameters", asked, modprobe_config=config, driver_parameters=took).status == "pass"
    )
