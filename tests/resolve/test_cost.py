"""What a host's judgement asks again and again is worked out once for each version, not for each package."""

from __future__ import annotations

from unittest import mock

from gpuprov.rules import resolve


def test_rules_are_matched_once_for_each_version() -> None:
    """A driver's set has some twenty packages of one version; a fleet's judge asks for its kernel package twenty times
    a host."""
    rules: resolve.Rules = [{"name": f"nvidia-{number}", "min": 0, "max": 999} for number in range(20)]
    installed = {rule["name"]: "535.183.01-1" for rule in rules}
    with mock.patch.object(resolve, "fitting", wraps=resolve.fitting) as fitting:
        assert resolve.kernel_package({"open": rules, "proprietary": rules}, installed) == {
            "open": "nvidia-0",
            "proprietary": "nvidia-0",
        }
    assert fitting.call_count == 2
