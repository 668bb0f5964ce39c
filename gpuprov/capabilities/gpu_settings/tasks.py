"""The tasks of the role."""

from __future__ import annotations

from gpuprov.capabilities.tasks import Stages, files, step, unit

WITHOUT_DRIVER = {"without_driver": True}

TASKS: Stages = {
    "configure": (
        files(
            "Apply the GPU settings at boot, or not",
            part="boot",
            why="What a unit that is switched off had set stays until the next boot, or until --prune puts it back.",
        ),
        step(
            "Set the ECC mode for the next boot",
            "gpu_settings",
            "ecc",
            WITHOUT_DRIVER,
            why="Before the one reboot of an apply, which brings them into force; the rest is set after it.",
        ),
    ),
    "service": (
        step("Apply the GPU settings", "gpu_settings", "settings", WITHOUT_DRIVER),
        files(
            "Keep the settings for each boot",
            part="kept",
            why="Only here: what a GPU refused must not be what the next boot tries.",
        ),
        unit("Start the unit", each="name", unless="settings.later"),
    ),
}
