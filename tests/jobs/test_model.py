"""The files of a fleet: what is read of them, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from msgspec.structs import replace

from gpuprov.cli.reference import file_schema
from gpuprov.core.errors import GpuprovError
from gpuprov.jobs import stored
from gpuprov.jobs.model import Fleet, Host, Job, digest_of, spec_id
from tests.jobs.fleet import result
from tests.rows import run_each

SPEC: dict[str, Any] = {"nouveau": {}, "gpu": {"model": "H100-SXM5-80GB", "count": 8}}


def fleet() -> Fleet:
    hosts = tuple(
        Host(name=name, spec=spec_id(SPEC), groups=("gpu",), connection={"ansible_host": "192.0.2.1"}) for name in "ab"
    )
    made = Fleet(made_at="2026-11-23T18:00:00Z", specs={spec_id(SPEC): SPEC}, hosts=hosts)
    return replace(made, digest=digest_of(made))


def job() -> Job:
    whole = fleet()
    made = Job(fleet=whole.digest, number=1, of=1, specs=whole.specs, hosts=whole.hosts)
    return replace(made, digest=digest_of(made))


def test_a_fleet_and_a_job_come_back_as_they_were(tmp_path: Path) -> None:
    stored.save(fleet(), tmp_path / "fleet.json")
    stored.save(job(), tmp_path / "job.json")
    assert stored.load_fleet(tmp_path / "fleet.json") == fleet()
    assert stored.load_job(tmp_path / "job.json") == job()
    assert (tmp_path / "job.json").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "fleet.json").read_text().startswith('{"gpuprov_fleet":1,')
    assert (tmp_path / "job.json").read_text().startswith('{"gpuprov_job":1,')


def test_the_schemas_describe_the_files() -> None:
    for kind, value in (("fleet", fleet()), ("job", job()), ("result", result("a"))):
        schema = json.loads(file_schema(kind))
        jsonschema.Draft202012Validator.check_schema(schema)
        plain = msgspec.to_builtins(value)
        jsonschema.validate(json.loads(msgspec.json.encode(value)), schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**plain, next(key for key in plain if "digest" in key or key == "host"): 7}, schema)


def test_the_digest_is_of_what_is_asked_alone() -> None:
    one = fleet()
    assert digest_of(replace(one, made_at="2027-01-01T00:00:00Z", gpuprov_version="9")) == one.digest
    assert digest_of(replace(one, hosts=one.hosts[:1])) != one.digest
    assert digest_of(replace(one, files={"/etc/key": "0" * 64})) != one.digest


@run_each(
    ("change", "told"),
    [
        (lambda text: text.replace("192.0.2.1", "192.0.2.66"), "was changed since"),
        (lambda text: text.replace('"gpuprov_job":1', '"gpuprov_job":2'), "format 2"),
        (lambda text: text.replace('"gpuprov_version":"', '"gpuprov_version":"9.'), "of gpuprov 9."),
        (lambda text: text[: len(text) // 2], "is not a job"),
        (lambda text: "[" * 100_000, "is not a job"),
        (lambda text: "", "is not a job"),
        (lambda text: text.replace('"number":1', '"number":0'), "is not a job"),
        (lambda text: text.replace("gpuprov_job", "gpuprov_fleet"), "is not a job"),
    ],
)
def test_what_is_not_the_job_that_was_written_is_refused(tmp_path: Path, change: Any, told: str) -> None:
    path = tmp_path / "job.json"
    stored.save(job(), path)
    path.write_text(change(path.read_text()))
    with pytest.raises(GpuprovError, match=told) as caught:
        stored.load_job(path)
    assert caught.value.exit_code == 2
    assert "gpuprov fleet slice" in caught.value.fix


def test_a_job_that_others_may_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    stored.save(job(), path)
    path.chmod(0o620)
    with pytest.raises(GpuprovError, match="others may write it"):
        stored.load_job(path)
    path.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(path, 12345, 12345)
        with pytest.raises(GpuprovError, match="belongs to another user"):
            stored.load_job(path)


def test_a_pipe_is_not_waited_for_and_no_file_is_said_so(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(GpuprovError, match="this is a pipe"):
        stored.load_job(tmp_path / "pipe")
    with pytest.raises(GpuprovError, match="cannot be read"):
        stored.load_fleet(tmp_path / "none")


def test_a_host_twice_or_without_a_spec_is_refused(tmp_path: Path) -> None:
    one = fleet()
    for hosts, told in (
        ((*one.hosts, one.hosts[0]), "a host twice"),
        ((), "no host"),
        ((replace(one.hosts[0], spec="x"),), "no spec x"),
    ):
        wrong = replace(one, hosts=hosts)
        stored.save(replace(wrong, digest=digest_of(wrong)), tmp_path / "fleet.json")
        with pytest.raises(GpuprovError, match=told):
            stored.load_fleet(tmp_path / "fleet.json")
