"""Names of objects: `orders`, `shop.orders`, `dev.shop.orders`; names of databases and schemas, which scope them.

Omitted parts default to the database `dev` and the schema `public`, for lookups and for new objects alike.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from relational.errors import CatalogError

DEFAULT_DATABASE = "dev"
DEFAULT_SCHEMA = "public"
MAX_NAME_CHARACTERS = 63
MAX_PARTS = 3
_PART = re.compile(r'"((?:[^"]|"")*)"|([^".]+)')


@dataclass(frozen=True, slots=True)
class ObjectName:
    """A name with its schema and its database."""

    name: str
    schema: str = DEFAULT_SCHEMA
    database: str = DEFAULT_DATABASE

    @classmethod
    def of(cls, parts: tuple[str, ...] | list[str]) -> ObjectName:
        """The name of one to three parts, the name itself last. CatalogError for more."""
        if not 0 < len(parts) <= MAX_PARTS:
            raise CatalogError(f"{'.'.join(parts)} has {len(parts)} parts: a name is database.schema.name at most")
        return cls(*reversed(parts))

    @classmethod
    def parse(cls, text: str) -> ObjectName:
        """Parses a dotted name; a part in double quotes may contain any character. CatalogError."""
        parts, at = [], 0
        while (match := _PART.match(text, at)) is not None:
            parts.append(match[2] if match[1] is None else match[1].replace('""', '"'))
            at = match.end()
            if at == len(text):
                return cls.of(parts)
            if text[at] != ".":
                break
            at += 1
        raise CatalogError(f'{text!r} is no name: write name, schema.name or "any characters"', name=text)

    @property
    def parts(self) -> tuple[str, ...]:
        """The shortest unambiguous list of parts."""
        if self.database != DEFAULT_DATABASE:
            return self.database, self.schema, self.name
        return (self.name,) if self.schema == DEFAULT_SCHEMA else (self.schema, self.name)

    def __str__(self) -> str:
        """The shortest form, without quotes."""
        return ".".join(self.parts)


@dataclass(frozen=True, slots=True)
class DatabaseCatalog:
    """A namespace of schemas."""

    id: int
    name: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> DatabaseCatalog:
        return cls(record["id"], record["name"])


@dataclass(frozen=True, slots=True)
class SchemaCatalog:
    """A namespace of tables, views and indexes; their names are unique."""

    id: int
    name: str
    database_id: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> SchemaCatalog:
        return cls(record["id"], record["name"], record["database_id"])


DEV = DatabaseCatalog(0, DEFAULT_DATABASE)
PUBLIC = SchemaCatalog(0, DEFAULT_SCHEMA, DEV.id)
"""These two exist without a row in the meta store."""


def check_name(name: str, what: str = "a table") -> None:
    """CatalogError unless `name` can name an object: 1 to 63 characters that can be printed."""
    if not 0 < len(name) <= MAX_NAME_CHARACTERS or not name.isprintable():
        raise CatalogError(f"{name!r} cannot name {what}: 1 to {MAX_NAME_CHARACTERS} characters", name=name)
