"""Program that tells a plan which settings would not be put back, and why: a request as JSON on standard input, the
answer as one line of JSON. It changes nothing."""

from __future__ import annotations

import json
import sys

from ..lasting import format_setting, parse_settings
from .act import restore


def main() -> None:
    """Answer with `stays`: the reason by the line of a setting."""
    request = json.load(sys.stdin)
    answer = restore(list(parse_settings(request["settings"])), change=False)
    stays = {format_setting(setting): why for setting, why in {**answer.left, **answer.failed}.items()}
    print(json.dumps({"stays": stays}))


if __name__ == "__main__":
    main()
