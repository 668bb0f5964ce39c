"""Host names become file names: what cannot be one is refused, and nothing is written outside the folder."""

from __future__ import annotations

import pytest

from gpuprov.fleet.specs import judge
from gpuprov.spec.model import RawHost
from gpuprov.spec.problem import SpecError
from tests.rows import run_each


@run_each("name", ["../../../pwned", "a/b", "-rf", ".hidden", "two words", ""])
def test_names_that_cannot_be_files_are_refused(name: str) -> None:
    with pytest.raises(SpecError) as caught:
        judge([RawHost(name=name, values={"nouveau": {}})])
    assert str(caught.value).endswith(
        f'host name "{name}" cannot be a file name; allowed: letters, digits and . _ : % @ + -'
    )


@run_each("name", ["gpu01", "gpu-01.example.org", "2001:db8::17", "fe80::1%eth0", "rack_3+gpu"])
def test_usual_names_are_taken(name: str) -> None:
    assert judge([RawHost(name=name, values={"nouveau": {}})]).pairs[0][0].name == name
