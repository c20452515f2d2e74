"""Messages of a channel as a generator, the form in which executors hand them on."""

from __future__ import annotations

from collections.abc import Iterator

from stream.errors import ChannelClosed
from stream.message import Message
from stream.runtime.channel import Channel


def received(channel: Channel) -> Iterator[Message]:
    """What `channel` brings until its sender closes it; ChannelClosed if that was for an error."""
    while True:
        try:
            message = channel.recv()
        except ChannelClosed as closed:
            if closed.__cause__ is not None:
                raise
            return
        yield message
