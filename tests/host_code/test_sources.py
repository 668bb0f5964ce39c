"""Files of package sources: what they say, how ours are written, and who else has the same source."""

from __future__ import annotations

from gpuprov.host_code import source_files, sources
from tests.rows import run_each

CUDA = "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/"
WANTED: sources.Source = {
    "name": "cuda", "of": "nvidia_driver", "url": CUDA, "suite": "/", "components": [], "key_file": "", "key_url": "",
    "fingerprint": "", "signed": "packages",
}  # fmt: skip
EL = "https://developer.download.nvidia.com/compute/cuda/repos/rhel9/x86_64/"
DNF: sources.Source = {**WANTED, "url": EL}
LIST = "/etc/apt/sources.list.d/cuda-debian12-x86_64.list"


def probed(**files: str) -> str:
    """What the probe prints of these files; names are short for a place in the folder of their kind."""
    lines = ["@arch amd64", "@machine x86_64", "@release 9", "@gpgcheck 1"]
    for name, body in files.items():
        stem, _, kind = name.rpartition("_")
        folder = "/etc/yum.repos.d" if kind == "repo" else "/etc/apt/sources.list.d"
        lines += [f"@file {folder}/{stem.replace('_', '-')}.{kind}", *(f" {line}" for line in body.splitlines())]
    return "\n".join(lines) + "\n"


def rows(**files: str) -> list[source_files.Row]:
    return sources.parse(probed(**files))["sources"]


def test_one_line_style() -> None:
    line = (
        "deb [arch=amd64 signed-by=/usr/share/keyrings/k.gpg trusted=yes] https://a.example/x stable main extra # note"
    )
    (row,) = rows(a_list=f"# deb https://off.example x y\n{line}\ndeb-src https://a.example/x stable main\n")
    assert (row.url, row.suite, row.components) == ("https://a.example/x", "stable", ["main", "extra"])
    assert (row.signed_by, row.trusted) == ("/usr/share/keyrings/k.gpg", "trusted=yes")


def test_deb822() -> None:
    text = (
        "# a comment\nTypes: deb deb-src\nURIs: https://a.example/x\n  https://b.example/x\nSuites: stable\n"
        "Components: main\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n\n"
        "Types: deb\nURIs: https://c.example\nSuites: ./\nEnabled: no\n\n"
        "Types: deb-src\nURIs: https://d.example\nSuites: ./\n\nTypes: deb\nURIs: https://e.example\nSuites: "
        "./\nTrusted: yes\n"
    )
    found = rows(a_sources=text)
    assert [row.url for row in found] == ["https://a.example/x", "https://b.example/x", "https://e.example"]
    assert found[0].signed_by == "a key inside the file"
    assert found[2].trusted == "Trusted: yes"


def test_dnf() -> None:
    text = (
        "[one]\nname=one\nbaseurl=https://a.example/$basearch/\n  https://b.example/x\ngpgkey=https://a.example/k\n"
        "repo_gpgcheck=1\ngpgcheck=0\n[two]\nbaseurl=https://c.example\nenabled=0\n[three]\nmirrorlist=https://d.example\n"
    )
    found = rows(a_repo=text)
    assert [(row.id, row.gpgcheck, row.repo_gpgcheck) for row in found] == [
        ("one", False, True), ("one", False, True), ("three", True, False),
    ]  # fmt: skip


def test_what_we_write_is_what_we_read() -> None:
    (row,) = rows(gpuprov_cuda_sources=sources.format_text(WANTED, "debian"))
    assert (row.url, row.suite, row.signed_by) == (CUDA, "/", "/etc/apt/keyrings/gpuprov-cuda.asc")
    suites = sources.format_text({**WANTED, "suite": "stable", "components": ["main", "extra"]}, "debian")
    assert rows(gpuprov_cuda_sources=suites)[0].components == ["main", "extra"]


@run_each(("signed", "packages", "index"), [("packages", 1, 0), ("index", 0, 1), ("both", 1, 1)])
def test_a_dnf_source_always_checks_something(signed: str, packages: int, index: int) -> None:
    text = sources.format_text({**DNF, "signed": signed}, "redhat")
    assert (
        f"\ngpgcheck={packages}\nrepo_gpgcheck={index}\ngpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-gpuprov-cuda\n"
        in text
    )
    assert sources.list_weaknesses(rows(gpuprov_cuda_repo=text)[0]) == []


CONFLICTS = {
    "the same with another key": (
        {"other_list": f"deb [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg] {CUDA} /\n"},
        "/etc/apt/sources.list.d/other.list has "
        + CUDA
        + " already, trusted by /usr/share/keyrings/cuda-archive-keyring.gpg",
    ),
    "the same without a slash and without a key": (
        {"other_list": f"deb {CUDA.rstrip('/')} /\n"},
        "without a key of its own",
    ),
    "the same over plain http": ({"other_list": f"deb {CUDA.replace('https', 'http')} /\n"}, "Conflicting values"),
    "switched off": ({"other_sources": f"Types: deb\nURIs: {CUDA}\nSuites: /\nEnabled: no\n"}, ""),
    "another suite": ({"other_list": f"deb {CUDA} stable main\n"}, ""),
    "another repository": ({"other_list": "deb https://deb.debian.org/debian bookworm main\n"}, ""),
    "our own file, changed by hand": (
        {"gpuprov_cuda_list": "", "gpuprov_cuda_sources": f"Types: deb\nURIs: {CUDA}\nSuites: /\n"},
        "",
    ),
}


@run_each(("files", "words"), CONFLICTS.values(), ids=list(CONFLICTS))
def test_conflicts_of_apt(files: dict[str, str], words: str) -> None:
    problem, _ = sources.find_conflict(sources.parse(probed(**files)), WANTED, "debian")
    assert bool(problem) == bool(words)
    assert words in problem


def test_the_way_out_names_the_package_that_brings_the_file() -> None:
    line = f"deb [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg] {CUDA} /"
    _, fix = sources.find_conflict(sources.parse(f"@arch amd64\n@file {LIST}\n {line}\n"), WANTED, "debian")
    assert fix == f"remove it from {LIST} (apt-get purge cuda-keyring), then apply again"


@run_each(
    ("body", "words"),
    [
        (
            f"[cuda-rhel9-x86_64]\nbaseurl={EL.replace('x86_64', '$basearch').replace('rhel9', 'rhel$releasever')}\n",
            "has https",
        ),
        (f"[cuda]\nbaseurl={EL}\nenabled=0\n", ""),
        ("[gpuprov-cuda]\nbaseurl=https://a.example/\n", "a.example"),
        ("[cuda]\nbaseurl=https://a.example/\n", ""),
    ],
)
def test_conflicts_of_dnf(body: str, words: str) -> None:
    problem, _ = sources.find_conflict(sources.parse(probed(other_repo=body)), DNF, "redhat")
    assert bool(problem) == bool(words)
    assert words in problem


def test_a_variable_in_apts_url() -> None:
    url = "https://nvidia.github.io/libnvidia-container/stable/deb/amd64"
    wanted: sources.Source = {**WANTED, "url": url, "name": "container-toolkit"}
    line = "deb https://nvidia.github.io/libnvidia-container/stable/deb/$(ARCH) /\n"
    assert sources.find_conflict(sources.parse(probed(nvidia_list=line)), wanted, "debian")[0]


def has(wanted: sources.Source, family: str, key: str = "KEY\n", **more: str) -> str:
    """The probe's output of a host that has the source as we write it."""
    files = {
        sources.derive_path(wanted["name"], family): sources.format_text(wanted, family),
        sources.get_key_path(wanted["name"], family): key,
    }
    lines = [
        line for name, body in files.items() for line in (f"@file {name}", *(f" {row}" for row in body.splitlines()))
    ]
    return "\n".join([*lines, probed(**more)])


def test_a_host_that_has_it_needs_nothing() -> None:
    planned = sources.plan(has(WANTED, "debian"), WANTED, "KEY\n", ["AB" * 20], "debian")
    assert planned["right"]
    assert planned["source"]["before"] == planned["source"]["text"]


@run_each(
    "changed", [{"key": "NEW\n"}, {"url": "https://mirror.example/"}, {"suite": "stable", "components": ["main"]}]
)
def test_a_host_that_has_something_else_gets_it(changed: sources.Source) -> None:
    key = changed.get("key", "KEY\n")
    planned = sources.plan(has(WANTED, "debian"), {**WANTED, **changed}, key, [], "debian")
    assert not planned["right"]
    assert not planned["problem"]
    assert planned["key"]["before"] == "KEY\n"


def test_a_new_host_has_nothing_before() -> None:
    planned = sources.plan(probed(), WANTED, "KEY\n", [], "debian")
    assert (planned["right"], planned["source"]["before"], planned["key"]["before"]) == (False, None, None)


def test_two_capabilities_share_one_file() -> None:
    planned = sources.plan(has(WANTED, "debian"), {**WANTED, "name": "dcgm"}, "KEY\n", [], "debian")
    assert (planned["right"], planned["name"], planned["problem"]) == (True, "cuda", "")
    other = sources.plan(has(WANTED, "debian"), {**WANTED, "name": "dcgm"}, "ANOTHER\n", [], "debian")
    assert "gpuprov-cuda.sources has" in other["problem"]


@run_each(("line", "imports"), [("", True), ("@rpmkey 63bf863cc-1\n", True), ("@rpmkey 3bf863cc-62589a51\n", False)])
def test_rpm_must_know_the_key(line: str, imports: bool) -> None:
    fingerprint = "EB693B3035CD5710E231E123A4B469963BF863CC"
    planned = sources.plan(line + has(DNF, "redhat"), DNF, "KEY\n", [fingerprint], "redhat")
    assert (planned["imports"], planned["right"]) == (imports, not imports)


@run_each(
    ("files", "words"),
    [
        ({"a_list": "deb [trusted=yes] https://nvidia.example/ /\n"}, ["trusted=yes"]),
        ({"a_list": "deb [trusted=YES] https://nvidia.example/ /\n"}, ["trusted=YES"]),
        ({"a_list": "deb [allow-weak=with] https://nvidia.example/ /\n"}, ["allow-weak=with"]),
        ({"a_list": "deb [allow-insecure=yes] https://nvidia.example/ /\n"}, ["allow-insecure=yes"]),
        ({"a_repo": "[a]\nbaseurl=https://a.example\ngpgcheck=0\n"}, ["gpgcheck=0"]),
        ({"a_repo": "[a]\nbaseurl=https://a.example\ngpgcheck=0\nrepo_gpgcheck=1\n"}, []),
        ({"a_repo": "[a]\nbaseurl=https://a.example\ngpgkey=http://a.example/k\n"},
         ["key over plain http (http://a.example/k)"]),
        ({"a_repo": "[a]\nbaseurl=http://a.example\ngpgkey=https://a.example/k\n"}, []),
    ],
)  # fmt: skip
def test_weaknesses(files: dict[str, str], words: list[str]) -> None:
    (row,) = rows(**files)
    assert sources.list_weaknesses(row) == words
