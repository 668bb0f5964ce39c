"""apt's index of a bundle: what is taken of it is what apt, too, will read."""

from __future__ import annotations

import re
import subprocess
from itertools import product
from pathlib import Path

import pytest

from gpuprov.bundle import resolve
from tests.rows import run_each


def stanza(**other: str) -> str:
    told = {
        "Package": "a",
        "Version": "1",
        "Architecture": "all",
        "Filename": "./a.deb",
        "Size": "1",
        "SHA256": "0" * 64,
    }
    return "".join(f"{name}: {value}\n" for name, value in {**told, **other}.items()) + "\n"


@run_each(
    "index",
    [
        "",
        stanza(Filename="/etc/hostname"),
        stanza(Filename="./../b/a.deb"),
        stanza(Filename="./b.deb"),
        stanza(Size="9" * 5000),
        stanza(Size="-1"),
        stanza(SHA256=""),
        stanza(filename="./b.deb"),
        stanza() + stanza(),
        stanza() + stanza(Filename="./b.deb"),
        stanza(Description="x\r\nPackage: b"),
        stanza(Description="x\n \nPackage: b"),
        stanza(**{"Version ": "9"}),
        stanza(**{"Filename\t": "./b.deb"}),
        stanza(**{"Homepage: x\nVersion\x0b": "9"}),
        stanza(Homepage="x\nno colon"),
        stanza(**{"#Version": "9"}),
        stanza(Homepage="\0"),
        stanza(Version="1\n 2"),
        stanza(Filename="./a.deb \n /../b.deb"),
        stanza(SHA256=f"{'0' * 64}\x1c"),
        stanza(Package="a b"),
        f" Package: b\n{stanza()}",
        f"{stanza()} Package: b\n\n",
        "Package: a\n\n",
        "no field",
    ],
)
def test_an_index_that_says_another_thing_than_its_packages_is_refused(index: str) -> None:
    with pytest.raises(ValueError, match="its index"):
        resolve.judged(index, {"a.deb"})


def _apt(folder: Path, packages: str) -> dict[str, tuple[str, ...]]:
    """What apt itself reads of the packages in an index: version, file, size and SHA-256 by name."""
    (folder / "index").mkdir()
    (folder / "index/Packages").write_text(packages, encoding="utf-8")
    (folder / "list").write_text(f"deb [trusted=yes] file:{folder}/index ./\n")
    (folder / "state/lists/partial").mkdir(parents=True)
    (folder / "status").touch()
    settings = {
        "Dir::Etc": folder / "etc", "Dir::Etc::sourcelist": folder / "list", "Dir::State": folder / "state",
        "Dir::State::status": folder / "status", "Dir::Cache": folder / "cache", "APT::Architecture": "amd64",
        "APT::Sandbox::User": "root",
    }  # fmt: skip
    words = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]

    def run(program: str, *argv: str) -> list[list[str]]:
        ran = subprocess.run([program, *words, *argv], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return [line.split() for line in ran.stdout.splitlines()]

    run("apt-get", "-qq", "update")
    names = [row[0] for row in run("apt-cache", "pkgnames")]
    found: dict[str, tuple[str, ...]] = {row[0]: (row[2],) for row in run("apt-cache", "madison", *names)}
    for uri, _, size, digest in run("apt-get", "download", "--print-uris", *names):
        file = uri.rstrip("'").rpartition("/")[2]
        found[file.removesuffix(".deb")] += (f"./{file}", size, digest.removeprefix("SHA256:"))
    return found


ODD = (
    "Version{}: 9",
    "{}Version: 9",
    "X{}\nVersion: 9",
    "X: y\n{}\nVersion: 9",
    "X: y\n{}X\nVersion: 9",
    "X:{}",
    "X: y\n{}: z",
)
VALUES = ("Version", "Filename", "Size", "SHA256")


@pytest.mark.install
def test_what_is_taken_of_an_index_apt_reads_in_the_same_way(tmp_path: Path) -> None:
    """Each character where it could divide, end or continue a field, in an index that the real apt reads, too."""
    characters = [*map(chr, range(1, 256)), "\u2028", "\ufeff"]
    whole, taken = "", dict[str, tuple[str, ...]]()
    for number, (character, form) in enumerate(product(characters, (*ODD, *VALUES))):
        name = f"p{number}"
        told = {"Package": name, "Filename": f"./{name}.deb", "Version": f"1.{number}"}
        index = stanza(**told).rstrip("\n") + f"\n{form.format(character)}\n\n"
        if form in VALUES:
            index = re.sub(rf"(?m)^({form}: .*)$", rf"\g<1>{re.escape(character)}", stanza(**told))
        try:
            ((file, found),) = resolve.judged(index, {f"{name}.deb"}).items()
        except ValueError:
            continue
        whole += index
        taken[name] = (found["Version"], file, found["Size"], found["SHA256"])
    assert 500 < len(taken) < 2000
    assert _apt(tmp_path, whole) == taken


@pytest.mark.install
@pytest.mark.parametrize("odd", ["Version : 9", "Version\t: 9", "VERSION: 9", "Version\x0c: 9"])
def test_apt_takes_for_a_field_what_is_refused(tmp_path: Path, odd: str) -> None:
    with pytest.raises(ValueError, match="its index"):
        resolve.judged(stanza().rstrip("\n") + f"\n{odd}\n\n", {"a.deb"})
    assert _apt(tmp_path, stanza().rstrip("\n") + f"\n{odd}\n\n")["a"][0] == "9"


def test_an_index_and_its_packages() -> None:
    assert [*resolve.judged(stanza(Description="x\u2028y\n .\n z"), {"a.deb"})] == ["./a.deb"]


def test_an_index_is_read() -> None:
    text = "Package: a\nDescription: b\n c: d\nFilename: ./a.deb\n\n\nPackage: e\nFilename: ./e.deb\n\n"
    first, second = resolve.read_stanzas(text)
    assert (first["Package"], first["Filename"], " c" in first, second["Package"]) == ("a", "./a.deb", False, "e")
    assert first[""] == "Package: a\nDescription: b\n c: d\nFilename: ./a.deb\n"
