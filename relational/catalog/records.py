"""The catalog as rows of the meta store.

    catalog/version                       how many DDLs there were; every DDL requires the one it was planned on
    catalog/next_id                       the first id never given out, to whatever kind of object
    catalog/database/<id>                 a database as JSON       catalog/database_name/<name>           its id
    catalog/schema/<id>                   a schema                 catalog/schema_name/<database>/<name>  its id
    catalog/table/<id>                    a table, view, index or state table
    catalog/name/<name>                   the id of a table, view or index of `public`
    catalog/name/<schema id>/<name>       the same of another schema
    catalog/loaded/<id>                   ids of the tables that a load filled for an object that is not there yet
    catalog/failed/<id>                   why a job was set aside, as JSON
    catalog/job/<id>                      the stream plan and the parallelism of a job, as JSON
    catalog/function/<id>                 a user function in its current version, as JSON
    catalog/changed/<id>                  the epoch of the last DDL that changed an object, see `changes.py`
    catalog/creating/<id>                 empty; its job has not read all existing rows of the tables that it reads

Names are quoted as in a URL, so none contains a slash. The database `dev` and its `public` have no rows.
"""

from __future__ import annotations

import json
from urllib.parse import quote

from relational.catalog.job_failure import JobFailure
from relational.catalog.job_record import JobRecord
from relational.catalog.names import PUBLIC, DatabaseCatalog, SchemaCatalog
from relational.catalog.objects import TableCatalog

CATALOG_PREFIX = "catalog/"
VERSION = "catalog/version"
NEXT_ID = "catalog/next_id"
TABLE_PREFIX = "catalog/table/"
LOADED_PREFIX = "catalog/loaded/"
FAILED_PREFIX = "catalog/failed/"
JOB_PREFIX = "catalog/job/"
CREATING_PREFIX = "catalog/creating/"
CHANGED_PREFIX = "catalog/changed/"
SCHEMA_PREFIX = "catalog/schema/"
DATABASE_PREFIX = "catalog/database/"
FUNCTION_PREFIX = "catalog/function/"


def table_key(table_id: int) -> str:
    """The meta key of a table, view, index or state table."""
    return f"{TABLE_PREFIX}{table_id:010}"


def loaded_key(table_id: int) -> str:
    """The meta key of the load record of an object that does not exist yet."""
    return f"{LOADED_PREFIX}{table_id:010}"


def failed_key(job_id: int) -> str:
    """The meta key of the JobFailure of a job set aside."""
    return f"{FAILED_PREFIX}{job_id:010}"


def job_key(job_id: int) -> str:
    """The meta key of the JobRecord of a job."""
    return f"{JOB_PREFIX}{job_id:010}"


def creating_key(job_id: int) -> str:
    """The meta key of the note that a job is being created."""
    return f"{CREATING_PREFIX}{job_id:010}"


def changed_key(table_id: int) -> str:
    """The meta key of the last change of an object, see `relational.catalog.changes`."""
    return f"{CHANGED_PREFIX}{table_id:010}"


def schema_key(schema_id: int) -> str:
    """The meta key of a schema."""
    return f"{SCHEMA_PREFIX}{schema_id:010}"


def function_key(function_id: int) -> str:
    """The meta key of a user function."""
    return f"{FUNCTION_PREFIX}{function_id:010}"


def database_key(database_id: int) -> str:
    """The meta key of a database."""
    return f"{DATABASE_PREFIX}{database_id:010}"


def table_name_key(schema_id: int, name: str) -> str:
    """The meta key of a name within a schema."""
    within = "" if schema_id == PUBLIC.id else f"{schema_id}/"
    return f"catalog/name/{within}{_quoted(name)}"


def schema_name_key(database_id: int, name: str) -> str:
    """The meta key of a schema name within a database."""
    return f"catalog/schema_name/{database_id}/{_quoted(name)}"


def database_name_key(name: str) -> str:
    """The meta key of a database name."""
    return f"catalog/database_name/{_quoted(name)}"


def encode(record: TableCatalog | SchemaCatalog | DatabaseCatalog | JobFailure | JobRecord) -> bytes:
    """The meta store value of an object."""
    return json.dumps(record.to_json(), sort_keys=True).encode()


def _quoted(name: str) -> str:
    return quote(name, safe="")
