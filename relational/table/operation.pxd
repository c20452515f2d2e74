"""Operations on one key within an epoch, and what they amount to."""

cdef enum Operation:
    INSERT = 0              # the first four are relational.chunk's Op
    DELETE = 1
    UPDATE_INSERT = 2
    UPDATE_DELETE = 3
    UPDATE = 4              # both halves of an update of one key
    UPSERT = 5              # U+ alone: insert or update, whichever it is

cdef enum EntryState:       # what the operations of this epoch so far amount to
    UNTOUCHED = 0           # no operation: its only one came after one that was refused
    INSERTED = 1            # absent in the store before, present now
    UPDATED = 2             # present in the store before (or unknown, after a U+ alone), present now
    DELETED = 3             # present in the store before, absent now
    VANISHED = 4            # inserted and deleted within the epoch: nothing to write


cdef inline int fold(int state, int operation) noexcept nogil:
    """The state after `operation`, or -1 where the two contradict each other."""
    if operation == UPSERT:
        return INSERTED if state == INSERTED or state == VANISHED else UPDATED
    if operation == INSERT:
        if state == UNTOUCHED or state == VANISHED:
            return INSERTED
        return UPDATED if state == DELETED else -1
    if state == DELETED or state == VANISHED:
        return -1
    if operation == DELETE:
        return VANISHED if state == INSERTED else DELETED
    return INSERTED if state == INSERTED else UPDATED
