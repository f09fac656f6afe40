"""Catalogue files as a user gives them: known by their header, refused whole when malformed."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from gpuhunt import CatalogItem

from pricing.book_check import check_book
from pricing.book_file import embedded_book
from pricing.money import UsdPerHour
from pricing.offer_csv import COLUMNS, WEAK_LIST_ALL, WEAK_UNDATED
from pricing.places import Market
from pricing.problems import InvalidInputError
from providers.protocol import FetchResult
from router.config.catalogue_files import OTHER_CLOUD, read_catalogue
from tests.support.neocloud_rows import catalogue_items
from tests.support.neocloud_service import csv_of
from tests.support.repository import ROOT

BOOK = embedded_book()
TODAY = date(2026, 11, 21)
FIELD = ROOT.parent / "shared" / "field"
VMS = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone"
P5 = "p5.48xlarge,H100,8.0,192.0,2048.0,,55.04,20.5,us-east-1,use1-az2"


def written(folder: Path, name: str, *lines: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def gpuhunt_items(name: str) -> list[CatalogItem]:
    return list(catalogue_items(name, 2, 0))


def only(path: Path, cloud: str | None = None, as_of: date | None = None) -> FetchResult:
    (harvest,) = read_catalogue(path, BOOK, TODAY, cloud=cloud, as_of=as_of).values()
    return harvest


def refused(path: Path, cloud: str | None = None, as_of: date | None = None) -> list[str]:
    with pytest.raises(InvalidInputError) as met:
        read_catalogue(path, BOOK, TODAY, cloud=cloud, as_of=as_of)
    return [str(problem).replace(f"{path}", "FILE") for problem in met.value.problems]


def test_the_cloud_is_said_by_the_folder_or_the_option(tmp_path: Path) -> None:
    by_folder = read_catalogue(written(tmp_path, "aws/vms.csv", VMS, P5), BOOK, TODAY)
    by_option = read_catalogue(written(tmp_path, "vms.csv", VMS, P5), BOOK, TODAY, cloud="aws")
    assert by_folder == by_option
    assert list(by_folder) == ["aws"]


def test_an_undated_catalogue_is_weak_and_a_dated_one_is_not(tmp_path: Path) -> None:
    path = written(tmp_path, "aws/vms.csv", VMS, P5)
    assert {(o.as_of, o.weak) for o in only(path).offers} == {(None, WEAK_UNDATED)}
    day = date(2026, 11, 18)
    assert {(o.as_of, o.weak) for o in only(path, as_of=day).offers} == {(day, "")}


def test_gpuhunts_own_files(tmp_path: Path) -> None:
    path = written(tmp_path, "lambdalabs.csv", *csv_of(gpuhunt_items("lambdalabs")).splitlines())
    harvests = read_catalogue(path, BOOK, TODAY)
    assert list(harvests) == ["lambda"]
    found = harvests["lambda"]
    assert {o.weak for o in found.offers} == {f"{WEAK_LIST_ALL}; {WEAK_UNDATED}"}
    assert {market for _, market in found.covered} == {Market.ON_DEMAND}
    assert found.dropped


def test_one_file_of_several_clouds(tmp_path: Path) -> None:
    header, *rows = csv_of(gpuhunt_items("lambdalabs")).splitlines()
    more = csv_of(gpuhunt_items("nebius")).splitlines()[1:]
    other = csv_of(gpuhunt_items("verda")).splitlines()[1:]
    lines = (
        f"provider,{header}",
        *(f"lambdalabs,{row}" for row in rows),
        *(f"nebius,{row}" for row in more),
        *(f"cloudrift,{row}" for row in other),
    )
    path = written(tmp_path, "all.csv", *lines)
    harvests = read_catalogue(path, BOOK, TODAY)
    assert sorted(harvests) == ["lambda", "nebius"]
    assert {offer.cloud for harvest in harvests.values() for offer in harvest.offers} == {"lambda", "nebius"}
    assert sum(d.why == OTHER_CLOUD for h in harvests.values() for d in h.dropped) == 16
    assert list(read_catalogue(path, BOOK, TODAY, cloud="nebius")) == ["nebius"]


def test_offers_in_our_own_columns_cover_nothing(tmp_path: Path) -> None:
    row = "aws,us-east-1,p5.48xlarge,H100,8,80,192,2048,55.04,20.5,,,a quote,2026-11-20,list,,2026-11-20"
    path = written(tmp_path, "mine.csv", ",".join(COLUMNS), row)
    found = only(path)
    assert found.covered == frozenset()
    assert [(str(o.usd_per_hour), o.as_of) for o in found.offers] == [
        ("55.04", date(2026, 11, 20)),
        ("20.50", date(2026, 11, 20)),
    ]
    assert refused(path, as_of=TODAY) == [
        "as-of: is for public catalogues (this form has a column as_of; write the date there)"
    ]
    assert refused(path, cloud="gcp") == ["FILE: holds no offer of gcp"]


def test_a_malformed_file_is_refused_whole_with_every_place(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "aws/vms.csv",
        VMS,
        P5,
        P5.replace("55.04", "a lot"),
        P5.replace("8.0,192", "eight,192"),
        P5.replace(",use1-az2", ""),
    )
    assert refused(path) == [
        "FILE:3: Price: 'a lot' is not a number",
        "FILE:4: AcceleratorCount: 'eight' is not a number",
        "FILE:5: has more or fewer cells than the header",
    ]


def test_very_many_problems_are_cut_short(tmp_path: Path) -> None:
    path = written(tmp_path, "aws/vms.csv", VMS, *[P5.replace("55.04", "?")] * 80)
    problems = refused(path)
    assert len(problems) == 51
    assert problems[-1] == "FILE: and 30 more of the kind"


@pytest.mark.parametrize(
    ("name", "lines", "cloud", "what"),
    [
        ("vms.csv", (VMS, P5), None, "FILE: does not say of which cloud it is"),
        ("vms.csv", (VMS, P5), "awz", "--cloud: unknown cloud 'awz' (did you mean aws?)"),
        ("aws/vms.csv", (VMS,), None, "FILE: holds no offer of a machine with accelerators"),
        ("aws/vms.csv", (VMS, P5.replace("H100", "H900")), None, "FILE: holds no offer of a machine with accelerators"),
        ("aws/vms.csv", (VMS.replace("Region", "Place"), P5), None, "FILE:1: Region: missing column"),
        ("aws/vms.csv", (VMS.replace("Region", "Price"), P5), None, "FILE:1: Price: column is there twice"),
        ("x.csv", ("a,b,c", "1,2,3"), "aws", "FILE:1: is no catalogue that is known here"),
        ("x.csv", ("",), "aws", "FILE:1: is no catalogue that is known here"),
        ("aws/vms.csv", (VMS, 'p5,"H100'), None, "FILE:2: is not CSV: unexpected end of data"),
    ],
)
def test_what_cannot_be_read_says_so(
    tmp_path: Path, name: str, lines: tuple[str, ...], cloud: str | None, what: str
) -> None:
    (problem,) = refused(written(tmp_path, name, *lines), cloud)
    assert problem.startswith(what)


def test_no_file_no_text_no_future(tmp_path: Path) -> None:
    assert refused(tmp_path / "none.csv") == ["FILE: no such file (check the path)"]
    binary = tmp_path / "aws.csv"
    binary.write_bytes(b"InstanceType\xff\xfe")
    assert refused(binary) == ["FILE: is not UTF-8 text"]
    path = written(tmp_path, "aws/vms.csv", VMS, P5)
    assert refused(path, as_of=date(2026, 11, 22))[0].startswith("as-of: 2026-11-22 lies in the future")


def test_what_is_imported_makes_a_valid_book(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "aws/vms.csv",
        VMS,
        P5,
        "p9.new,H200,8,192,2048,,70,,moon-1,moon1-az1",
        P5.replace("us-east-1", "mars-1"),
    )
    found = only(path)
    book = BOOK.with_offers(found.offers)
    whole = type(book)(
        as_of=book.as_of,
        offers=book.offers,
        machines=(*book.machines, *found.machines),
        accelerators=book.accelerators,
        regions=(*book.regions, *found.regions),
        tariffs=book.tariffs,
        priors=book.priors,
    )
    check_book(whole)
    assert len(whole.offers) == 5
    assert UsdPerHour.parse("70") in {offer.usd_per_hour for offer in whole.offers}


@pytest.mark.skipif(not FIELD.exists(), reason="no ../shared")
def test_zone_names_of_an_account_become_their_region(tmp_path: Path) -> None:
    """A machine is asked for by zone id; the name us-east-1a is another zone in another account."""
    offers = only(FIELD / "13-zone-names-of-an-account/aws/vms.csv").offers
    spot = [offer for offer in offers if offer.market is Market.SPOT]
    assert [(o.zone, o.usd_per_hour, o.price_basis) for o in spot] == [
        (None, UsdPerHour.parse("12.1"), "az-spot-median")
    ]
    assert {offer.zone for offer in only(written(tmp_path, "aws/vms.csv", VMS, P5)).offers} == {None, "use1-az2"}


@pytest.mark.skipif(not FIELD.exists(), reason="no ../shared")
def test_prices_of_machine_and_accelerator_apart_name_a_catalogue_that_has_both() -> None:
    (problem,) = refused(FIELD / "17-machine-and-accelerator-apart/gcp/vms.csv")
    assert problem.startswith("FILE: holds no offer of a machine with accelerators")
    assert "take gpuhunt's catalogue of that cloud" in problem
