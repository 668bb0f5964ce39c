"""A line that says that something failed, and not why, has all its causes told; where a line beside it says which, that
one."""

from __future__ import annotations

from gpuprov.catalog.symptoms import list_symptoms
from gpuprov.explain import Explanation, explain, in_text
from tests.rows import run_each

REFUSED = "[5.55] NVRM: installed in this system requires use of the NVIDIA open kernel modules."
JOINED = "NVRM: The NVIDIA GPU 0000:02:00.0 (PCI ID: 10de:2c58) " + REFUSED.partition("NVRM: ")[2]
FAILED = "[5.56] NVRM: GPU 0000:02:00.0: RmInitAdapter failed! (0x22:0x56:884)"
OLD = "NVRM: installed in this system is not supported by open nvidia.ko because it does not include the required GPU"
LEGACY = "NVRM: supported through the NVIDIA 470.xx Legacy drivers. Please"
NONE = "No devices found"
SMI = "couldn't communicate with the NVIDIA driver"
STARTS_NONE = ["does not say why", "Proprietary", "older than Turing", "too small a window", "no longer on the bus"]
NO_GPU = "[ 4.1] NVRM: No NVIDIA GPU found."
NOT_PROBED = "[ 4.1] NVRM: No NVIDIA devices probed."


def told(answers: list[Explanation], message: str) -> list[tuple[str, str]]:
    (found,) = [one for one in answers if message in one.name.split(" | ")]
    return list(found.lines)


def causes(lines: list[tuple[str, str]]) -> list[str]:
    return [text for title, text in lines if title in ("cause", "or")]


@run_each(
    ("message", "every"),
    [
        ("No devices found", STARTS_NONE),
        ("No devices were found", STARTS_NONE),
        ("No NVIDIA GPU found", ["no GPU on the PCI bus", "590 and newer dropped", "fell off it"]),
        ("No NVIDIA devices probed", ["lspci -k names it", "vfio-pci"]),
        ("Kernel driver in use: vfio-pci", ["for a virtual machine", "left over"]),
        ("couldn't communicate with the NVIDIA driver", ["not built for this kernel", "Secure Boot", "no GPU",
                                                         "Another driver"]),
        ("could not insert 'nvidia': No such device", ["does not say why", "no GPU", "Another kernel driver",
                                                       "wrong flavour"]),
        ("system not yet initialized", ["NVSwitch fabric", "confidential-computing"]),
        ("nvidia-smi hangs", ["does not answer", "Proprietary", "GSP"]),
        ("Exec format error", ["another compiler", "container", "weak-updates"]),
        ("nvidia-container-cli: mount error: stat failed", ["lost its own CUDA", "/dev/nvidia-modeset"]),
        ("Resetting GPU is not supported", ["virtual machine", "joined by NVLink"]),
        ("cudaErrorDevicesUnavailable", ["compute mode", "busy"]),
        ("Failed to initialize NVML: Insufficient Permissions", ["mode or group", "SELinux"]),
        ("could not insert 'nvidia_peermem': Invalid argument", ["OFED was absent", "no OFED", "another OFED", "GB10"]),
    ],
)  # fmt: skip
def test_a_line_alone_has_every_cause(message: str, every: list[str]) -> None:
    for answers in (explain(message), in_text(f"start\n{message}\n", "a log")):
        lines = told(answers, message)
        assert len(causes(lines)) == len(every)
        for cause, words in zip(causes(lines), every, strict=True):
            assert words in cause
        assert all(text for title, text in lines if title in ("check", "fix"))


@run_each(
    ("log", "message", "cause", "fix"),
    [
        ([REFUSED, FAILED, NONE], NONE, "on Blackwell", "kernel_modules: open"),
        ([JOINED, FAILED, NONE], NONE, "on Blackwell", "kernel_modules: open"),
        ([REFUSED, FAILED, NONE], "RmInitAdapter failed", "on Blackwell", "kernel_modules: open"),
        ([REFUSED, FAILED, "nvidia-smi hangs"], "nvidia-smi hangs", "on Blackwell", "kernel_modules: open"),
        ([NO_GPU, SMI], SMI, "no GPU on the PCI bus", "look at card"),
        (["modprobe: Key was rejected by service", SMI], SMI, "Secure Boot is on", "Enrol"),
        ([OLD, NONE], NONE, "older than Turing", "kernel_modules: proprietary"),
        ([LEGACY, NO_GPU], "No NVIDIA GPU found", "no longer has this GPU", "the message names"),
        (["Kernel driver in use: vfio-pci", NOT_PROBED], "No NVIDIA devices probed", "virtual machine",
         "is to have it"),
        (["Kernel driver in use: nouveau", NOT_PROBED], "No NVIDIA devices probed", "not blacklisted",
         "Blacklist nouveau"),
    ],
)  # fmt: skip
def test_a_line_beside_it_decides(log: list[str], message: str, cause: str, fix: str) -> None:
    for answers in (in_text("\n".join(log), "a log"), explain("\n".join(log))):
        lines = told(answers, message)
        assert len(causes(lines)) == 1
        assert cause in dict(lines)["cause"]
        assert fix in dict(lines)["fix"]
        assert message not in answers[0].name.split(" | "), "what decides comes first"


def test_what_decides_is_known() -> None:
    known = {one.key for one in list_symptoms()}
    for one in list_symptoms():
        assert set(one.decided_by) <= known - {one.key}, one.key
        assert not one.decided_by or one.others or "why" in one.cause, f"{one.key} has one cause"


def test_a_message_is_not_answered_by_another_that_has_its_words() -> None:
    assert [one.name for one in explain("No devices were found")] == ["No devices were found | No devices found"]


@run_each("message", ["No devices found", "No NVIDIA GPU found"])
def test_a_line_of_missing_gpus_is_told_with_what_decides(message: str) -> None:
    checks = [text for title, text in told(explain(message), message) if title == "check"]
    assert "lspci -nn -d 10de:" in checks[0]
    assert "dmesg | grep" in checks[0]
    assert "NVRM" in checks[0]
