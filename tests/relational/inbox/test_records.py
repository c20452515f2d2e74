"""Rows of the inbox, and the rule by which a batch of a writer is accepted."""

import json
import pickle

import pytest

from hummock.errors import FormatTooNew, InvalidOption, MetaStoreCorrupt
from relational.errors import BatchGap, CheckpointChanged, RequestRefused, RequestUnanswered
from relational.inbox.payload import PayloadObject
from relational.inbox.records import (
    REQUESTS,
    InboxAnswer,
    InboxRequest,
    Outcome,
    WriterBatch,
    WriterPosition,
    is_new_batch,
    request_key,
)

OBJECT = PayloadObject("0123456789abcdef" * 2, 100, 7, 5, 80)
BATCH = WriterBatch("loader", "4f-1", 3)
REQUEST = InboxRequest("a1", "dev.public.t", (OBJECT, OBJECT), ("0123456789abcdef",), BATCH, 5, 9)
RECORDS = [
    REQUEST,
    InboxRequest("a1", "t", (), (), None, 0, 0),
    InboxAnswer(Outcome.WRITTEN, 5, 7, 1 << 20),
    InboxAnswer(Outcome.REFUSED, 5, error="BatchGap", reason="…", known=WriterPosition("c", 4, 0, 0)),
    WriterPosition("c", 4, 1 << 60, 12),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_row_is_read_as_it_was_written(record):
    assert type(record).from_bytes(request_key("a1"), record.to_bytes()) == record


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_row_with_a_missing_or_a_wrong_field_is_corrupt(record):
    fields = json.loads(record.to_bytes())
    for name in fields:
        for changed in ({key: value for key, value in fields.items() if key != name}, {**fields, name: {"x": -1}}):
            with pytest.raises(MetaStoreCorrupt):
                type(record).from_bytes(request_key("a1"), json.dumps(changed).encode())
    with pytest.raises(MetaStoreCorrupt):
        type(record).from_bytes("key", b"\xff[")
    with pytest.raises(FormatTooNew):
        type(record).from_bytes("key", json.dumps({**fields, "format": 2}).encode())


def test_a_name_of_an_object_cannot_lead_elsewhere():
    fields = json.loads(REQUEST.to_bytes())
    fields["objects"][0]["name"] = "../../etc/passwd"
    with pytest.raises(MetaStoreCorrupt):
        InboxRequest.from_bytes(REQUESTS + "a1", json.dumps(fields).encode())


@pytest.mark.parametrize(("last", "number", "is_new"), [(None, 0, True), (None, 57, True), (4, 5, True), (4, 4, False),
                                                        (4, 0, False)])
def test_batches_follow_each_other_and_the_first_may_have_any_number(last, number, is_new):
    position = None if last is None else WriterPosition("c", last, 0, 0)
    assert is_new_batch(position, WriterBatch("w", "c", number), "t") is is_new


def test_a_gap_and_another_checkpoint_are_refused_with_advice():
    position = WriterPosition("c", 4, 0, 0)
    with pytest.raises(BatchGap, match="Send batch 5 next") as gap:
        is_new_batch(position, WriterBatch("w", "c", 6), "t")
    assert (gap.value.last, gap.value.batch_id, gap.value.writer, gap.value.table) == (4, 6, "w", "t")
    for number in (0, 4, 5, 6):
        with pytest.raises(CheckpointChanged, match="restore the checkpoint; or begin with another writer") as changed:
            is_new_batch(position, WriterBatch("w", "d", number), "t")
        assert (changed.value.known, changed.value.checkpoint, changed.value.last) == ("c", "d", 4)


@pytest.mark.parametrize("error", [
    BatchGap("t", "w", 6, 4), CheckpointChanged("t", "w", "d", "c", 4), RequestRefused("t", "DuplicateKey", "…"),
    RequestUnanswered("a1", 3.0)], ids=lambda error: type(error).__name__)
def test_errors_pass_between_processes(error):
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.__dict__) == (type(error), str(error), error.__dict__)


@pytest.mark.parametrize("batch", [
    WriterBatch("", "c", 0), WriterBatch("a/b", "c", 0), WriterBatch("w" * 65, "c", 0), WriterBatch("w", "", 0),
    WriterBatch("w", "c" * 257, 0), WriterBatch("w", "c", -1), WriterBatch("w", "c", True), WriterBatch("w", 5, 0)])
def test_names_and_numbers_that_no_row_can_hold_are_refused(batch):
    with pytest.raises(InvalidOption):
        batch.check()
