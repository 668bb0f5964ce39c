"""When the loaded driver must leave the kernel: decided once, for plan and for the role."""

from __future__ import annotations

from typing import Any

from gpuprov.rules.reload import Driver, reload_reasons, shown_value
from tests.rows import run_each

LOADED = Driver(
    "535.261.03", "proprietary", {"RmProfilingAdminOnly": "1", "NVreg_EnableMSI": "1", "DeviceFileMode": "438"}
)


def reasons(**wanted: Any) -> list[str]:
    return reload_reasons(LOADED, LOADED._replace(**{"parameters": {}, **wanted}))


def test_the_same_driver_stays() -> None:
    assert reasons() == []
    assert reasons(parameters={"NVreg_RestrictProfilingToAdminUsers": True, "NVreg_DeviceFileMode": "0666"}) == []


def test_nothing_loaded_is_no_reason() -> None:
    assert reload_reasons(LOADED._replace(version=""), Driver("550.1", "open", {})) == []


def test_a_version_or_flavour_that_is_not_decided_is_no_reason() -> None:
    assert reasons(version="", flavour="") == []


@run_each(
    ("wanted", "reason"),
    [
        ({"version": "550.163.01"}, "the loaded driver's version is 535.261.03, 550.163.01 is wanted"),
        ({"flavour": "open"}, "the loaded driver's flavour is proprietary, open is wanted"),
        (
            {"parameters": {"NVreg_RestrictProfilingToAdminUsers": 0}},
            "the loaded module has NVreg_RestrictProfilingToAdminUsers=1, 0 is wanted",
        ),
        ({"parameters": {"NVreg_EnableMSI": False}}, "the loaded module has NVreg_EnableMSI=1, 0 is wanted"),
    ],
)
def test_what_differs_is_the_reason(wanted: dict[str, Any], reason: str) -> None:
    assert reasons(**wanted) == [reason]


def test_a_parameter_that_the_module_does_not_show_is_no_reason() -> None:
    assert reasons(parameters={"NVreg_Unheard": 1}) == []


@run_each(("given", "shown"), [("0660", "432"), ("0x10", "16"), (-1, "4294967295"), (True, "1"), ("a;b", "a;b")])
def test_values_as_the_module_shows_them(given: object, shown: str) -> None:
    assert shown_value(given) == shown
