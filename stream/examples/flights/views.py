"""The table of flights and five views of it for a traffic desk, as SQL.

The tests also run this SQL in DuckDB, so it is limited to the common dialect.
"""

from __future__ import annotations

from stream.examples.flights.connector import COLUMNS

TABLE = "flights"
PRIMARY_KEY = ("time_hour", "carrier", "flight")

VIEWS = {
    # Every carrier's year so far. Arrivals bring new extremes, and each departure and arrival is an update.
    "carriers": """
        SELECT carrier, count(*) AS flights, count(departed) AS departed, count(arrived) AS arrived,
               count(*) FILTER (WHERE status = 'diverted') AS diverted,
               avg(dep_delay) AS avg_dep_delay, avg(arr_delay) AS avg_arr_delay,
               min(arr_delay) AS earliest, max(arr_delay) AS latest
        FROM flights GROUP BY carrier""",
    # Load and delay of each airport, hour by hour.
    "airport_hours": """
        SELECT origin, date_trunc('hour', scheduled) AS hour, count(*) AS flights, count(departed) AS departed,
               sum(dep_delay) AS delay_minutes, max(dep_delay) AS worst_delay
        FROM flights GROUP BY origin, date_trunc('hour', scheduled)""",
    # Who leaves next: the extreme is retracted by every departure and cancellation.
    "departure_board": """
        SELECT origin, carrier, count(*) AS waiting, min(scheduled) AS next_departure, max(scheduled) AS last_departure
        FROM flights WHERE status = 'scheduled' GROUP BY origin, carrier""",
    # In the air towards each airport: groups appear with a departure and vanish with the last arrival.
    "inbound": """
        SELECT dest, count(*) AS in_the_air, min(departed) AS longest_out, max(dep_delay) AS worst_delay
        FROM flights WHERE status = 'departed' GROUP BY dest""",
    # In the air and at least an hour late.
    "late": """
        SELECT time_hour, carrier, flight, origin, dest, dep_delay
        FROM flights WHERE status = 'departed' AND dep_delay >= 60""",
}

# What a screen of 80x24 shows of each view: columns, and the order of the rows.
SHOWN = {
    "carriers": ("carrier, flights, departed, arrived, avg_dep_delay, avg_arr_delay, latest", "flights DESC, carrier"),
    "airport_hours": ("origin, hour, delay_minutes", "delay_minutes DESC NULLS LAST, hour, origin"),
    "departure_board": ("origin, carrier, waiting, next_departure", "next_departure, origin, carrier"),
    "inbound": ("dest, in_the_air, longest_out", "in_the_air DESC, dest"),
    "late": ("carrier, CAST(flight AS VARCHAR) AS flight, dest, dep_delay", "dep_delay DESC, time_hour, carrier, dest"),
}


def create_table(rows: int | None = None, **options: object) -> str:
    """The DDL of the table; `rows` limits its stream to that many changes. `options`: further ones of the source."""
    given = {"connector": "flights"} | ({} if rows is None else {"rows": rows}) | options
    settings = ", ".join(f"{name} = '{value}'" for name, value in given.items())
    return f"CREATE TABLE {TABLE} ({COLUMNS.strip()}, PRIMARY KEY ({', '.join(PRIMARY_KEY)})) WITH ({settings})"


def create_view(name: str) -> str:
    """The DDL of the view `name`."""
    return f"CREATE MATERIALIZED VIEW IF NOT EXISTS {name} AS {VIEWS[name].strip()}"
