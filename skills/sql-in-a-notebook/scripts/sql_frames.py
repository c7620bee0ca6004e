"""SQL over DataFrames: SQLite from the standard library, or DuckDB where it is installed. Only reads.

Values go in as parameters, never into the text. The DataFrames are copied and stay as they are.
"""

from __future__ import annotations

import datetime
import json
import numbers
import sqlite3
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pandas as pd

MOST_COLUMNS = 2_000
"""SQLite's own limit of columns a table (SQLITE_MAX_COLUMN)."""


def query(
    sql: str,
    tables: Mapping[str, pd.DataFrame],
    params: Sequence[Any] | Mapping[str, Any] = (),
    *,
    engine: Literal["sqlite", "duckdb"] = "sqlite",
    most: int = 100_000,
) -> pd.DataFrame:
    """The rows that one SELECT gives; `tables` are the names that it may use; `params` fill its `?` or `:name`
    (`$name` in DuckDB). In SQLite times are ISO texts (UTC when they have a zone), durations seconds, truth values 0
    and 1, decimals floats, lists JSON, and whole numbers of more than 64 bits texts.
    Raises ValueError for an error in the SQL, for one that would write, and for more than `most` rows (aggregate, or
    raise the limit knowingly); ImportError without DuckDB."""
    if engine == "duckdb":
        return _by_duckdb(sql, tables, params, most)
    with _filled(tables) as connection:
        connection.set_authorizer(_reads_only)
        named = isinstance(params, Mapping)
        given = {name: _given(value) for name, value in params.items()} if named else [*map(_given, params)]
        try:
            cursor = connection.execute(sql, given)
            if cursor.description is None:
                raise ValueError("this is no SELECT: it gives no rows")
            rows = cursor.fetchmany(most + 1)
        except (sqlite3.Error, sqlite3.Warning) as problem:
            raise ValueError(f"{problem}; tables: {_known(tables)}") from problem
        names = [column[0] for column in cursor.description]
    return _limited(_frame(rows, names), most)


def _frame(rows: list[tuple[Any, ...]], names: list[str]) -> pd.DataFrame:
    """The rows as pandas would take them, but for whole numbers beyond 2**53 beside missing ones, which would become
    floats that cannot hold them."""
    made = pd.DataFrame(rows, columns=range(len(names)))
    for at in range(len(names)):
        if made[at].dtype == float and made[at].isna().any() and (made[at].abs() >= 2**53).any():
            values = [row[at] for row in rows]
            if not any(isinstance(value, float) for value in values):
                made[at] = pd.array(values, dtype="Int64")
    return made.set_axis(names, axis=1)


def plan(sql: str, tables: Mapping[str, pd.DataFrame], params: Sequence[Any] | Mapping[str, Any] = ()) -> str:
    """How SQLite would go about it, a line a step: SCAN reads a whole table, SEARCH an index. Raises ValueError."""
    steps = query(f"EXPLAIN QUERY PLAN {sql}", tables, params)
    return "\n".join(steps["detail"])


def schema(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """`table`, `column` as SQL is to name it (repeated names get a number), `type`, `rows`."""
    found = []
    for name, table in tables.items():
        for at, column in enumerate(_column_names(table)):
            found.append((name, column, str(table.dtypes.iloc[at]), len(table)))
    return pd.DataFrame(found, columns=["table", "column", "type", "rows"])


class _Connection(sqlite3.Connection):
    """Closes at the end of its `with` block, which a plain one does not."""

    def __exit__(self, *stop: Any) -> Literal[False]:
        super().__exit__(*stop)
        self.close()
        return False


def _filled(tables: Mapping[str, pd.DataFrame]) -> _Connection:
    connection = sqlite3.connect(":memory:", factory=_Connection)
    for name, table in tables.items():
        if not isinstance(table, pd.DataFrame):
            raise ValueError(f"{name} is a {type(table).__name__}, not a pandas DataFrame")
        columns = _column_names(table)
        if not columns:
            raise ValueError(f"{name} has no columns")
        if len(columns) > MOST_COLUMNS:
            raise ValueError(f"{name} has {len(columns):,} columns, SQLite takes {MOST_COLUMNS:,}: select some first")
        connection.execute(f"CREATE TABLE {_quoted(name)} ({', '.join(_quoted(column) for column in columns)})")
        values = [_storable(table.iloc[:, at]) for at in range(len(columns))]
        marks = ", ".join("?" * len(columns))
        connection.executemany(f"INSERT INTO {_quoted(name)} VALUES ({marks})", zip(*values, strict=True))
    connection.commit()
    return connection


def _storable(values: pd.Series) -> list[Any]:
    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        values = values.dt.tz_convert("UTC") if values.dt.tz is not None else values
        texts = values.map(lambda moment: moment.isoformat(sep=" "), na_action="ignore").astype(object)
        return list(texts.where(values.notna(), None))
    missing = values.isna().to_numpy()
    return [None if gone else _plain(value) for value, gone in zip(values.astype(object), missing, strict=True)]


def _plain(value: Any) -> Any:
    if isinstance(value, np.datetime64 | np.timedelta64):
        value = pd.Timestamp(value) if isinstance(value, np.datetime64) else pd.Timedelta(value)
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else str(value)
    if value is None or isinstance(value, (float, str, bytes)):
        return value
    if isinstance(value, datetime.datetime):
        return (value if value.tzinfo is None else value.astimezone(datetime.UTC)).isoformat(sep=" ")
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, (Decimal, numbers.Real)):  # as texts they would be larger than every number
        return float(value)
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(value, default=_in_json, ensure_ascii=False)
    return str(value)


def _given(value: Any) -> Any:
    return None if pd.api.types.is_scalar(value) and pd.isna(value) else _plain(value)


def _in_json(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else str(value)


def _column_names(table: pd.DataFrame) -> list[str]:
    """Names as SQL takes them: text, unique without regard to case. The first of its name keeps it, so that no number
    given to another makes it one's own."""
    plains = ["_".join(map(str, name)) if isinstance(name, tuple) else str(name) for name in table.columns]
    plains = [plain.replace("\0", "").strip() or f"column_{at + 1}" for at, plain in enumerate(plains)]
    own = {plain.casefold() for plain in plains}
    taken: set[str] = set()
    names = []
    for plain in plains:
        unique, number = plain, 2
        while unique.casefold() in taken or (unique != plain and unique.casefold() in own):
            unique, number = f"{plain}_{number}", number + 1
        taken.add(unique.casefold())
        names.append(unique)
    return names


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _reads_only(action: int, *about: Any) -> int:
    allowed = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
    if action == sqlite3.SQLITE_FUNCTION and "load_extension" in about:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in allowed else sqlite3.SQLITE_DENY


def _known(tables: Mapping[str, pd.DataFrame]) -> str:
    return "; ".join(f"{name}({', '.join(_column_names(table)[:20])})" for name, table in list(tables.items())[:10])


def _limited(table: pd.DataFrame, most: int) -> pd.DataFrame:
    if len(table) > most:
        raise ValueError(f"more than {most:,} rows; aggregate in SQL, add a LIMIT, or give a larger `most`")
    return table


def _by_duckdb(sql: str, tables: Mapping[str, pd.DataFrame], params: Any, most: int) -> pd.DataFrame:
    try:
        import duckdb
    except ImportError as missing:
        raise ImportError("engine='duckdb' needs it: pip install duckdb; engine='sqlite' needs nothing") from missing
    with duckdb.connect(":memory:") as connection:
        for name, table in tables.items():
            connection.register(name, table.set_axis(_column_names(table), axis=1))
        connection.execute("SET enable_external_access = false")
        try:
            found = connection.extract_statements(sql)
            if len(found) != 1 or found[0].type not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
                raise ValueError("one SELECT at a time")
            rows = connection.execute(sql, params or None).fetch_df()
        except duckdb.Error as problem:
            raise ValueError(f"{problem}; tables: {_known(tables)}") from problem
    return _limited(rows, most)
