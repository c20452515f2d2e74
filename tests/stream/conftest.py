import signal

import pytest


@pytest.fixture
def heeds_interrupts():
    """SIGINT raises KeyboardInterrupt, here and in processes that the test starts; a process that was started in the
    background ignores it, and so do its children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
