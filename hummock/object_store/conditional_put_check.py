"""Checks that a store supports conditional puts, on which a log in it relies: of two creators of a path one fails.

This is tested, since some servers accept the condition and ignore it.
"""

from __future__ import annotations

import os

from hummock.errors import ObjectExists, ObjectStoreRefused
from hummock.object_store.base import ObjectStore, RandomBytes

PROBE_PREFIX = "probe/"


def require_exclusive_creation(store: ObjectStore, random_bytes: RandomBytes = os.urandom) -> None:
    """Creates an object twice, and removes it. Raises `ObjectStoreRefused` if the second creation succeeds too.

    A crash during the check leaves one small object below `PROBE_PREFIX`.
    """
    if not store.creates_exclusively:
        raise ObjectStoreRefused(store.url, "this service has no create-if-absent: keep the meta store elsewhere")
    path = PROBE_PREFIX + random_bytes(16).hex()
    first = random_bytes(16)
    store.put(path, first, if_absent=True)
    try:
        store.put(path, random_bytes(16), if_absent=True)
    except ObjectExists:
        is_kept = store.get(path) == first
    else:
        is_kept = False
    store.delete([path])
    if not is_kept:
        raise ObjectStoreRefused(store.url, "it ignores create-if-absent: keep the meta store elsewhere")
