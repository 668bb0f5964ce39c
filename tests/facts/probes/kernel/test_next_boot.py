"""What the bootloader starts next, by outputs of a real machine's GRUB and of hosts in public threads."""

from __future__ import annotations

import msgspec

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.kernel.grub_menu import Entry, find_started, parse_kernel, parse_loader_entries, read_menu
from gpuprov.facts.probes.kernel.next_boot import NextBoot, parse_next_boot
from tests.facts.probes import captured
from tests.rows import run_each

OLD, NEW = "6.1.0-55-amd64", "6.1.0-56-amd64"
UUID = "7e2fde01-efbd-4e8a-a5e6-620b2f926a48"
BY_ID = f"gnulinux-advanced-{UUID}>gnulinux-{OLD}-advanced-{UUID}"
BY_TITLE = f"Advanced options for Debian GNU/Linux>Debian GNU/Linux, with Linux {OLD}"


def read(text: str) -> NextBoot:
    return without_choices(parse_next_boot(Output(text)))


def without_choices(found: NextBoot) -> NextBoot:
    return msgspec.structs.replace(found, choices={})


@run_each(
    ("name", "found"),
    [
        ("debian12-pinned", NextBoot(loader="GRUB", kernel=OLD, by=f"GRUB_DEFAULT={BY_TITLE}")),
        ("debian12-saved", NextBoot(loader="GRUB", kernel=OLD, by=f"saved_entry={BY_ID}")),
        ("debian12-once", NextBoot(loader="GRUB", kernel=NEW, by="next_entry=1>0", once=True, after=OLD)),
        ("debian12-zero-although-set", NextBoot(loader="GRUB", kernel=NEW, by="GRUB_DEFAULT=0")),
    ],
)
def test_grub_of_a_debian_machine(name: str, found: NextBoot) -> None:
    """Captured on one machine with two kernels, after `GRUB_DEFAULT`, `grub-set-default`, `grub-reboot`, and none of
    them: then a saved_entry that is still there chooses nothing (https://github.com/Zakkaus/gentoo-install/pull/622).
    """
    read_ = parse_next_boot(captured("next_boot", name))
    assert without_choices(read_) == found
    assert read_.choices == {NEW: f"gnulinux-simple-{UUID}", OLD: BY_ID}


EL = """@loader grub
@menu
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set default="${saved_entry}"
fi
blscfg
menuentry 'UEFI Firmware Settings' $menuentry_id_option 'uefi-firmware' {
}
@env
"""
# https://github.com/rear/rear/issues/3578: the id, the title and the path are those of the host; GRUB took the first
# entry once its environment was lost, as it does below.
ROCKY = "5cf83cd1296b4ba88f9fc7e574b990f8-5.14.0-611.34.1.el9_7.x86_64"
ROCKY_OLD = "5cf83cd1296b4ba88f9fc7e574b990f8-5.14.0-570.12.1.el9_6.x86_64"


def of_el(environment: str, *names: str) -> NextBoot:
    entries = ""
    for name in names:
        release = name.partition("-")[2]
        entries += (
            f"@entry {name}\ntitle Rocky Linux ({release}) 9.7 (Blue Onyx)\nversion {release}\nlinux "
            f"/vmlinuz-{release}\n"
        )
    return read(EL + environment + entries)


def test_boot_loader_entries_of_el() -> None:
    both = (ROCKY_OLD, ROCKY)
    old, new = "5.14.0-570.12.1.el9_6.x86_64", "5.14.0-611.34.1.el9_7.x86_64"
    kept = "boot_success=1\nboot_indeterminate=0\n"
    assert of_el(f"{kept}saved_entry={ROCKY}\n", *both).kernel == new
    assert of_el(f"{kept}saved_entry={ROCKY_OLD}\n", *both).kernel == old
    assert of_el(kept, *both) == NextBoot(loader="GRUB", kernel=new), "the first of the menu"
    once = of_el(f"saved_entry={ROCKY}\nnext_entry={ROCKY_OLD}\n", *both)
    assert (once.kernel, once.once, once.after) == (old, True, new)
    assert of_el(f"saved_entry=Rocky Linux ({old}) 9.7 (Blue Onyx)\n", *both).kernel == old
    assert "counts boots" in of_el("boot_success=0\nboot_counter=2\n", *both).unknown
    assert "UEFI Firmware Settings" in of_el("saved_entry=uefi-firmware\n", *both).unknown


def test_el_whose_grub_does_not_ask_what_grubby_set() -> None:
    """As in the grub.cfg that a Rocky Linux 8.10 had after ELevate: no saved entry is read, so the first of the menu
    starts."""
    text = EL.replace('default="${saved_entry}"', 'default="0"') + f"saved_entry={ROCKY_OLD}\n"
    for name in (ROCKY_OLD, ROCKY):
        text += f"@entry {name}\nlinux /vmlinuz-{name.partition('-')[2]}\n"
    assert read(text) == NextBoot(loader="GRUB", kernel=ROCKY.partition("-")[2], by="GRUB_DEFAULT=0")


def test_an_entry_that_leapp_left() -> None:
    """https://github.com/redhat-cop/infra.leapp/issues/352: the grubenv and the files of the host."""
    names = (
        "0695cf7b4998b97657cb1744698b5615-0-rescue",
        "0695cf7b4998b97657cb1744698b5615-4.18.0-553.100.1.el8_10.x86_64",
        "0695cf7b4998b97657cb1744698b5615-upgrade.x86_64",
    )
    found = of_el("saved_entry=0695cf7b4998b97657cb1744698b5615-upgrade.x86_64\nboot_success=0\n", *names)
    assert found.kernel == "upgrade.x86_64", "a path that is not a release of an installed kernel"
    assert [entry.name for entry in parse_loader_entries({name: [] for name in names})] == [
        names[1],
        names[0],
        names[2],
    ], "as blscfg orders them, where a name without a release has only a version"


def test_entries_are_ordered_by_their_file_and_not_by_their_version() -> None:
    """https://www.redpill-linpro.com/techblog/2026/06/25/el9s-grubby-sorting.html: another machine id stands before."""
    first = "9fff83cd1296b4ba88f9fc7e574b990f-5.14.0-503.40.1.el9_5.x86_64"
    assert of_el("", ROCKY, first).kernel == "5.14.0-503.40.1.el9_5.x86_64"
    numbers = [f"a-5.14.0-{number}.el9.x86_64" for number in (9, 100, 70)]
    assert [entry.name for entry in parse_loader_entries({name: [] for name in numbers})] == [
        numbers[1],
        numbers[2],
        numbers[0],
    ]


# As in https://github.com/systemd/systemd/pull/22041, of Debian bookworm; the second entry's release is put in.
LISTING = """Boot Loader Entries:
        title: Debian GNU/Linux bookworm/sid (5.15.12) (default)
           id: e84907d099904117b355a99c98378dca-5.15.12.conf
       source: /boot/efi/loader/entries/e84907d099904117b355a99c98378dca-5.15.12.conf
      version: 5.15.12
   machine-id: e84907d099904117b355a99c98378dca
        linux: /e84907d099904117b355a99c98378dca/5.15.12/linux
       initrd: /e84907d099904117b355a99c98378dca/5.15.12/initrd

        title: Debian GNU/Linux bookworm/sid (5.15.4)
           id: e84907d099904117b355a99c98378dca-5.15.4.conf
      version: 5.15.4
        linux: /e84907d099904117b355a99c98378dca/5.15.4/linux

        title: Reboot Into Firmware Interface
           id: auto-reboot-to-firmware-setup
"""


def of_systemd(once: str = "", default: str = "", listing: str = LISTING) -> NextBoot:
    told = f"@loader systemd-boot\n@LoaderEntryOneShot\n{once}\n@LoaderEntryDefault\n{default}\n@list\n"
    return read(told + listing)


def test_systemd_boot() -> None:
    old = "e84907d099904117b355a99c98378dca-5.15.4.conf"
    assert of_systemd().kernel == "5.15.12"
    assert of_systemd(default=old).kernel == "5.15.4"
    once = of_systemd(once=old)
    assert (once.kernel, once.once, once.after) == ("5.15.4", True, "5.15.12")
    asked = of_systemd(once="e84907d099904117b355a99c98378dca-5.15.12.conf")
    assert (asked.kernel, asked.once, asked.after) == ("5.15.12", True, ""), (
        "what bootctl calls default is the one-time entry"
    )
    assert "names no kernel" in of_systemd(default="auto-reboot-to-firmware-setup").unknown
    assert "no default" in of_systemd(listing="").unknown


def test_a_unified_image() -> None:
    """https://github.com/systemd/systemd/issues/24500: the version is that of the distribution. With the kernel's, as
    systemd lists it from https://github.com/systemd/systemd/pull/43312 on."""
    image = """         type: Boot Loader Specification Type #2 (.efi)
        title: Fedora Linux 36 (Workstation Edition) (36 (Workstation Edition)) (default) (selected)
           id: linux-5.18.19-200.fc36.x86_64.efi
       source: /boot/efi/EFI/Linux/linux-5.18.19-200.fc36.x86_64.efi
     sort-key: fedora
      version: 36 (Workstation Edition)
        linux: EFI/Linux/linux-5.18.19-200.fc36.x86_64.efi
      options: root=...
"""
    assert "names no kernel" in of_systemd(listing=image).unknown
    named = image.replace("        linux:", "        uname: 5.18.19-200.fc36.x86_64\n        linux:")
    assert of_systemd(listing=named).kernel == "5.18.19-200.fc36.x86_64"


def test_nothing_is_known_of_other_loaders() -> None:
    assert read("").unknown
    assert read("@loader grub\n@menu\n@env\n").unknown
    assert "is ${mine}0" in read('@loader grub\n@menu\nset default="${mine}0"\n@env\n').unknown


def test_how_grub_reads_a_choice() -> None:
    """https://www.gnu.org/software/grub/manual/grub/html_node/default.html"""
    minix = Entry("Minix", "minix", "", [Entry("Version 3.4.0", "minix-3.4.0", "/a"), Entry("a>b", "", "/b")])
    menu = [
        Entry("First", "", "/first"),
        Entry("Other platforms", "other", "", [Entry("Hurd", "hurd", "/hurd"), minix]),
    ]
    for choice, path in (
        ("Other platforms>Minix>Version 3.4.0", "/a"), ("1>1>0", "/a"), ("other>minix>minix-3.4.0", "/a"),
        ("other>minix>a>>b", "/b"),
        ("other", "/hurd"), ("other>gone", "/hurd"), ("gone", "/first"), ("", "/first"), ("17", "/first"),
    ):  # fmt: skip
        found = find_started(menu, choice)
        assert found is not None
        assert found.linux == path, choice


def test_what_grub_reboot_takes() -> None:
    """An id where there is one, else the title with its `>` doubled; nothing where grub.cfg does not ask for it."""
    entry = "menuentry 'Linux > old' {\nlinux /vmlinuz-1\n}\n"
    menu = f"submenu 'Other' --id other {{\n{entry}}}\nmenuentry 'kept' --id gpuprov-kept {{\nlinux /vmlinuz-2\n}}\n"
    heeds = 'if [ "${next_entry}" ] ; then\nset default="${next_entry}"\nset default="0"\nfi\n'
    for first, found in ((heeds, {"1": "other>Linux >> old"}), ("", {})):
        assert parse_next_boot(Output(f"@loader grub\n@menu\n{first}{menu}@env\n")).choices == found


def test_an_assignment_of_the_site_comes_last() -> None:
    """What custom.cfg says outside of any condition overrides, also what grub-reboot asked for."""
    menu = [
        'if [ "${next_entry}" ] ; then',
        'set default="${next_entry}"',
        'set default="0"',
        "fi",
        "set default='mine'",
    ]
    assert (read_menu(menu, {}).default, read_menu(menu, {}).once) == ("mine", False)
    assert (read_menu(menu[:-1], {}).default, read_menu(menu[:-1], {}).once) == ("0", True)
    counted = [*menu[:-1], 'if [ "${boot_counter}" ]; then', "set default=1", "fi"]
    assert (read_menu(counted, {}).default, read_menu(counted, {}).once) == ("0", True)


@run_each(
    ("path", "release"),
    [
        ("/boot/vmlinuz-5.14.21-150500.55.44-default", "5.14.21-150500.55.44-default"),
        ("/e84907d099904117b355a99c98378dca/5.15.12/linux", "5.15.12"),
        ("/vmlinuz", ""), ("/vmlinuz-linux", "linux"), ("/boot/vmlinuz", ""), ("", ""),
    ],
)  # fmt: skip
def test_the_release_in_a_path(path: str, release: str) -> None:
    assert parse_kernel(path) == release


@run_each(
    ("environment", "found"),
    [
        (
            "gpuprov_boot=back",
            NextBoot(loader="GRUB", kernel=OLD, by="gpuprov keeps to what was before a boot that failed"),
        ),
        ("gpuprov_boot=once", NextBoot(loader="GRUB", kernel=NEW, by="GRUB_DEFAULT=0")),
        ("", NextBoot(loader="GRUB", kernel=NEW, by="GRUB_DEFAULT=0")),
        (
            "gpuprov_boot=back\nnext_entry=0",
            NextBoot(loader="GRUB", kernel=NEW, by="next_entry=0", once=True, after=OLD),
        ),
    ],
)
def test_a_boot_that_failed_is_heeded(environment: str, found: NextBoot) -> None:
    """The entry of gpuprov stands in a file of its own, which grub.cfg sources at its end; grub-reboot goes before
    it."""
    menu = f"""@loader grub
@menu
if [ "${{next_entry}}" ] ; then
   set default="${{next_entry}}"
   set default="0"
fi
menuentry 'Debian GNU/Linux' $menuentry_id_option 'gnulinux-simple' {{
\tlinux\t/vmlinuz-{NEW}
}}
if [ -f $prefix/gpuprov/boot.cfg ]; then
fi
if [ "$gpuprov_boot" = once ]; then
  set default=gpuprov-kept
fi
menuentry 'as before run r1 of gpuprov ({OLD})' --id gpuprov-kept {{
  linux $prefix/gpuprov/vmlinuz-{OLD}
}}
@env
{environment}
"""
    assert read(menu) == found
