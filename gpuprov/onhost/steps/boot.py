"""Initramfs images and boot entries made anew where their configuration outran them.

Makes every initramfs anew that is older than /etc/modprobe.d, by the program that made it.
Writes the bootloader's entries anew where their command line differs. Words that an earlier run wrote, and that
are not wanted any more, are taken out.
Looks at the files' times and not at what just changed, so that a run that was cut off is completed by the next.

command_line: The words that every entry should have.
entries: What writes them. `grub2` is grubby, or grub2-mkconfig where there is none. `none` leaves them alone.
written: Files that were, or in check mode would be, written before; check mode counts images and menu as outrun
    by them.

Returns:
renewed: The images, and the entries or the menu.
"""

from __future__ import annotations

from .. import boot_entries, initramfs
from ..module import AnsibleModule

OPTIONS = {
    "command_line": {"type": "list", "elements": "str", "default": []},
    "entries": {"type": "str", "choices": ["update-grub", "grub2", "none"], "default": "none"},
    "written": {"type": "list", "elements": "path", "default": []},
}


def run(module: AnsibleModule) -> None:
    words, way = module.params["command_line"], module.params["entries"]
    by_entry = way == "grub2"
    try:
        images = initramfs.stale()
        entries = boot_entries.outdated(words, by_entry=by_entry) if way != "none" else []
        renewed = [image.path for image in images] + entries
        if module.check_mode:
            later = [path for path in module.params["written"] if path.startswith(initramfs.CONFIGURATION)]
            renewed += [f"initramfs images older than {path}" for path in later if not images]
            menu = [path for path in module.params["written"] if path.startswith(boot_entries.DEFAULTS)]
            renewed += [boot_entries.MENU] if menu and not entries and way == "update-grub" else []
        else:
            for image in images:
                initramfs.rebuild(image)
            if entries:
                boot_entries.renew(words, by_entry=by_entry)
    except (initramfs.Failed, boot_entries.Failed) as error:
        module.fail_json(msg=str(error))
    shown = "".join(f"{line}\n" for line in renewed)
    module.exit_json(changed=bool(renewed), renewed=renewed, diff={"prepared": shown} if shown else {})
