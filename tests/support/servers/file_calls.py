"""Intercepts the file calls of the compiled writer of local objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, c_char_p, c_int, c_size_t, c_ssize_t, c_void_p, cast, get_errno, set_errno

from hummock.object_store.file_writer import call_slots

NATIVE = {      # the calls of compiled modules: type of the result, types of the arguments
    "open": (c_int, c_char_p, c_int, c_int), "close": (c_int, c_int), "fsync": (c_int, c_int),
    "pwrite": (c_ssize_t, c_int, c_void_p, c_size_t, c_ssize_t), "ftruncate": (c_int, c_int, c_ssize_t),
    "link": (c_int, c_char_p, c_char_p), "rename": (c_int, c_char_p, c_char_p),
    "unlink": (c_int, c_char_p),
}


@contextmanager
def between(call: Callable[..., int]) -> Iterator[None]:
    """Replaces each file call of the compiled writer by `call(name, real, *arguments)`; -errno means failure."""
    kept, slots = [], call_slots()
    for name, types in NATIVE.items():
        kind, slot = CFUNCTYPE(*types, use_errno=True), c_void_p.from_address(slots[name])
        original = slot.value

        def answer(*arguments, name=name, kind=kind, original=original):
            result = call(name, kind(original), *arguments)
            if result < 0:
                set_errno(-result if result != -1 else get_errno())
            return max(result, -1)

        made = kind(answer)
        kept.append((slot, original, made))
        slot.value = cast(made, c_void_p).value
    try:
        yield
    finally:
        for slot, original, _ in kept:
            slot.value = original
