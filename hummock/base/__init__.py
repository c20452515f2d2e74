"""Keys, table rules, checksums, codecs and other foundations of all packages of the store."""
