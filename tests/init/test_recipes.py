"""`gpuprov init --recipe`, and the recipes that init proposes for hosts that it has learnt of elsewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import yaml
from click.testing import CliRunner

from gpuprov.catalog.recipes import find_recipe, lines_of, recipes, spec_of
from gpuprov.cli import cli
from gpuprov.core.errors import GpuprovError
from tests.rows import run_each


def run(*arguments: str) -> tuple[int, str, str]:
    """The exit code, and what was printed; of an error its text."""
    done = CliRunner().invoke(cli, ["init", *arguments], standalone_mode=False)
    if isinstance(done.exception, GpuprovError):
        return done.exception.exit_code, done.stdout, f"{done.exception} {done.exception.fix}"
    if isinstance(done.exception, click.ClickException):
        return done.exception.exit_code, done.stdout, done.exception.format_message()
    assert done.exception is None, done.exception
    return done.return_value, done.stdout, done.stderr


def test_the_recipe_is_written_with_hosts_and_the_source_of_each_line(tmp_path: Path) -> None:
    file = tmp_path / "inventory.yaml"
    code, out, _ = run("--recipe", "aws-p5", "--hosts", "gpu[01:02]", "--user", "ec2-user", "-o", str(file))
    assert (code, out.splitlines()) == (0, [f"{file}: 2 hosts valid", f"next: gpuprov plan {file}"])
    text, recipe = file.read_text(), find_recipe("aws-p5")
    assert recipe
    group = yaml.safe_load(text)["all"]["children"]["h100_sxm5_80gb"]
    assert group["vars"]["gpuprov"] == spec_of(recipe)
    assert group["hosts"] == {"gpu[01:02]": {"ansible_user": "ec2-user", "ansible_become": True}}
    assert "Recipe aws-p5: Amazon EC2 P5, eight H100." in text
    assert text.count("# Source:") == 1 + len(lines_of(recipe))
    assert len(re.findall(r"read\s+(?:# )?2026-", text)) >= 1 + len(lines_of(recipe))


def test_what_only_the_site_knows_is_said_above_the_group(tmp_path: Path) -> None:
    file = tmp_path / "inventory.yaml"
    assert run("--recipe", "gb200-nvl72-infiniband", "--hosts", "tray01", "-o", str(file))[0] == 0
    assert "Only you know the addresses of all trays of the NVLink domain" in " ".join(file.read_text().split())


def test_the_list() -> None:
    code, out, _ = run("--recipe", "list")
    assert code == 0
    assert [line.split()[0].rstrip("~?") for line in out.splitlines()[1:]] == [recipe.key for recipe in recipes()]
    code, out, _ = run("--recipe", "list", "--json")
    assert [row["key"] for row in json.loads(out)] == [recipe.key for recipe in recipes()]
    assert all(row["lines"] for row in json.loads(out))


@run_each(
    ("arguments", "said"),
    [
        (("--recipe", "aws-p50", "--hosts", "a"), "did you mean aws-p5"),
        (("--recipe", "zzzz", "--hosts", "a"), "gpuprov catalog recipes lists all"),
        (("--recipe", "aws-p5", "--hosts", "a", "--gpu", "H200-SXM"), "--recipe and --gpu: one of them"),
        (("--recipe", "aws-p5", "--from-hosts", "a"), "--recipe and --from-hosts: one of them"),
        (("--recipe", "aws-p5", "--hosts", "a b"), "is not a name of a host"),
        (("--recipe", "aws-p5"), "name them with --hosts"),
        (("--recipe", "aws-p50"), "did you mean aws-p5"),
        (("--recipe", "zzzz"), 'there is no recipe "zzzz"'),
    ],
)
def test_what_does_not_go_together_writes_nothing(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    file = tmp_path / "inventory.yaml"
    code, out, told = run(*arguments, "-o", str(file))
    assert (code, out) == (2, "")
    assert said in " ".join(told.split())
    assert not file.exists()


def test_hosts_are_told_the_recipes_for_their_gpus(tmp_path: Path) -> None:
    file = tmp_path / "inventory.yaml"
    code, _, told = run("--hosts", "gpu01", "--gpu", "H100-SXM5-80GB", "-o", str(file))
    assert code == 0
    assert "h100_sxm5_80gb: recipes for these GPUs: hgx-h100-infiniband, hgx-h100-roce, aws-p5, azure-nd-h100" in told


def test_a_node_of_kubernetes_is_told_the_recipe_of_its_instance_type(tmp_path: Path) -> None:
    labels = {"node.kubernetes.io/instance-type": "p5.48xlarge"}
    node = {"kind": "Node", "metadata": {"name": "ip-10-0-0-1", "labels": labels}, "status": {}}
    nodes, file = tmp_path / "nodes.json", tmp_path / "inventory.yaml"
    nodes.write_text(json.dumps({"kind": "List", "items": [node]}))
    code, out, _ = run("--from-kubernetes", str(nodes), "-o", str(file), "--json")
    assert code == 0
    assert json.loads(out)["recipes"] == {"h100_sxm5_80gb": ["aws-p5"]}
