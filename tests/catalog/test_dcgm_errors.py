"""DCGM's errors in lines: by name, number and DCGM's own text, as dcgmi, NVSentinel and others print them."""

from __future__ import annotations

import re

from gpuprov.catalog.dcgm_errors import find_dcgm_error, read_dcgm_errors
from gpuprov.explain import explain
from tests.rows import run_each

LINES = [
    ("DCGM_FR_PENDING_ROW_REMAP", 85),
    ("DCGM_FR_CLOCK_THROTTLE_THERMAL", 10),
    ("DCGM detected issues in health check system with error code 84}", 84),
    ("GPU 3 had memory errors and row remappings are pending", 85),
    ("Detected 12 volatile double-bit ECC error(s) in GPU 3. Drain the GPU and reset it or reboot the node.", 4),
    ("| Warning: GPU 1 | Detected 7 Replay NvLink errors on GPU 1's NVLink (should be 0) Run a field diagnostic |", 71),
    (
        "GPU 0 is running at PCI link width 8X, which is below the minimum allowed link generation of 16 (parameter "
        "'x')",
        46,
    ),
    ("GPU 2 only achieved a memory bandwidth of 1100.10 GB/s, failing to meet 1500.00 GB/s for test 4", 62),
    ("Couldn't allocate at least 95.0% of GPU memory on GPU 0", 56),
    ("GPU 1 was unsuccessfully written to by GPU 0 over NVLink in a peer-to-peer test: x", 115),
    ("error code 84", None),
    ("DCGM_FR_NOT_THERE", None),
    ("the operation failed", None),
]


@run_each(("line", "code"), LINES)
def test_the_error_of_a_line(line: str, code: int | None) -> None:
    error = find_dcgm_error(line)
    assert (error.code if error else None) == code


def test_each_text_is_found_again_with_what_a_host_puts_in_it() -> None:
    """But for texts that several errors share, and those that others print, too."""
    errors = read_dcgm_errors().errors
    assert [error.code for error in errors] == list(range(1, 133))
    for error in errors:
        line = re.sub(r"%(%|[#.0-9]*(?:ll|l|h|z)?[a-z])", lambda match: "%" if match[1] == "%" else "7", error.text)
        found = find_dcgm_error(line)
        shared = [other for other in errors if other.plain == error.plain]
        assert found == (error if len(shared) == 1 and len(error.plain) >= 14 else None), (line, found)


def test_explain_says_what_dcgm_says() -> None:
    (told,) = explain("GPU 3 had uncorrectable memory errors and row remapping failed.")
    words = dict(told.lines)
    assert words["cause"].startswith("Error 80 of DCGM, DCGM_FR_ROW_REMAP_FAILURE:")
    assert words["fix"].startswith("Row remapping failure indicates unrecoverable memory hardware damage.")
