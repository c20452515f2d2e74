import json

import pyarrow as pa
import pytest

import stream
from stream.cli.shell import commands
from stream.cli.shell.commands import SPECS
from stream.cli.shell.output import CLEAR_SCREEN
from stream.cli.shell.shell import MOST_NESTED_FILES
from tests.stream.cli.shell.conftest import Terminal, new_console


@pytest.mark.parametrize(
    ("command", "rows"),
    [
        ("\\d", ["old,orders,table", "public,Odd name,table", "public,large,view", "public,orders,table",
                 "public,ticks,source", "public,totals,materialized view"]),
        ("\\dt", ["old,orders,table", "public,Odd name,table", "public,orders,table"]),
        ("\\dt+ OLD.*", ["old,orders,table"]),
        ("\\dt *rd*", ["old,orders,table", "public,orders,table"]),
        ('\\dt "Odd*"', ["public,Odd name,table"]),
        ("\\dt nothere", []),
        ("\\d o*", ["old,orders,table", "public,orders,table"]),
        ("\\dv", ["public,large,view"]),
        ("\\dm", ["public,totals,materialized view"]),
        ("\\ds", ["public,ticks,source"]),
        ("\\dk", []),
        ("\\di", ['public,by_region,orders,"CREATE INDEX by_region ON orders (region, id)"']),
        ("\\dn", ["old", "public"]),
        ("\\l", ["dev"]),
        ("\\df", []),
        ("\\df starts_w*", ['starts_with,"VARCHAR, VARCHAR",BOOLEAN,built-in']),
    ],
)
def test_lists_of_the_catalog(command, rows, csv):
    assert csv.run(command).splitlines()[1:] == rows


def test_an_object_is_described_with_its_key_indexes_and_definition(console):
    text = console.run("\\x\n\\d orders")
    assert text.splitlines()[1] == "Table public.orders"
    assert "│ region │ VARCHAR │ not null │ 'EUROPE' │" in " ".join(text.split())
    for part in ("Primary key: id", "Index: by_region on (region, id)",
                 "Definition:\n  CREATE TABLE orders (id BIGINT PRIMARY KEY,"):
        assert part in text
    assert console.run("\\d totals").startswith("Materialized view public.totals\n")
    assert "SUM(amount) AS total" in console.run("\\d PUBLIC.Totals")
    assert console.run("\\d old.orders").startswith("Table old.orders")
    assert console.run('\\d "Odd name"').startswith("Table public.Odd name")
    assert console.run("\\d ticks").startswith("Source public.ticks")
    assert console.run("\\d by_region").startswith("Index public.by_region")
    assert "there is no table or view 'order'; did you mean 'orders'?" in console.run("\\d order")


def test_a_description_as_data_has_the_same_columns_for_every_object(csv):
    header = "column,type,nullable,default,comment,primary_key\n"
    assert csv.run("\\d orders").startswith(header + "id,BIGINT,,,,1\nregion,VARCHAR,not null,'EUROPE',,\n")
    for name in ("totals", "ticks", "large", "by_region"):
        assert csv.run(f"\\d {name}").startswith(header)
    csv.shell.output.options.format = "json"
    assert json.loads(csv.run("\\d orders"))[0] == {"column": "id", "type": "BIGINT", "nullable": None,
                                                   "default": None, "comment": None, "primary_key": "1"}
    csv.shell.output.options.format = "csv"


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("\\timin", "there is no command \\timin; did you mean \\timing?; \\? lists them"),
        ("\\DT", "there is no command \\DT; did you mean \\dt?; \\? lists them"),
        ("\\zzzzzz", "there is no command \\zzzzzz; \\? lists them"),
        ("\\x maybe", "'maybe' is neither on nor off"),
        ("\\i", "\\i FILE: execute a file"),
        ("\\q now", "\\q: leave (also: exit, quit, Ctrl-D)"),
        ("\\i nothere.sql", "\\i: FileNotFoundError: [Errno 2] No such file or directory: 'nothere.sql'"),
        ("\\o nothere/x", "\\o: FileNotFoundError: [Errno 2] No such file or directory: 'nothere/x'"),
        ("\\watch 1s", "\\watch 1s: a number of seconds, or i=SECONDS and c=TIMES, is expected"),
        ("\\watch", "there is no query yet that could be executed again"),
        ("\\g", "there is no query yet that could be executed again"),
        ("\\h selec", "there is no statement SELEC; did you mean SELECT?; \\h lists them"),
        ("\\pset colour red", "\\pset colour red: the options are format"),
        ("\\pset format cvs", "\\pset: InvalidOption: "),
    ],
)
def test_an_error_says_what_is_wrong(command, error, console):
    assert console.run(command).startswith(error)
    assert "│ 1 │" in console.run("SELECT 1 AS a\n;").replace("│   1 │", "│ 1 │")


def test_help_names_each_command(console):
    text = console.run("help")
    assert all(f"  {spec.usage}" in text for spec in SPECS.values())
    assert "CREATE MATERIALIZED VIEW" in console.run("\\h")
    assert console.run("\\h create materialized view").startswith("CREATE MATERIALIZED VIEW name")
    assert len(console.run("\\h ALTER").splitlines()) > 2


def test_switches(console):
    assert console.run("\\timing") == "Timing is on.\n"
    assert console.run("SELECT 1 AS a;").splitlines()[-1] == "Time: 0.000 ms"
    assert console.run("\\timing off") == "Timing is off.\n"
    assert console.run("\\x on\nSELECT 1 AS a, 'b' AS b;") == "Expanded display is on.\n─[ 1 ]\na │ 1\nb │ b\n1 row\n"
    assert console.run("\\x") == "Expanded display is off.\n"
    assert console.run("SELECT 1 AS a \\gx") == "─[ 1 ]\na │ 1\n1 row\n"
    assert console.run("\\g").startswith("┌")
    assert console.run("\\pset format json\nSELECT 1 AS a;") == '[\n{"a": 1}\n]\n'
    assert console.run("\\pset format table\n\\pset rows 2").endswith("rows is 2\n")
    assert "5 rows, first 2 shown" in console.run("SELECT * FROM generate_series(1, 5);")
    assert console.run("\\pset") == "format is table\nrows is 2\npager is on\nexpanded is off\n"
    assert console.run("\\pset pager off") == "pager is off\n"
    assert console.run("\\conninfo").startswith("This shell writes memory://, at epoch ")
    assert console.run("\\echo a 'b c'") == "a b c\n"


def test_plans_and_definitions_are_text(console, csv):
    for each in (console, csv):
        each.shell.output.options.format = None
        assert each.run("EXPLAIN SELECT 1;").startswith("logical\n  Project 1")
        assert each.run("SHOW CREATE VIEW large;") == "CREATE VIEW large AS SELECT * FROM orders WHERE amount > 100\n"
    csv.shell.output.options.format = "csv"
    assert csv.run("EXPLAIN SELECT 1;").startswith("plan\n")


def test_results_go_to_a_file_until_they_do_not(csv, tmp_path):
    path = tmp_path / "a file"
    assert csv.run(f"\\o '{path}'\nSELECT 1 AS a;\nSELECT 2 AS a;\n\\o\nSELECT 3 AS a;") == "a\n3\n"
    assert path.read_text() == "a\n1\na\n2\n"
    csv.run(f"\\pset format arrow\n\\o '{path}'\nSELECT 1 AS a;\nSELECT 2 AS a;\n\\o")
    with pa.ipc.open_file(path) as rows:
        assert rows.read_all()["a"].to_pylist() == [1, 2]


def test_files_are_executed_with_their_name_in_errors(csv, tmp_path):
    inner, outer = tmp_path / "inner.sql", tmp_path / "outer.sql"
    inner.write_text("SELECT 1 AS a;\nSELECT\n  nope;\n")
    outer.write_text(f"\\i {inner}\nSELECT 2 AS b;\nselec;")
    assert csv.run(f"\\i {outer}") == (
        f"a\n1\nb\n2\n{inner}:3: BindError: there is no column 'nope'\n3 |   nope\n      ^^^^\n"
        f"{outer}:3: ParseError: there is no statement 'SELEC'; did you mean 'SELECT'?\n3 | selec\n    ^^^^^\n")
    csv.shell.goes_on = False
    assert csv.run(f"\\i {outer}").startswith(f"a\n1\n{inner}:3")
    inner.write_text(f"\\i {inner}")
    assert f"{MOST_NESTED_FILES} deep" in csv.run(f"\\i {inner}")


def test_a_query_is_watched(csv):
    assert csv.run("SELECT 1 AS a;\n\\watch 0.5 c=3") == "a\n1\n" * 4
    assert csv.slept == [0.5, 0.5]
    assert csv.run("SELECT 2 AS a \\watch c=2 i=7") == "a\n2\n" * 2
    assert csv.slept[2:] == [7.0]


def test_a_watched_query_is_drawn_anew_until_it_is_interrupted(shop):
    console = new_console(shop, out=Terminal(), is_interactive=True)
    slept = []

    def interrupted(seconds):
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    console.shell.sleep = interrupted
    text = console.run("SELECT 1 AS a \\watch")
    assert slept == [commands.WATCH_SECONDS] * 3
    assert text.count(CLEAR_SCREEN) == text.count("(every 2 s)") == 3
    assert text.endswith("interrupted\n")
    assert "│   1 │" in console.run("SELECT 1 AS a;")


def test_the_last_statement_is_edited_and_executed(csv, monkeypatch):
    edited = []
    monkeypatch.setattr("click.edit", lambda text, extension: edited.append(text) or "SELECT 1 AS a;\nSELECT 2 AS b")
    assert csv.run("SELECT 3 AS c;\n\\e") == "c\n3\na\n1\nb\n2\n"
    assert edited == ["SELECT 3 AS c"]
    monkeypatch.setattr("click.edit", lambda text, extension: None)
    assert csv.run("\\e") == ""


def test_nothing_follows_quit(csv):
    assert csv.run("SELECT 1 AS a;\nexit\nSELECT 2 AS a;") == "a\n1\n"
    assert csv.shell.state.is_over


def test_a_job_that_does_not_run_says_why():
    with stream.connect("memory://") as db:
        console = new_console(db)
        console.run("CREATE TABLE t (a BIGINT, b BIGINT);\nCREATE TABLE k (b BIGINT PRIMARY KEY) ON CONFLICT ERROR;")
        text = console.run("\\d t")
        assert "State:" not in text
        rows = json.loads(new_console(db, format="json").run("SHOW JOBS;"))
        assert {row["name"]: row["state"] for row in rows} == {"k": "RUNNING", "t": "RUNNING"}
