"""One pull: fetch, judge, accept, do, report. Exit codes are gpuprov's; 4: a bundle cannot be fetched, or a result not
sent."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import sys
import time

from . import bundle as bundles
from . import config as configs
from . import kept, results, run, signed, state, web, wheels
from .limits import BUNDLE
from .refused import Refused

# Exists while a reboot is under way: the next boot continues at once.
CONTINUE = "continue"


def pull(config: configs.Config) -> int:
    """Pull once. Raises Refused if the state cannot be used; any other failure becomes a result, too."""
    number, started = f"pull-{secrets.token_hex(4)}", results.format_now()
    known = state.State()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(config.state, CONTINUE))
    try:
        known = state.read(config.state)
        bundle, known = accept_bundle(config, known)
        code, summary = do_job(config, known, bundle, number)
    except Refused as why:
        log_reason(why)
        code, summary = why.code, results.build_refusal(config, known, number, started, why)
    except OSError as error:
        broken = Refused(f"{config.state}: {error.strerror or error}", "make room, or fix the disk")
        log_reason(broken)
        code, summary = broken.code, results.build_refusal(config, known, number, started, broken)
    return report_summary(config, summary, code)


def accept_bundle(config: configs.Config, known: state.State) -> tuple[bundles.Bundle, state.State]:
    data = web.get(config, f"{config.result[: -len('.json')]}.bundle", BUNDLE)
    bundle = bundles.read(signed.verify_archive(data, config.signers))
    manifest = bundle.manifest
    bundles.judge(manifest, config, known, time.time())
    accepted = known._replace(serial=manifest["serial"], job=manifest["job"], fleet=manifest["fleet"])
    if accepted != known:
        state.write(config.state, accepted)
    return bundle, accepted


def do_job(config: configs.Config, known: state.State, bundle: bundles.Bundle, number: str) -> tuple[int, run.Summary]:
    manifest = bundle.manifest
    least = (manifest["python"][0], manifest["python"][1])
    python, chosen = wheels.find(manifest["wheels"], least, config.python)
    place = wheels.make_folder(config.state, python, chosen)
    if not os.path.isdir(place):
        wheels.install(
            place,
            chosen,
            lambda wheel: web.get(config, f"wheels/{wheel['name']}", wheel["size"]),
            lambda fresh: run.try_start(python, fresh, config.state),
        )
    wheels.clear(config.state, but=place)
    act = "apply" if "report" not in (manifest["mode"], config.mode) else "verify"
    code = run.do_job(python, place, config.state, number, act, bundle.job)
    summary = run.read_result(config.state, config.result, number)
    if not summary:
        raise Refused(
            f"gpuprov fleet work ended with {code} and wrote no result",
            "see above in the journal: journalctl -u gpuprov-pull",
        )
    if act == "apply" and summary.get("reboot") and manifest["reboot"]:
        _reboot(config, known, python, place, manifest, summary)
    return code, summary


def _reboot(
    config: configs.Config,
    known: state.State,
    python: wheels.Python,
    place: str,
    manifest: bundles.Manifest,
    summary: run.Summary,
) -> None:
    """Reboot, once for a bundle. The result is sent before it; the next boot continues where this one ended."""
    if known.rebooted >= known.serial:
        note_missing_reboot(summary, "it was rebooted for this bundle before, and a reboot is still required")
        return
    with contextlib.suppress(Refused):
        results.upload(config, format_summary(summary))
    state.write(config.state, known._replace(rebooted=known.serial))
    kept.write_whole(os.path.join(config.state, CONTINUE), b"")
    why = run.reboot(python, place, config.state, str(summary["run"]), manifest["services"], summary["reboot"])
    if why:
        state.write(config.state, known)
        os.unlink(os.path.join(config.state, CONTINUE))
        note_missing_reboot(summary, why)


def note_missing_reboot(summary: run.Summary, why: str) -> None:
    summary["message"] = f"not rebooted: {why}"
    log_reason(Refused(summary["message"], f"wanted for: {'; '.join(map(str, summary['reboot']))}"))


def report_summary(config: configs.Config, summary: run.Summary, code: int) -> int:
    try:
        folder = os.path.join(config.state, run.RESULTS)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        kept.write_whole(os.path.join(folder, config.result), format_summary(summary))
        results.upload(config, format_summary(summary))
    except Refused as why:
        log_reason(why)
        return code or why.code
    except OSError as error:
        log_reason(
            Refused(
                f"the result cannot be kept in {config.state}: {error.strerror or error}", "make room, or fix the disk"
            )
        )
        return code or Refused.code
    return code


def format_summary(summary: run.Summary) -> bytes:
    return json.dumps(summary).encode() + b"\n"


def log_reason(why: Refused) -> None:
    for line in (f"gpuprov-pull: {why.message}", f"fix: {why.fix}"):
        printable = "".join(char if char.isprintable() else "?" for char in line)
        print(printable.replace("##", "#?"), file=sys.stderr)  # ## begins orders to a CI that keeps the log


def main() -> int:
    words = sys.argv[1:]
    if len(words) > 1 or (words and words[0].startswith("-")):
        print("usage: gpuprov-pull.pyz [CONFIG]", file=sys.stderr)
        return 2
    os.umask(0o022)  # packages and files that are brought about inherit it
    try:
        config = configs.read(words[0] if words else configs.PLACE)
        os.makedirs(config.state, mode=0o700, exist_ok=True)
        os.makedirs(os.path.join(config.state, run.HOME), mode=0o700, exist_ok=True)
        about = os.lstat(config.state)
        if about.st_uid != os.geteuid() or about.st_mode & 0o022:
            raise Refused(
                f"{config.state} belongs to another user, or others may write it", "remove it, or chmod go-w it"
            )
        with open(os.path.join(config.state, ".lock"), "wb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print("gpuprov-pull: another pull is at work on this host", file=sys.stderr)
                return 5
            return pull(config)
    except Refused as why:
        log_reason(why)
        return why.code
    except OSError as error:
        log_reason(
            Refused(f"the puller's state cannot be used: {error}", "run it as root, and see that the disk has room")
        )
        return 2


if __name__ == "__main__":
    sys.exit(main())
