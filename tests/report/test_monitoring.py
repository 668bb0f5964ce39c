"""The alert rules and the dashboard: of the names that are exported, all of them used, and accepted by Prometheus' own
promtool."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from gpuprov.cli import cli
from gpuprov.report import health, prometheus
from gpuprov.verify.evaluate import Result

EXPORTED = {*prometheus.METRICS, *health.METRICS}
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(not PROMTOOL, reason="there is no promtool")


def printed(name: str) -> str:
    done = CliRunner().invoke(cli, ["catalog", name], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(printed("alerts"))["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(printed("dashboard"))["panels"]
    return found


def expressions() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


def names(texts: list[str]) -> set[str]:
    return {name for text in texts for name in re.findall(r"gpuprov_\w+", text)}


def promtool(*words: str | Path) -> str:
    done = subprocess.run([str(PROMTOOL), *words], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_they_use_the_names_that_are_exported_and_no_other() -> None:
    alerts = names([rule["expr"] for rule in rules()])
    shown = names([*expressions(), printed("dashboard")])
    assert alerts <= EXPORTED
    assert shown == EXPORTED, "the dashboard shows every metric"


def test_the_documentation_has_every_metric() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/monitoring.md").read_text(encoding="utf-8")
    assert names(re.findall(r"^\| `(gpuprov_\w+)", page, re.MULTILINE)) == EXPORTED


def test_labels_in_messages_are_those_of_the_metrics() -> None:
    for rule in rules():
        told = json.dumps(rule["annotations"])
        assert set(re.findall(r"\$labels\.(\w+)", told)) <= ({"host"} if "timestamp" not in rule["expr"] else set())


def test_panels_have_their_own_ids_and_places() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in panels()}) == len(panels())


def test_a_word_or_json_beside_a_file_is_refused() -> None:
    for more in (["x"], ["--json"]):
        done = CliRunner().invoke(cli, ["catalog", "alerts", *more])
        assert (done.exit_code, "prints a file" in done.output) == (2, True)


@needs_promtool
def test_promtool_accepts_the_rules_and_every_expression(tmp_path: Path) -> None:
    (tmp_path / "alerts.yaml").write_text(printed("alerts"))
    assert f"{len(rules())} rules found" in promtool("check", "rules", tmp_path / "alerts.yaml")
    records = [
        {"record": f"panel:{number}", "expr": text.replace("$host", ".*")} for number, text in enumerate(expressions())
    ]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": records}]}))
    assert f"{len(records)} rules found" in promtool("check", "rules", tmp_path / "panels.yaml")


@needs_promtool
def test_alerts_fire_and_stay_silent_as_they_should(tmp_path: Path) -> None:
    """promtool plays 26 hours of samples through the rules."""
    (tmp_path / "alerts.yaml").write_text(printed("alerts"))
    series = {
        'gpuprov_host_ok{host="good"}': "1x1560",
        'gpuprov_host_ok{host="bad"}': "0x1560",
        'gpuprov_host_ok{host="gone"}': "0x1560",
        'gpuprov_host_reachable{host="good"}': "1x1560",
        'gpuprov_host_reachable{host="bad"}': "1x1560",
        'gpuprov_host_reachable{host="gone"}': "0x1560",
        'gpuprov_reboot_required{host="bad"}': "1x1560",
        'gpuprov_host_fit{host="good"}': "1x1560",
        'gpuprov_host_fit{host="bad"}': "-1x1560",
        "gpuprov_verify_timestamp_seconds": "0x1560",
    }
    asked = [
        ("1h", "GpuprovHostDiffers", ["bad"]),
        ("1h", "GpuprovHostUnreachable", ["gone"]),
        ("1h", "GpuprovVerifyStale", []),
        ("3h", "GpuprovVerifyStale", [""]),
        ("23h", "GpuprovRebootRequired", []),
        ("25h", "GpuprovRebootRequired", ["bad"]),
        ("1h", "GpuprovHostNotFit", []),
        ("2h", "GpuprovHealthNotProven", ["bad"]),
    ]
    of_name = {rule["alert"]: rule for rule in rules()}

    def expected(name: str, host: str) -> dict[str, Any]:
        rule = of_name[name]
        told = {
            key: text.replace("{{ $labels.host }}", host).replace("{{ $value | humanizeDuration }}", "3h 0m 0s")
            for key, text in rule["annotations"].items()
        }
        return {"exp_labels": {**({"host": host} if host else {}), **rule["labels"]}, "exp_annotations": told}

    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "alert_rule_test": [
                {"eval_time": at, "alertname": name, "exp_alerts": [expected(name, host) for host in hosts]}
                for at, name, hosts in asked
            ],
        }
    ]
    document = {"rule_files": ["alerts.yaml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(document))
    assert "SUCCESS" in promtool("test", "rules", tmp_path / "test.yaml")


@needs_promtool
def test_promtool_reads_what_is_written() -> None:
    """Its own parser; lint is left out, which wants the suffixes of counters."""
    odd = Result(host="gpu1", capability="health", check="health.xid", status="fail", action="reset", found='x"\\\n')
    for text in (prometheus.render([odd], now=1.0), health.as_metrics([odd], now=1.0)):
        done = subprocess.run(
            [str(PROMTOOL), "check", "metrics"], check=False, input=text, capture_output=True, text=True, timeout=60
        )
        assert done.returncode in (0, 3), done.stderr
        assert "error while linting" not in done.stderr
