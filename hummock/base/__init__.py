"""Keys, table rules, checksums, codecs and what else every part of the store builds on."""
