"""What is said of an operation that contradicts the ones before it: by (operation, state of the key)."""

FAULTS = {
    (INSERT, UNTOUCHED): "insert of a row that is present",
    (DELETE, UNTOUCHED): "delete of a row that is not there",
    (UPDATE, UNTOUCHED): "update of a row that is not there",
    (INSERT, INSERTED): "insert of a row that was inserted before",
    (INSERT, UPDATED): "insert of a row that is present",
    (DELETE, DELETED): "delete of a row that was deleted before",
    (DELETE, VANISHED): "delete of a row that was deleted before",
    (UPDATE, DELETED): "update of a row that was deleted before",
    (UPDATE, VANISHED): "update of a row that was deleted before",
}
