from types import SimpleNamespace

from hummock.epoch import Epoch, EpochPair
from stream.message import Barrier
from stream.runtime.channel import Channel
from stream.worker.running_actor import RunningActor


def barrier(epoch):
    return Barrier(EpochPair(Epoch(epoch << 16), Epoch((epoch - 1) << 16)), checkpoint=True)


def running(inputs=(), control=None, sinks=()):
    actor = SimpleNamespace(passed_epoch=Epoch(0))
    return RunningActor(None, actor, control, inputs, dict(enumerate(sinks)))


def test_a_barrier_is_waited_for_from_its_first_channel_until_the_actor_has_passed_it():
    channels = [Channel(100) for _ in range(3)]
    each = running(inputs=(tuple(channels[:2]), tuple(channels[2:])))
    assert not each.has_barrier()
    channels[1].try_send(barrier(2))
    assert each.has_barrier()
    channels[1].try_recv()
    assert each.has_barrier(), "the other channels have yet to deliver it"
    for channel in (channels[0], channels[2]):
        channel.try_send(barrier(2))
        channel.try_recv()
    assert each.has_barrier(), "the actor is at work on it"
    each.actor.passed_epoch = Epoch(2 << 16)
    assert not each.has_barrier()


def test_barriers_of_a_control_channel_and_of_sinks_count():
    control, sink = Channel(100), Channel(100)
    each = running(control=control, sinks=[sink])
    control.try_send(barrier(2))
    assert each.has_barrier()
    each.actor.passed_epoch = Epoch(2 << 16)
    assert not each.has_barrier()
    sink.try_send(barrier(3))
    assert each.has_barrier()
