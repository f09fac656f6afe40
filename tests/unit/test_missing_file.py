"""A file that does not exist: what was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from pricing.book_file import read_book
from pricing.problems import InvalidInputError
from router.config.job_files import read_limits
from router.config.plan_files import read_plan
from router.files.missing_file import missing_file


def remedy(path: Path) -> str:
    (problem,) = missing_file(path).problems
    assert (problem.where, problem.what) == (str(path), "no such file")
    return problem.remedy


def test_the_nearest_name_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "limits.yaml").touch()
    assert remedy(tmp_path / "nolimits.yaml") == f"did you mean {tmp_path / 'limits.yaml'}?"
    for other in ("prices.yaml", "limits.csv"):
        assert remedy(tmp_path / other) == "check the path"
    assert remedy(tmp_path / "gone" / "limits.yaml") == f"there is no folder {tmp_path / 'gone'}: check the path"


@pytest.mark.parametrize("read", [read_limits, read_plan, read_book])
def test_every_reader_has_a_remedy(tmp_path: Path, read: object) -> None:
    assert callable(read)
    with pytest.raises(InvalidInputError) as refused:
        read(tmp_path / "none.csv")
    assert [each.remedy for each in refused.value.problems] == ["check the path"]


def test_a_job_file_is_no_plan_and_the_remedy_makes_one_of_it(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: a\n", encoding="utf-8")
    with pytest.raises(InvalidInputError) as refused:
        read_plan(tmp_path / "job.yaml")
    (problem,) = refused.value.problems
    assert problem.what == "is YAML, such as a file of jobs, and no plan"
    assert problem.remedy == f"make one of it: stepfare plan --out plan.json {tmp_path / 'job.yaml'}"
