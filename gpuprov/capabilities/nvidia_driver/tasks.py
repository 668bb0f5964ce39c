"""The tasks of the role."""

from typing import Any

from gpuprov.capabilities.nvidia_driver.decision import COMPONENTS
from gpuprov.capabilities.tasks import (
    Block,
    Options,
    Part,
    Stages,
    Task,
    files,
    give_up,
    judge,
    packages,
    report,
    repository,
    start_clients,
    step,
    stop_clients,
    taken,
    try_packages,
)
from gpuprov.host_code.json_members import Json

COMPONENTS_FIX = (
    "correct what it reports (the network, the host's proxy, or the archive that main comes from) and apply again, "
    "or enable the components yourself and set nvidia_driver_manage_repository to false"
)
# The option of gpuprov_packages by which packages of a driver are none of another's.
OWN: Options = {"driver": {}}
ABSENT = {**taken("path"), "state": "absent"}
ROOTS = {"owner": "root", "group": "root"}
PLATFORM = "{{ host_platform }}"


def _make_builder_task(title: str, key: str, state: str, why: str = "", **more: Any) -> Task:
    arguments = {"state": state, "platform": PLATFORM}
    return step(title, "prebuilt", key, arguments, why=why, **more)


def _copy_package(answer: str) -> Task:
    given = {"file": f"{answer}.package", "path": f"{answer}.place", "sha256": f"{answer}.sha256"}
    more: dict[str, Json] = {"takes": given, "only_if": f"{answer}.needed", "prepares": "never", "checks": False}
    return step("Copy the package to the host", "fetch", "copy", {"public": True}, **more)


def _make_loading_task(title: str, key: str, state: str, **more: Any) -> Task:
    return step(title, "driver_loaded", key, {"state": state}, **more)


def _make_file_task(title: str, key: str, options: Options, **more: Any) -> Task:
    return Task(title=title, module="ansible.builtin.file", options=options, key=key, **more)


BEFORE = Part(
    title="Build the modules before anything is replaced",
    file="before",
    key="before",
    tasks=(
        _make_file_task(
            "Create the key's folder",
            "folder",
            {**taken("path"), "state": "directory", **ROOTS, "mode": "0700"},
            why="The key comes before anything is built.",
        ),
        Task(
            title="Copy the key and its certificate",
            module="ansible.builtin.copy",
            options={**taken("src", "dest"), **ROOTS, **taken("mode")},
            key="key",
            each="dest",
            within="folder",
            secret=True,
        ),
        files("Sign DKMS modules with it", part="signing"),
        _make_file_task("Remove the site's old signing key", "old_key", ABSENT, each="path"),
        packages("Install build tools and headers", key="tools", options=OWN),
        step(
            "Build the kernel modules aside",
            "driver_modules",
            "aside",
            {"state": "aside", "lock_timeout": "{{ host_package_lock_timeout | default(omit) }}"},
        ),
        stop_clients("Stop services that hold GPUs", checks=False),
    ),
)
INSTALLED_HERE = Part(
    title="Install and hold the driver packages",
    file="packages",
    key="packages",
    tasks=(
        files(
            "Record the kernels that are held for their modules",
            part="record",
            checks=False,
            why="Before anything is held: what is held now and not recorded is the admin's.",
        ),
        packages("Install and hold the driver packages", options=OWN),
        judge(
            "Read the installed kernels",
            "now",
            "A kernel that came with the transaction would boot, and the one after it would come, without a module "
            "of its own.",
            key="new_kernels",
            checks=False,
        ),
        files(
            "Record the new kernels", takes={"files": "new_kernels.desired.nvidia_driver.record.files"}, checks=False
        ),
        packages(
            "Hold the new kernels",
            key="hold_new_kernels",
            takes={"hold": "new_kernels.desired.nvidia_driver.hold"},
            checks=False,
        ),
    ),
)
OF_BUILD_HOST = Part(
    title="Install the build host's modules",
    file="build_host",
    key="brought",
    tasks=(
        _make_builder_task(
            "Check that the build host packaged modules for this host",
            "brought",
            "brought",
            takes={"awaited": "judged.awaited"},
        ),
        _copy_package("brought"),
        files(
            "Record the kernels that are held for the build host",
            part="record",
            checks=False,
            why="Before anything is held: what is held now and not recorded is the admin's.",
        ),
        stop_clients("Stop services that hold GPUs", "", only_if="brought.stop", checks=False),
        packages("Install the packages", key="from_build_host", takes={"install": "brought.install"}, options=OWN),
        files("Record the installed modules", takes={"files": "brought.record"}),
        Task(
            title="Remove the package file",
            module="ansible.builtin.file",
            options={"state": "absent"},
            takes={"path": "brought.place"},
            only_if="brought.needed",
            prepares="never",
            checks=False,
        ),
        packages("Hold the driver packages", "hold"),
    ),
)
RUNFILE = Part(
    title="Install from the runfile",
    file="runfile",
    key="installer",
    tasks=(
        stop_clients("Stop services that use the old driver", "unload_first", checks=False),
        _make_loading_task("Unload the driver for the installer", "unload_first", "out", checks=False),
        step(
            "Run NVIDIA's installer",
            "driver_runfile",
            "installer",
            {"state": "installed"},
            why="It builds first, then runs the uninstaller of an older one: "
            "https://github.com/NVIDIA/nvidia-installer install-from-cwd.c",
        ),
    ),
)
AFTER = Part(
    title="Share built modules and unload the old driver",
    file="after",
    key="after",
    tasks=(
        _make_builder_task(
            "Package the modules for other hosts",
            "pack",
            "packed",
            "A build host packs before another host takes the modules.",
            shared=True,
        ),
        OF_BUILD_HOST,
        files("Remove the record of held kernels", part="forget"),
        repository("Remove the package source of another driver", part="leave"),
        stop_clients("Stop services that use the old driver", "unload", checks=False),
        _make_loading_task(
            "Unload the old driver",
            "unload",
            "out",
            checks=False,
            why="If it stays loaded, the next stage asks for a reboot.",
        ),
    ),
)

TASKS: Stages = {
    "assert": (
        repository("Add the driver's package source"),
        packages(
            "Enable contrib, non-free and non-free-firmware",
            "fetch",
            key="components",
            options={"of": f"nvidia_driver: {COMPONENTS}", "source": "non-free", "fix": COMPONENTS_FIX},
            why="Beside a repository, the one thing that act 1 writes: without these components of Debian there is "
            "no index to resolve from.",
        ),
        judge("Evaluate again, with the new package sources", "sources"),
        report("Report kernels without headers, which get no modules", "spare"),
        Part(
            title="Check the build host's modules",
            file="build_host",
            key="judged",
            tasks=(
                _make_builder_task(
                    "Check that the build host's modules are for this host",
                    "judged",
                    "judged",
                    "Of this run, or of an earlier one, whose package lies in the cache of this machine.",
                ),
                _copy_package("judged"),
            ),
        ),
        step("Fetch the runfile", "fetch", prepares="once"),
        step("Check the runfile's integrity and version", "driver_runfile", "runfile", {"state": "judged"}),
        try_packages(key="try", takes={"install": "judged.try_install", "remove": "judged.try_remove"}, options=OWN),
    ),
    "install": (
        Block(
            title="Replace the driver",
            tasks=(
                BEFORE,
                INSTALLED_HERE,
                RUNFILE,
                step(
                    "Put modules in place for every kernel",
                    "driver_modules",
                    "modules",
                    takes={"pack": "aside.pack"},
                    why="Also for kernels that came after the driver, or whose modules were lost.",
                ),
                files("Record the installed runfile", part="runfile", checks=False),
                _make_file_task("Remove the installer", "installed", ABSENT, prepares="never", checks=False),
                AFTER,
            ),
            undo=give_up(
                "Restore the old driver, restart what was stopped and report the failure",
                {"driver": True},
                takes={"pack": "aside.pack"},
            ),
        ),
    ),
    "configure": (step("Request a reboot if the driver needs one", "reason"),),
    "service": (
        _make_loading_task("Load the driver and the modules that depend on it", "driver_loaded", "loaded"),
        start_clients("Restart what was stopped for the driver"),
    ),
}
