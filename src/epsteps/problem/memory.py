"""Answers that are kept: planning asks the same of public numbers with many losses and ridges, and in every fit."""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")

# So many answers are kept of a function of a few numbers, and of one that is asked about whole problems: these are
# kept with all that was computed of them, which grows with the number of columns.
NUMBERS, PROBLEMS = 4096, 8

_forgetting: list[Callable[[], None]] = []


def remembered(kept: int) -> Callable[[Callable[Asked, Answer]], Callable[Asked, Answer]]:
    """Give a function a memory of so many answers: one of public numbers, whose answers nobody can change.

    It is asked anew where an argument has no hash, as a domain of one's own may have none. What it raises is not kept.

    >>> asked = []
    >>> double = remembered(NUMBERS)(lambda number: asked.append(number) or 2 * number)
    >>> double(2), double(2), double(2.0), asked
    (4, 4, 4.0, [2, 2.0])
    """

    def with_memory(function: Callable[Asked, Answer]) -> Callable[Asked, Answer]:
        memory = lru_cache(maxsize=kept, typed=True)(function)
        _forgetting.append(memory.cache_clear)

        @wraps(function)
        def answer(*args: Asked.args, **kwargs: Asked.kwargs) -> Answer:
            try:
                hash((args, *kwargs.values()))
            except TypeError:
                return function(*args, **kwargs)
            return memory(*args, **kwargs)

        return answer

    return with_memory


def forget() -> None:
    """Forget all answers: for tests that change what they are computed by."""
    for memory in _forgetting:
        memory()
