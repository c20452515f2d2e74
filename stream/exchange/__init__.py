"""How messages get from one actor to another: channels that wait, dispatchers that choose."""

from stream.exchange.channel import Channel, select
from stream.exchange.dispatch import BroadcastDispatcher, Dispatcher, HashDispatcher, Output

__all__ = ["BroadcastDispatcher", "Channel", "Dispatcher", "HashDispatcher", "Output", "select"]
