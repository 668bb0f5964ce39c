"""GPUs that do not answer nvidia-smi: the meaning of its message, and the action to take."""

from gpuprov.capabilities.base import Outcome, fail

# The start of nvidia-smi's complaint about a GPU that it cannot reach. The address follows, then the reason: the GPU
# is lost (`Unknown Error`, `GPU is lost`), the driver did not start it (`Not Found`), or the device file may not be
# opened.
NO_HANDLE = "the device handle for"


def not_answering(expected: str, words: str, *, complaint: bool) -> Outcome:
    """Judge a complaint of nvidia-smi, or GPUs that are on the bus but not in its list."""
    lowered = words.casefold()
    if NO_HANDLE in lowered and "not found" in lowered:
        return fail(expected, words, "the driver did not start it: journalctl -k -b | gpuprov explain - says why")
    if NO_HANDLE in lowered and "permission" in lowered:
        return fail(expected, words, "run as root; ls -l /dev/nvidia*")
    if not complaint or "lost" in lowered or NO_HANDLE in lowered:
        return fail(expected, words, "restart the host; gpuprov explain 79", action="reboot")
    return fail(expected, words, "gpuprov explain nvidia_driver.user_space", action="none")
