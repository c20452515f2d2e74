"""The tables of `tests/cases/binder_schema.sql` in a catalog, and files of statements with expected text."""

from pathlib import Path

from hummock.meta.store.memory import MemoryMetaStore
from relational.catalog.manager import CatalogManager
from relational.sql import bind_sql
from relational.sql.statement import CreateMaterializedView, CreateSchema, CreateSource, CreateTable, CreateView

CASES = Path(__file__).parents[2] / "cases"


def catalog_of(text: str) -> CatalogManager:
    """A catalog in memory after the CREATE statements of `text`."""
    catalog = CatalogManager(MemoryMetaStore())
    create_all(text, catalog)
    return catalog


def create_all(text: str, catalog: CatalogManager) -> None:
    """Executes the CREATE statements of `text`."""
    for statement in bind_sql(text, catalog):
        if isinstance(statement, CreateSchema):
            catalog.apply(catalog.plan_create_schema(statement.name)[1])
            continue
        if isinstance(statement, CreateSource):
            catalog.create(statement.source)
            continue
        assert isinstance(statement, CreateTable | CreateMaterializedView | CreateView)
        catalog.create(statement.table if isinstance(statement, CreateTable) else statement.view)


def case_catalog() -> CatalogManager:
    """The tables of the cases."""
    return catalog_of((CASES / "binder_schema.sql").read_text())


def read_cases(name: str) -> list[tuple[str, str]]:
    """(statement, expected text) of a case file: separated by `----`, ended by an empty line; # is a comment."""
    text = "\n".join(line for line in (CASES / name).read_text().split("\n") if not line.startswith("#"))
    blocks = (block.strip("\n") for block in text.split("\n\n"))
    return [tuple(block.split("\n----\n")) for block in blocks if block]


def read_titled_cases(path: Path) -> list[tuple[str, str, str]]:
    """(title, statement, expected text) of a file of plans: `== title`, a statement, `->`, the text."""
    cases = []
    for block in path.read_text().split("\n== ")[1:]:
        title, _, rest = block.partition("\n")
        statement, _, expected = rest.partition("\n->\n")
        cases.append((title, statement, expected.strip("\n")))
    return cases


def write_titled_cases(path: Path, cases: list[tuple[str, str, str]]) -> None:
    """Writes the cases, under the heading of the file as it is."""
    heading, *_ = path.read_text().split("\n== ")
    blocks = [f"{title}\n{statement}\n->\n{text}\n" for title, statement, text in cases]
    path.write_text("\n== ".join([heading, *blocks]))
