"""Random programs of DDL and data changes against a model of dicts, with restarts in between.

The model has the columns and rows of each table, and the table and column that each view reads. A program is generated
from its seed alone, which is the test's parameter.
"""

import random

import pytest

from relational.errors import BindError, DependencyError, RelationalError
from tests.simulation.ddl_world import World

NAMES = ("a", "b", "c", "d")
SCHEMAS = ("public", "s1", "s2")
TYPES = {"INT": 7, "BIGINT": 8, "VARCHAR": "x"}


def shown(schema, name):
    return name if schema == "public" else f"{schema}.{name}"


class Table:
    def __init__(self, columns):
        self.columns, self.rows = dict(columns), {}


class View:
    """Selects the key and `column` of `table`."""

    def __init__(self, table, column, is_stored):
        self.table, self.column, self.is_stored = table, column, is_stored


class Program:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.world = World()
        self.session = self.world.open()
        self.schemas, self.objects = {"public"}, {}
        self.next_column = self.next_id = 1
        self.refused = self.done = 0
        self.sql("CREATE TABLE a (id BIGINT PRIMARY KEY, v INT)")
        self.objects["public", "a"] = Table({"v": None})

    def sql(self, text, expected=None):
        """Execute a statement; it must fail with `expected` if that is given."""
        if expected is None:
            self.done += 1
            return self.session.sql(text)
        with pytest.raises(RelationalError) as caught:
            self.session.sql(text)
        assert isinstance(caught.value, expected), (text, caught.value)
        self.refused += 1
        return caught.value

    def whole(self):
        return self.rng.choice(("public", *SCHEMAS)), self.rng.choice(NAMES)

    def of(self, kind):
        return [name for name, each in self.objects.items() if isinstance(each, kind)]

    def readers(self, name, column=None):
        """Views that directly read a table, or one of its columns: sorted display names, and names."""
        found = [
            other
            for other in self.of(View)
            if self.objects[other].table == name and column in (None, self.objects[other].column)
        ]
        return sorted(shown(*each) for each in found), found

    # -- steps -----------------------------------------------------------------------------------------------------

    def create_schema(self):
        name = self.rng.choice(SCHEMAS[1:])
        if name in self.schemas:
            self.sql(f"CREATE SCHEMA {name}", ValueError)
        else:
            self.sql(f"CREATE SCHEMA {name}")
            self.schemas.add(name)

    def drop_schema(self):
        name, cascade = self.rng.choice(SCHEMAS[1:]), self.rng.random() < 0.5
        if name not in self.schemas:
            self.sql(f"DROP SCHEMA {name}", BindError)
            return
        content = [each for each in self.objects if each[0] == name]
        if content and not cascade:
            error = self.sql(f"DROP SCHEMA {name}", DependencyError)
            assert list(error.dependents) == sorted(shown(*each) for each in content)
            return
        self.sql(f"DROP SCHEMA {name}{' CASCADE' if cascade else ''}")
        self.schemas.remove(name)
        for each in content:
            self.forget(each)

    def forget(self, name):
        for reader in self.readers(name)[1]:
            self.objects.pop(reader, None)
        self.objects.pop(name, None)

    def create_table(self):
        schema, name = self.whole()
        text = f"CREATE TABLE {shown(schema, name)} (id BIGINT PRIMARY KEY, v INT)"
        if schema not in self.schemas:
            self.sql(text, BindError)
        elif (schema, name) in self.objects:
            self.sql(text, ValueError)
        else:
            self.sql(text)
            self.objects[schema, name] = Table({"v": None})

    def create_view(self):
        schema, name = self.whole()
        tables = self.of(Table)
        if not tables or schema not in self.schemas:
            return
        table = self.rng.choice(tables)
        column, is_stored = self.rng.choice(list(self.objects[table].columns)), self.rng.random() < 0.5
        kind = "MATERIALIZED VIEW" if is_stored else "VIEW"
        text = f"CREATE {kind} {shown(schema, name)} AS SELECT id, {column} FROM {shown(*table)}"
        if (schema, name) in self.objects:
            self.sql(text, ValueError)
        else:
            self.sql(text)
            self.objects[schema, name] = View(table, column, is_stored)

    def drop(self):
        if not self.objects:
            return
        name, cascade = self.rng.choice(list(self.objects)), self.rng.random() < 0.4
        found = self.objects[name]
        kind = "TABLE" if isinstance(found, Table) else "MATERIALIZED VIEW" if found.is_stored else "VIEW"
        text = f"DROP {kind} {shown(*name)}"
        names, _ = self.readers(name)
        if names and not cascade:
            assert list(self.sql(text, DependencyError).dependents) == names
        else:
            self.sql(text + " CASCADE" * cascade)
            self.forget(name)

    def add_column(self):
        tables = self.of(Table)
        if not tables:
            self.create_table()
            return
        name = self.rng.choice(tables)
        kind, value = self.rng.choice(list(TYPES.items()))
        value = self.rng.choice([None, value])
        column, self.next_column = f"c{self.next_column}", self.next_column + 1
        default = "" if value is None else f" DEFAULT {value!r}"
        self.sql(f"ALTER TABLE {shown(*name)} ADD COLUMN {column} {kind}{default}")
        table = self.objects[name]
        table.columns[column] = value
        for row in table.rows.values():
            row[column] = value

    def drop_column(self):
        tables = self.of(Table)
        if not tables:
            self.create_table()
            return
        name, cascade = self.rng.choice(tables), self.rng.random() < 0.4
        table = self.objects[name]
        column = self.rng.choice(list(table.columns))
        text = f"ALTER TABLE {shown(*name)} DROP COLUMN {column}"
        if len(table.columns) == 1:
            return
        names, readers = self.readers(name, column)
        if names and not cascade:
            assert list(self.sql(text, DependencyError).dependents) == names
            return
        self.sql(text + " CASCADE" * cascade)
        for reader in readers:
            del self.objects[reader]
        del table.columns[column]
        for row in table.rows.values():
            del row[column]

    def insert(self):
        tables = self.of(Table)
        if not tables:
            self.create_table()
            return
        name = self.rng.choice(tables)
        table = self.objects[name]
        given = self.rng.sample(list(table.columns), self.rng.randrange(len(table.columns) + 1))
        self.sql(f"INSERT INTO {shown(*name)} ({', '.join(['id', *given])}) "
                 f"VALUES ({', '.join([str(self.next_id), *('NULL' for _ in given)])})")
        table.rows[self.next_id] = {**table.columns, **dict.fromkeys(given)}
        self.next_id += 1

    def delete(self):
        tables = [name for name in self.of(Table) if self.objects[name].rows]
        if tables:
            name = self.rng.choice(tables)
            key = self.rng.choice(list(self.objects[name].rows))
            self.sql(f"DELETE FROM {shown(*name)} WHERE id = {key}")
            del self.objects[name].rows[key]

    def restart(self):
        self.session.close()
        self.session = self.world.open()

    # -- checks ----------------------------------------------------------------------------------------------------

    def check(self):
        self.session.flush()
        assert self.session.names() == tuple(sorted(shown(*name) for name in self.objects))
        for name, found in self.objects.items():
            table = found if isinstance(found, Table) else self.objects[found.table]
            columns = list(table.columns) if isinstance(found, Table) else [found.column]
            got = self.session.sql(f"SELECT * FROM {shown(*name)}").to_arrow()
            assert got.column_names == ["id", *columns]
            expected = [{"id": key, **{each: row[each] for each in columns}} for key, row in table.rows.items()]
            assert sorted(got.to_pylist(), key=repr) == sorted(expected, key=repr), name
        self.world.check_catalog_rows()

    def run(self, steps):
        weights = {
            self.create_table: 4, self.create_view: 5, self.drop: 2, self.add_column: 4, self.drop_column: 4,
            self.insert: 8, self.delete: 1, self.create_schema: 2, self.drop_schema: 1, self.restart: 1,
        }  # fmt: skip
        for number in range(steps):
            self.rng.choices(list(weights), list(weights.values()))[0]()
            if number % 8 == 7:
                self.check()
        self.check()
        self.world.check_files(self.session)
        self.session.close()


@pytest.mark.parametrize("seed", range(12))
def test_a_program_of_ddl_does_what_the_model_does(seed):
    program = Program(seed)
    program.run(40)
    assert program.done >= 12


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 300))
def test_a_long_program_of_ddl_does(seed):
    program = Program(seed)
    program.run(150)
    assert program.done >= 40 and program.refused >= 3
