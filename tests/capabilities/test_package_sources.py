"""Checks of package sources: as wanted, trusted by the wanted key alone, and what proves nothing is named."""

from __future__ import annotations

import base64
from collections.abc import Mapping

import pytest

from gpuprov.capabilities import BY_NAME
from gpuprov.capabilities.base import Context, Outcome
from gpuprov.capabilities.cuda_toolkit.fragment import CudaToolkit
from gpuprov.capabilities.dcgm.fragment import Dcgm
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.capabilities.package_sources import judge as judge_sources
from gpuprov.capabilities.package_sources import package_sources
from gpuprov.catalog import repositories as catalogue
from gpuprov.facts.probes.host.family import Family
from gpuprov.facts.probes.software.repositories import REPOSITORIES
from gpuprov.host_code import openpgp, sources
from gpuprov.host_code.sources import Source
from gpuprov.spec.model import Fragment, HostSpec
from gpuprov.spec.repository import Repository
from tests import public_keys as made
from tests.capabilities.asking import GOOD, facts
from tests.rows import run_each

URL = "https://mirror.example/cuda/"
WANTED: Source = {
    "name": "cuda", "of": "nvidia_driver.repository", "url": URL, "suite": "/", "components": [], "key_file": "",
    "key_url": "https://mirror.example/k.asc", "fingerprint": made.GOOD_FINGERPRINT, "signed": "packages",
}  # fmt: skip
RELEASES: dict[Family, str] = {
    "debian": "ID=debian\nVERSION_ID=12\n",
    "redhat": 'ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.4"\n',
}
PLACES = {family: sources.derive_path("cuda", family) for family in RELEASES}
KEYS = {family: sources.get_key_path("cuda", family) for family in RELEASES}
RPM_KEY = f"@rpmkey {made.GOOD_FINGERPRINT[-8:].lower()}-6b018a88"


def host(family: Family, changed: Mapping[str, str | None] | None = None, *more: str) -> str:
    """What the probe prints of a host that is right but for these files (None: not there), with these lines more."""
    files: dict[str, str | None] = {
        PLACES[family]: sources.format_text(WANTED, family), KEYS[family]: openpgp.armour_keys(made.GOOD),
        **(changed or {}),
    }  # fmt: skip
    lines = [
        f"@file {name}\n" + "".join(f" {line}\n" for line in body.splitlines()) for name, body in files.items() if body
    ]
    return "".join(lines) + "\n".join(["@gpgcheck 1", *(more or ([RPM_KEY] if family == "redhat" else []))]) + "\n"


def ask(family: Family, text: str, wanted: Source = WANTED) -> Outcome:
    told = facts(repositories=f"{text}@end\n").get(REPOSITORIES)
    return judge_sources(told, wanted, family)


@run_each("family", RELEASES)
def test_a_host_that_is_right(family: Family) -> None:
    outcome = ask(family, host(family))
    assert (outcome.status, outcome.found) == ("pass", f"{URL}, trusted by {made.GOOD_FINGERPRINT}")


LIST = "/etc/apt/sources.list.d/other.list"
LIST_TEXT, REPO_TEXT = (sources.format_text(WANTED, family) for family in ("debian", "redhat"))
ROWS: list[tuple[str, str, dict[str, str | None], tuple[str, ...], str]] = [
    ("no file", "debian", {PLACES["debian"]: None}, (), "gpuprov-cuda.sources is not there"),
    ("changed", "debian", {PLACES["debian"]: LIST_TEXT + "Trusted: yes\n"}, (), "differs from what gpuprov writes"),
    ("no key", "debian", {KEYS["debian"]: None}, (), "it is empty"),
    ("another key", "debian", {KEYS["debian"]: made.OTHER}, (),
     f"its fingerprint is {made.OTHER_FINGERPRINT}, expected is"),
    ("a key more", "debian", {KEYS["debian"]: made.GOOD + made.OTHER}, (),
     f"its fingerprint is {made.OTHER_FINGERPRINT}"),
    ("twice", "debian", {LIST: f"deb [trusted=yes] {URL} /\n"}, (), f"{LIST} has {URL}, without a key of its own"),
    ("no file for dnf", "redhat", {PLACES["redhat"]: None}, (), "gpuprov-cuda.repo is not there"),
    ("unknown to rpm", "redhat", {}, ("@machine x86_64",), f"rpm does not know the key {made.GOOD_FINGERPRINT}"),
    ("gpgcheck off", "redhat",
     {PLACES["redhat"]: REPO_TEXT.replace("gpgcheck=1", "gpgcheck=0")}, (), "differs from what gpuprov writes"),
    ("twice for dnf", "redhat", {"/etc/yum.repos.d/o.repo": f"[o]\nbaseurl={URL}\n"}, (RPM_KEY,),
     f"o.repo has {URL}, without"),
]  # fmt: skip


@run_each(("family", "changed", "more", "found"), [pytest.param(*row[1:], id=row[0]) for row in ROWS])
def test_a_host_that_is_not(family: Family, changed: dict[str, str | None], more: tuple[str, ...], found: str) -> None:
    outcome = ask(family, host(family, changed, *more))
    assert outcome.status == "fail"
    assert found in outcome.found
    assert outcome.fix
    assert made.GOOD_FINGERPRINT in outcome.expected


def test_an_expired_key() -> None:
    wanted: Source = {**WANTED, "fingerprint": made.EXPIRED_FINGERPRINT}
    outcome = ask("debian", host("debian", {KEYS["debian"]: made.EXPIRED}), wanted)
    assert (outcome.status, outcome.expected) == ("fail", "a key that has not expired")


def test_a_key_file_that_is_gone() -> None:
    outcome = ask("debian", host("debian"), {**WANTED, "fingerprint": "", "key_file": "/nowhere/k.asc", "key_url": ""})
    assert outcome.status == "fail"
    assert "No such file" in outcome.found


def with_short_id_of_good(text: str) -> str:
    """A line for another key that has the last eight digits of the good one, as rpm before 6 would show it."""
    return f"@rpmkey {made.GOOD_FINGERPRINT[-8:].lower()}-1 {base64.b64encode(text.encode()).decode()}"


def test_rpm_has_a_key_with_the_same_last_digits_only() -> None:
    outcome = ask("redhat", host("redhat", None, with_short_id_of_good(made.OTHER)))
    assert (outcome.status, outcome.fix) == ("fail", f"rpm --import {KEYS['redhat']}")
    assert ask("redhat", host("redhat", None, with_short_id_of_good(made.GOOD))).status == "pass"


def test_a_source_that_another_capability_put_there() -> None:
    assert ask("debian", host("debian"), {**WANTED, "name": "dcgm", "of": "dcgm.repository"}).status == "pass"


def judge(text: str) -> Outcome:
    return package_sources.run(Context(HostSpec(name="gpu1"), Fragment(), facts(repositories=f"{text}@end\n")))


def test_sources_that_prove_whose_they_are() -> None:
    assert judge(host("debian")).status == "pass"
    assert judge("@arch amd64\n").status == "pass"


def test_the_files_that_the_host_keeps_itself_need_no_signature_and_nothing_else_is_like_them() -> None:
    kept, mine = "/etc/apt/sources.list.d/gpuprov-kept.sources", "file:/var/lib/gpuprov/packages"
    form = "@file {}\n Types: deb\n URIs: {}\n Suites: ./\n Trusted: yes\n"
    assert judge(form.format(kept, mine)).found == "1 source"
    assert judge(form.format(kept, "https://x.nvidia.com/cuda")).status == "fail"
    assert judge(form.format(kept, f"{mine}/../../tmp")).status == "fail"
    assert judge(form.format("/etc/apt/sources.list.d/gpuprov-other.sources", mine)).status == "fail"


@run_each(
    ("text", "found"),
    [
        (f"@file {LIST}\n deb [trusted=yes] https://x.nvidia.com/cuda /\n",
            f"{LIST}: trusted=yes for https://x.nvidia.com/cuda"),
        ("@file /etc/yum.repos.d/n.repo\n [n]\n baseurl=https://x.nvidia.com\n gpgcheck=0\n", "n.repo: gpgcheck=0"),
        ("@file /etc/yum.repos.d/n.repo\n [n]\n baseurl=https://x.nvidia.com\n gpgkey=http://x/k\n gpgcheck=1\n",
            "plain http"),
        ("@rpmkey 7fa2af80-576db785\n",
            "rpm's database trusts 7FA2AF80, which NVIDIA replaced by 3BF863CC and D42D0685 on 2022"),
    ],
)  # fmt: skip
def test_sources_of_nvidia_that_do_not(text: str, found: str) -> None:
    outcome = judge(text)
    assert outcome.status == "fail"
    assert found in outcome.found
    assert "rpm -e" in outcome.fix


def test_other_peoples_sources_are_named_and_left_to_them() -> None:
    outcome = judge(f"@file {LIST}\n deb [trusted=yes] https://site.example/x /\n")
    assert outcome.status == "pass"
    assert f"{LIST}: trusted=yes for https://site.example/x" in outcome.found


def test_a_retired_key_in_apts_common_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    old = catalogue.Retired(
        id="7FA2AF80", fingerprint=made.OTHER_FINGERPRINT, since="2022-04-28", successors=("X",), source=()
    )
    monkeypatch.setattr(catalogue, "list_retired_keys", lambda: (old,))
    data = base64.b64encode((made.GOOD + made.OTHER).encode()).decode()
    outcome = judge(f"@key /etc/apt/trusted.gpg {data}\n@key /etc/apt/trusted.gpg.d/bad.gpg AAAA\n")
    assert outcome.found.startswith("/etc/apt/trusted.gpg trusts 7FA2AF80")


@run_each("name", ["dcgm", "cuda_toolkit"])
def test_what_the_drivers_mirror_brings_is_resolved_when_it_is_there(name: str) -> None:
    mirror = Repository(url="https://mirror.example/cuda", key_url="https://mirror.example/k", fingerprint="A" * 40)
    driver = NvidiaDriver(version="580", source="mirror", repository=mirror)
    check = next(one for one in BY_NAME[name].checks if one.id == f"{name}.resolvable")
    empty = dict.fromkeys(("dcgm_index", "dcgm_packages", "cuda_index", "cuda_packages"), "")
    told = facts(**{probe.name: {**GOOD, **empty}[probe.name] for probe in check.probes})
    wanted = Dcgm() if name == "dcgm" else CudaToolkit(versions=("12.8",))
    alone = check.run(Context(HostSpec(name="gpu1"), wanted, told))
    assert alone.status == "fail"
    outcome = check.run(Context(HostSpec(name="gpu1", capabilities={"nvidia_driver": driver}), wanted, told))
    assert outcome.status == "skip"
    assert outcome.changes[0].after == "resolved when apply has added https://mirror.example/cuda"
