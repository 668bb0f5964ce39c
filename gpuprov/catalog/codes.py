"""Errors of CUDA as programs print them: a number, a name or a text of CUDA's, and around it each program's own
words."""

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from gpuprov.catalog.context import strip_host
from gpuprov.catalog.reader import Fact, File, load

_END = r"(\d{1,3})(?![\w.])"
_NUMBER = re.compile(
    r"(?<!\w)(?:cuda(?: runtime| driver| api)? (?:error|failure|exception)(?: code)?|cudart error|nvcuda init failure"
    r"|cuinit(?: returned| err| failed| failed with error code)?|cudagetdevicecount(?:\(\w*\))? returned"
    rf"|cudaerror|cudaerror_t|cuda_error|curesult|cudaapierror)(?: ?[:=] ?code=?|[ :=#(\[]{{1,3}}){_END}"
)
# Forms that other programs print too: they count beside one of CUDA's words.
_NUMBER_BESIDE = re.compile(
    rf"(?<!\w)(?:error=(?=\d+ :)|code=(?=\d+\()|\(error (?=\d+\) due to)){_END}"
    rf"|cudagetdevicecount\(\).{{0,200}}? error {_END}(?=:)"
)
_OF_CUDA = re.compile(r"cuda|(?<![a-z])torch|(?<![a-z])gpu")
_OF_A_CALL = re.compile(r"cuda|(?<![a-z])torch|\.cuh?(?!\w)|gpuassert")
_NAME = re.compile(r"(?<!\w)cuda_?error_?[a-z]\w+")
# What stands before a text of CUDA's that other programs print too.
_LEAD = (
    r"(?:cuda.{0,60}?(?:error|failure|failed|exception|status)|gpuassert|cudasuccess|triton error \[cuda\]"
    r"|cudaerror\w*|cuda_error_\w+)"
    r"[^\w]{0,4}(?:\d+[^\w]{1,4})?(?:cuda_?error_?\w+[^\w]{1,4})?"
)
# Number of words from which a text is CUDA's own.
_OWN = 4


class CudaError(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An error: its number, its names in the runtime and in the driver, and its text."""

    code: int
    runtime: str = ""
    driver: str = ""
    text: str = ""


class CudaErrorsFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/cuda_errors.yaml"""

    errors: tuple[CudaError, ...]


class Code(NamedTuple):
    """The number of an error, and where a line shows it."""

    code: int
    text: str
    span: tuple[int, int]


@cache
def list_errors() -> tuple[CudaError, ...]:
    return load("cuda_errors", CudaErrorsFile).errors


@cache
def list_code_words() -> tuple[tuple[str, ...], ...]:
    """Return the words of lines with an error of CUDA: each such line has one of these sets."""
    names = [(name.casefold(),) for error in list_errors() for name in (error.runtime, error.driver) if name]
    texts = [tuple(re.findall(r"[a-z0-9_]+", error.text.casefold())) for error in list_errors() if _is_own(error)]
    beside = [(word, near) for word in ("cuda", "torch", "gpu", "thcudacheck") for near in ("error", "failure", "code")]
    alone = ("cudart", "cuinit", "nvcuda", "cudagetdevicecount", "cudaerror", "cudaerror_t", "curesult", "cudaapierror")
    others = ("gpuassert", "cudasuccess", "cuda_error")
    return (*names, *texts, *beside, *((word,) for word in (*alone, *others)), ("cuda", "failed"), ("cuda", "status"))


def _is_own(error: CudaError) -> bool:
    return len(error.text.split()) >= _OWN


@cache
def _index_names() -> dict[str, int]:
    return {name.casefold(): error.code for error in list_errors() for name in (error.runtime, error.driver) if name}


@cache
def _compile_texts() -> tuple[re.Pattern[str], dict[str, int]]:
    codes = {error.text.casefold(): error.code for error in list_errors() if error.text}
    own = "|".join(re.escape(error.text.casefold()) for error in _sort_longest_first() if _is_own(error))
    shared = "|".join(re.escape(error.text.casefold()) for error in _sort_longest_first() if not _is_own(error))
    return re.compile(rf"(?<!\w)(?:({own})|{_LEAD}({shared}))(?!\w)"), codes


def _sort_longest_first() -> list[CudaError]:
    return sorted((error for error in list_errors() if error.text), key=lambda error: -len(error.text))


def find_codes(line: str) -> Iterator[Code]:
    """Yield each error of CUDA in a folded line: its number, and the place of what shows it."""
    bare = strip_host(line)
    numbers = (_NUMBER, _NUMBER_BESIDE) if _OF_CUDA.search(bare) else (_NUMBER,)
    for match in (match for pattern in numbers for match in pattern.finditer(line)):
        yield Code(int(match[match.lastindex or 0]), match[0], match.span())
    for match in _NAME.finditer(line):
        if match[0] in _index_names():
            yield Code(_index_names()[match[0]], match[0], match.span())
    if not _OF_A_CALL.search(bare):
        return
    pattern, codes = _compile_texts()
    for match in pattern.finditer(line):
        group = match.lastindex or 0
        yield Code(codes[match[group]], match[group], match.span(group))
