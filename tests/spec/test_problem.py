"""Problems that begin with their place."""

from __future__ import annotations

from gpuprov.spec.problem import Path, Problem, report_under
from tests.rows import run_each


@run_each(
    ("path", "said", "expected"),
    [
        ("mtu", "is missing", Problem(path=("rdma", "mtu"), message="rdma.mtu is missing", fix="say it")),
        ("a.b", " is 3", Problem(path=("rdma", "a", "b"), message="rdma.a.b is 3", fix="say it")),
        (("gpus", 0), ": no", Problem(path=("rdma", "gpus", 0), message="rdma.gpus[0]: no", fix="say it")),
        ("", "has no effect", Problem(path=("rdma",), message="rdma has no effect", fix="say it")),
    ],
)
def test_the_message_begins_with_the_place(path: Path | str, said: str, expected: Problem) -> None:
    assert report_under("rdma")(path, said, "say it") == expected


def test_a_warning() -> None:
    assert report_under()("mig.mode", "is odd", "", warning=True).severity == "warning"
