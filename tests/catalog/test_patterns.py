"""Patterns of the catalogue are free of what Python warns of: a warning would stand in front of a user's answer."""

from __future__ import annotations

import re
import warnings

from gpuprov.catalog.kernel import kernel_file, pattern
from gpuprov.catalog.verdicts import judge_line


def test_patterns_of_the_kernel_log_compile_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        re.purge()
        for line in kernel_file().lines:
            re.compile(pattern(line))


def test_a_link_that_went_down_by_surprise_is_still_known() -> None:
    verdict = judge_line("pcieport 0000:00:02.0:    [ 5] Surprise Down Error    (First)")
    assert verdict is not None
    assert verdict.key == "pcie-uncorrected"
    assert judge_line("pcieport 0000:00:02.0:    [ 5] SDES") is None
