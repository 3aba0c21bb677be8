import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.words.ddl import top_level_columns


def test_names_and_types_of_the_top_level() -> None:
    ddl = "id STRING, `to` ARRAY<STRING>, s STRUCT<a: INT, b: MAP<STRING, INT>>, d decimal(10, 2), t: timestamp"
    assert top_level_columns(ddl) == {
        "id": "STRING",
        "to": "ARRAY<STRING>",
        "s": "STRUCT<A: INT, B: MAP<STRING, INT>>",
        "d": "DECIMAL(10, 2)",
        "t": "TIMESTAMP",
    }


def test_quotes_hide_commas() -> None:
    assert list(top_level_columns("`a,``b` INT COMMENT 'x, y', c INT")) == ["a,`b", "c"]


@pytest.mark.parametrize("ddl", ["id", "id STRING,", "a INT, a INT", ""])
def test_what_is_no_column_is_refused(ddl: str) -> None:
    with pytest.raises(ValueError, match=r"not a column|twice"):
        top_level_columns(ddl)


@given(names=st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=5, unique=True))
def test_any_name_in_backquotes_is_found(names: list[str]) -> None:
    quoted = ", ".join("`{}` ARRAY<STRING>".format(name.replace("`", "``")) for name in names)
    assert list(top_level_columns(quoted)) == names
