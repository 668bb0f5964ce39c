"""nvidia_driver.signing: what the firmware trusts, what DKMS is told, what every kernel's modules are signed with."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from gpuprov.capabilities.base import Outcome
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.kernel.signing import CERTIFICATE_FILE, ENROLLED, KEY_FILE, MODULE_SIGNING
from gpuprov.rules import certificates
from tests import key_pairs
from tests.capabilities import at_boot
from tests.capabilities.asking import PODMAN, Row, ask, judge
from tests.facts.probes import captured
from tests.rows import run_each

ON = captured("secure_boot", "on")
SECURE, TOOL, SIGNED = "nvidia_driver.secure_boot", "nvidia_driver.signing_tool", "nvidia_driver.signed"
ENROLLING = "nvidia_driver.enrolled"
ROWS = [
    Row("Secure Boot is off", SECURE, None, {}, "pass", "off"),
    Row("no EFI", SECURE, None, {"secure_boot": ""}, "pass", "no EFI"),
    Row("variables that are not mounted", SECURE, None, {"secure_boot": "", "mok_state": "looked|1\nefi|1\n"}, "skip",
        "cannot be read", "mount -t efivarfs"),
    Row("without the key", SECURE, None, {"secure_boot": ON}, "fail", "not enrolled",
        "mokutil --import /var/lib/dkms/mok.pub"),
    Row("with another certificate than the one that is enrolled", SECURE, None,
        {"secure_boot": ON, "dkms_key_enrolled": "other|/etc/ours.der\n"}, "fail", "not enrolled",
        "mokutil --import /etc/ours.der"),
    Row("with the key", SECURE, None, {"secure_boot": ON, "dkms_key_enrolled": "enrolled|/var/lib/dkms/mok.pub\n"},
        "pass"),
    Row("a container loads no modules", SECURE, None, {"secure_boot": ON, **PODMAN}, "skip"),
    Row("no site certificate", ENROLLING, None, {"secure_boot": ON}, "n/a", "no site certificate"),
    Row("no key is given", TOOL, None, {}, "n/a", "its own key"),
    Row("no key was ever given", SIGNED, None, {}, "n/a", "its own key"),
    Row("settings are left", SIGNED, None, {"module_signing": "written|1\n"}, "fail", "gpuprov.conf is left",
        "gpuprov apply"),
    Row("a key is left", SIGNED, None, {"module_signing": "key|root 600\n"}, "fail", f"{KEY_FILE} is left",
        "gpuprov apply"),
]  # fmt: skip

NEXT = "6.1.0-47-amd64"
DKMS_KEY = f"module|{NEXT}|nvidia-current|DKMS module signing key|1B:2C"


def of_next(*lines: str, enrolled: str = "aa:bb\nserial 1b:2c\n", driver: NvidiaDriver | None = None) -> Outcome:
    shown = "".join(f"{line}\n" for line in lines)
    return ask(SIGNED, driver, secure_boot=ON.text, module_signing=shown, enrolled_certificates=enrolled)


def test_with_secure_boot_on_the_next_kernels_modules_must_load() -> None:
    """https://github.com/fedora-silverblue/issue-tracker/issues/272: akmods built a module without a signature, and it
    was refused."""
    assert (of_next(DKMS_KEY).status, of_next(DKMS_KEY).found) == (
        "pass",
        "1 module, signed by DKMS module signing key (1b2c), whose certificate is enrolled",
    )
    bare = of_next(DKMS_KEY, f"module|{NEXT}|nvidia-current-uvm||")
    assert (bare.status, "nvidia-current-uvm is not signed" in bare.found) == ("fail", True)
    assert "nvidia_driver.signing" in bare.fix
    other = of_next(DKMS_KEY, enrolled="aa:bb\nserial 2d\n")
    assert (other.status, "DKMS module signing key (1b2c), and no enrolled" in other.found) == ("fail", True)
    assert "mokutil --import" in other.fix


def test_what_is_not_known_of_signatures_is_said_and_is_no_failure() -> None:
    for enrolled in ("", "2bb010e24d\n", "aa:bb\ncc:dd\nserial 2d\n"):
        found = of_next(DKMS_KEY, enrolled=enrolled)
        assert (found.status, "mokutil cannot say" in found.found) == ("skip", True), enrolled
    canonical = f"module|{NEXT}|nvidia|Canonical Ltd. Kernel Module Signing|77"
    assert of_next(canonical, driver=NvidiaDriver(build="precompiled")).status == "pass", (
        "the kernel's own key is not enrolled"
    )
    nvidia = ask(SIGNED, NvidiaDriver(build="precompiled"), secure_boot=ON.text,
                 module_signing=f"module|{NEXT}|nvidia|NVIDIA|77\n",
        enrolled_certificates="aa:bb\nserial 1b:2c\n",
        os_release='ID="rhel"\nVERSION_ID="9.5"\nPRETTY_NAME="RHEL 9.5"\n')  # fmt: skip
    assert nvidia.status == "fail", "NVIDIA's own key is not a distribution's"
    assert of_next("module|6.1.0-46-amd64|nvidia||", DKMS_KEY).status == "pass", "one that does not start next"
    assert ask(SIGNED, None, secure_boot=ON.text, module_signing=f"module|{NEXT}|nvidia||\n", **PODMAN).status == "n/a"
    assert ask(SIGNED, None, module_signing=f"module|{NEXT}|nvidia||\n").status == "n/a", "Secure Boot is off"
    assert of_next().status == "skip"


def test_serial_numbers_of_real_certificates(tmp_path: Path) -> None:
    """Of a list that mokutil printed, and one with a small number, as openssl shows it."""
    listed = Path(__file__).parents[1] / "real/mok-list-one-canonical/mokutil-list-enrolled.txt"
    small = "[key 2]\nSHA1 Fingerprint: aa:bb\nCertificate:\n    Data:\n        Serial Number: 26 (0x1a)\n"
    (tmp_path / "list").write_text(listed.read_text() + small)
    mokutil = f'[ "$1" != --list-enrolled ] || cat {tmp_path}/list'
    env = at_boot.stand_in(tmp_path / "bin", {"mokutil": mokutil})
    found = ENROLLED.parse(Output(at_boot.shell(ENROLLED.script, env)))
    assert (len(found), found.serials, found.whole) == (2, frozenset(("b94124a0182c9267", "1a")), True)


@run_each("row", ROWS, ids=lambda row: f"{row.check.partition('.')[2]}: {row.name}")
def test_the_answer(row: Row) -> None:
    judge(row)


@pytest.fixture
def driver(tmp_path: Path) -> NvidiaDriver:
    return NvidiaDriver(signing=key_pairs.site(tmp_path))


def identity(driver: NvidiaDriver) -> dict[str, str]:
    return certificates.of_file(driver.signing.certificate_file)


def test_the_sites_certificate_is_trusted(driver: NvidiaDriver) -> None:
    colons = ":".join(bytes.fromhex(identity(driver)["fingerprint"]).hex(" ").split()).upper()
    found = ask(SECURE, driver, secure_boot=ON, enrolled_certificates=f"aa:bb\n{colons}\n")
    assert found.status == "pass"
    assert "site.crt" in found.found


def test_a_short_list_of_certificates_has_it(driver: NvidiaDriver) -> None:
    """mokutil 0.7.1, which Fedora has, shows no more than the beginning of a fingerprint."""
    listed = f"2bb010e24d\n{identity(driver)['fingerprint'][:10]}\n"
    assert ask(SECURE, driver, secure_boot=ON, enrolled_certificates=listed).status == "pass"


READY = "looked|1\nefi|1\nvariables|rw\ntool|1\n"


@pytest.mark.parametrize("check", [SECURE, ENROLLING])
@pytest.mark.parametrize(
    ("mok", "found", "fix", "reboot"),
    [
        (READY, "no enrolled certificate has its SHA-1 fingerprint", "gpuprov enroll INVENTORY --sheet FILE", False),
        (READY + "new|{mine}\n", "waits for the console at the next boot", "confirm in MokManager", True),
        (READY + "new|{mine}\nnew|aa:bb\n", "waits for the console at the next boot", "confirm in MokManager", True),
        (READY + "new|aa:bb\n", "another certificate waits for the console: aabb", "--again drops it", False),
        (READY.replace("rw", "ro"), "efivars is mounted read-only", "mount -o remount,rw /sys/firmware/efi/efivars",
         False),
        ("looked|1\nefi|1\ntool|1\n", "efivars is not mounted", "mount -t efivarfs efivarfs", False),
        ("looked|1\nefi|1\nvariables|rw\n", "mokutil, which shows", "apt-get install mokutil", False),
    ],
)  # fmt: skip
def test_what_enrolment_waits_for(
    driver: NvidiaDriver, check: str, mok: str, found: str, fix: str, reboot: bool
) -> None:
    """A certificate that waits for the console is not a pass: an unanswered prompt drops the request."""
    mine = identity(driver)["fingerprint"]
    signing = msgspec.structs.replace(driver.signing, enroll="prepared")
    outcome = ask(check, NvidiaDriver(signing=signing), secure_boot=ON, mok_state=mok.replace("{mine}", mine))
    assert (outcome.status, bool(outcome.reboot)) == ("fail", reboot)
    assert found in outcome.found
    assert fix in outcome.fix
    by_hand = ask(check, driver, secure_boot=ON, mok_state=mok.replace("{mine}", mine))
    assert "gpuprov enroll" not in by_hand.fix
    assert ask(check, driver, secure_boot=ON, mok_state=mok, enrolled_certificates=f"{mine}\n").status == "pass"


@pytest.mark.parametrize("enrolled", ["", "aa:bb\n", "2bb010e24d\n68447cfc17\n"])
def test_the_sites_certificate_is_not_trusted(driver: NvidiaDriver, enrolled: str) -> None:
    """That DKMS's own key is enrolled does not help: it is not the one that will sign."""
    found = ask(SECURE, driver, secure_boot=ON, enrolled_certificates=enrolled, dkms_key_enrolled="enrolled|/x\n")
    assert found.status == "fail"
    assert identity(driver)["fingerprint"] in found.found
    assert f"mokutil --import {driver.signing.certificate_file}" in found.fix


DKMS = "ii |dkms|{}|dkms\n"
TOOLS = {
    "bookworm": (DKMS.format("3.0.10-8+deb12u1"), "", "pass"),
    "the first": (DKMS.format("3.0.4-1"), "", "pass"),
    "jammy": (DKMS.format("2.8.7-2ubuntu2.2"), "", "fail"),
    "just too old": (DKMS.format("3.0.3-1"), "", "fail"),
    "offered": (
        "",
        "      dkms | 3.0.10-8+deb12u1 | http://deb.debian.org/debian bookworm/main amd64 Packages\n",
        "pass",
    ),
    "nothing known": ("", "", "skip"),
}


@pytest.mark.parametrize("name", TOOLS)
def test_dkms_takes_the_key(driver: NvidiaDriver, name: str) -> None:
    installed, offered, status = TOOLS[name]
    found = ask(TOOL, driver, packages=installed, package_index=offered)
    assert found.status == status, found
    assert found.status != "fail" or ("MOK.priv" in found.fix and "3.0.4" in found.expected)


def host(driver: NvidiaDriver, **changed: str) -> str:
    """A host whose two kernels have modules that the site's key signed, with some lines changed or (empty) left out."""
    shown = ":".join(bytes.fromhex(f"{key_pairs.SERIAL:012x}").hex(" ").split()).upper()
    lines = {
        "key_setting": f"setting|mok_signing_key|{KEY_FILE}",
        "certificate_setting": f"setting|mok_certificate|{CERTIFICATE_FILE}",
        "written": "written|1",
        "key": "key|root 600",
        "certificate": f"certificate|{identity(driver)['content']}",
        "pair": "pair|1",
        "old": f"module|6.1.0-44-amd64|nvidia-current|test modules|{shown}",
        "new": f"module|6.1.0-45-amd64|nvidia-current|test modules|{shown}",
        "drm": f"module|6.1.0-45-amd64|nvidia-current-drm|test modules|{shown}",
        **changed,
    }
    return "".join(f"{line}\n" for line in lines.values() if line)


def signed(driver: NvidiaDriver, **changed: str) -> Outcome:
    kernels = "6.1.0-44-amd64|1|1|535.261.03|1\n6.1.0-45-amd64|1|1|535.261.03|1\n"
    return ask(SIGNED, driver, kernels=kernels, module_signing=host(driver, **changed))


def test_everything_is_signed(driver: NvidiaDriver) -> None:
    found = signed(driver)
    assert found.status == "pass", found
    assert found.found == "3 modules of 6.1.0-44-amd64 6.1.0-45-amd64"


OTHER = "module|6.1.0-44-amd64|nvidia-current|test modules|0F:0F"
WRONG = {
    "no key": ({"key": ""}, "modules.key is not on the host"),
    "a key for everyone": ({"key": "key|root 644"}, "is of root 644, and must be of root 600"),
    "someone else's key": ({"key": "key|gpuadmin 600"}, "is of gpuadmin 600"),
    "another certificate": ({"certificate": "certificate|abcd"}, "another certificate"),
    "another key": ({"pair": ""}, "is not the key of"),
    "DKMS is not told": ({"key_setting": ""}, "mok_signing_key is not set"),
    "a later file wins": ({"more": "setting|mok_certificate|/etc/x.der"}, "mok_certificate is /etc/x.der"),
    "an unsigned module": (
        {"drm": "module|6.1.0-45-amd64|nvidia-current-drm||"},
        "6.1.0-45-amd64: nvidia-current-drm is not signed",
    ),
    "another key of the same name": ({"old": OTHER}, "6.1.0-44-amd64: nvidia-current is signed by test modules (f0f)"),
    "no module for the other kernel": ({"old": ""}, "6.1.0-44-amd64: no NVIDIA module"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not(driver: NvidiaDriver, name: str) -> None:
    changed, reason = WRONG[name]
    found = signed(driver, **changed)
    assert found.status == "fail"
    assert reason in found.found, found
    assert "gpuprov apply" in found.fix


def test_a_kernel_that_cannot_boot_does_not_count(driver: NvidiaDriver) -> None:
    assert signed(driver, stale="module|5.10.0-1-amd64|nvidia-current||").status == "pass"


def test_without_openssl_the_pair_is_not_known(driver: NvidiaDriver) -> None:
    found = signed(driver, pair="pair|?")
    assert (
        found.status,
        "without openssl it is unknown" in found.found,
        "apt-get install openssl" in found.found,
    ) == ("skip", True, True)
    assert signed(driver, pair="pair|?", old=OTHER).status == "fail", "what is wrong is still said"


@run_each("there", [True, False])
def test_the_probe_says_that_openssl_is_missing(tmp_path: Path, there: bool) -> None:
    (tmp_path / "bin").mkdir()
    for tool in ("sed", "stat", "sha256sum", "cat", "tr", *(["openssl"] if there else [])):
        found = shutil.which(tool)
        assert found
        (tmp_path / "bin" / tool).symlink_to(found)
    site = key_pairs.site(tmp_path)
    script = MODULE_SIGNING.script.replace(KEY_FILE, site.key_file).replace(CERTIFICATE_FILE, site.certificate_file)
    shell = shutil.which("sh")
    assert shell
    done = subprocess.run(
        [shell, "-c", script], env={"PATH": str(tmp_path / "bin")}, capture_output=True, text=True, check=True
    )
    assert MODULE_SIGNING.parse(Output(done.stdout)).pair is (True if there else None)


def test_no_kernel_is_no_success(driver: NvidiaDriver) -> None:
    assert ask(SIGNED, driver, kernels="", module_signing=host(driver)).status == "fail"


def test_no_field_holds_the_key() -> None:
    read = MODULE_SIGNING.parse(Output(f"key|root 600\nsetting|mok_signing_key|{KEY_FILE}\n"))
    assert read.key == "root 600"
    assert "cat " not in MODULE_SIGNING.script
