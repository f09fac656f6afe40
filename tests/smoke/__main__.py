"""A first run on an account, from doctor to sweep, for less than two dollars: docs/first-account.md.

    python -m tests.smoke aws --deploy deploy.yaml        on the account; machines are paid
    python -m tests.smoke aws --dry                       services and machines of this computer

Exit codes: 0 every check is fine; 1 a check failed; 2 usage; 4 over the budget; 5 something may be left; 7 credentials
or permissions; 130 Ctrl-C. Whatever ends it, everything is destroyed and swept for, unless the code is 5.
"""

from __future__ import annotations

import argparse
import os
import sys
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import yaml

from tests.smoke.accounts import CLOUDS, DRY, REAL
from tests.smoke.notices import Account
from tests.smoke.protocol import Protocol, Verdict
from tests.smoke.run import Exit, Smoke
from tests.smoke.secrets import Concealer


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    now = datetime.now(UTC)
    folder = (options.folder or Path(f"smoke-{options.cloud}-{now:%Y%m%dT%H%M%S}")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    record = options.record.absolute() if options.record else None
    if record is not None:
        record.mkdir(parents=True, exist_ok=True)
    conceal = Concealer.of_environment(os.environ)
    protocol = Protocol(folder, options.cloud, options.dry, options.budget, now, _tell, conceal.conceal)
    code = _dry(protocol, options, record) if options.dry else _real(protocol, options, record)
    _tell(f"protocol: {folder / 'protocol.md'}")
    return int(code)


def _tell(text: str) -> None:
    print(text, flush=True)


def _dry(protocol: Protocol, options: argparse.Namespace, record: Path | None) -> Exit:
    # moto and the services of the tests are needed here alone.
    from tests.smoke.dry import NOT_PLAYED, REGIONS, stage

    with stage(options.cloud, protocol.folder) as played:
        smoke = Smoke(
            protocol, options.cloud, played.account, played.environment, played.deploy, played.clouds, DRY,
            options.market, options.region or REGIONS[options.cloud], record, poll_s=0.3,
        )  # fmt: skip
        for step, why in NOT_PLAYED:
            protocol.add(step, "", Verdict.NOT_PLAYED, why)
        return smoke.run()


def _real(protocol: Protocol, options: argparse.Namespace, record: Path | None) -> Exit:
    deploy = _yaml(options.deploy)
    own = (_yaml(options.clouds).get("clouds") or {}).get(options.cloud) or {} if options.clouds else {}
    account = Account(options.cloud, (own.get("options") or {}).get("subscription", ""), options.fis_role or "")
    environment = {**os.environ, "STEPFARE_HOME": str(protocol.folder / "home")}
    clouds = options.clouds.absolute() if options.clouds else None
    return Smoke(
        protocol, options.cloud, account, environment, deploy, clouds, REAL, options.market, options.region, record
    ).run()  # fmt: skip


def _yaml(file: Path) -> dict[str, Any]:
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    return content if isinstance(content, dict) else {}


def _money(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise argparse.ArgumentTypeError(f"{text!r} is no amount of dollars") from None


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.smoke", description="A first run on an account.")
    parser.add_argument("cloud", choices=CLOUDS)
    parser.add_argument("--dry", action="store_true", help="services and machines of this computer; nothing is paid")
    parser.add_argument("--deploy", type=Path, metavar="FILE", help="deploy file: coordinator, checkpoint_url")
    parser.add_argument("--clouds", type=Path, metavar="FILE", help="clouds file: project or subscription")
    parser.add_argument("--budget", type=_money, default=Decimal(2), metavar="USD", help="default: 2")
    parser.add_argument("--market", choices=("spot", "on_demand"), default="spot")
    parser.add_argument("--region", action="append", default=[], metavar="NAME", help="only here; repeatable")
    parser.add_argument("--fis-role", metavar="ARN", help="aws: role by which its notice is announced")
    parser.add_argument("--record", type=Path, metavar="FOLDER", help="keep what the cloud answered, without secrets")
    parser.add_argument("--folder", type=Path, metavar="FOLDER", help="of the run (default: smoke-CLOUD-TIME)")
    options = parser.parse_args(arguments)
    if not options.dry:
        if options.deploy is None:
            parser.error("a run on an account needs --deploy FILE (docs/first-account.md)")
        if options.cloud == "azure" and options.clouds is None:
            parser.error("azure needs --clouds FILE with the option subscription")
        for file in (options.deploy, options.clouds):
            if file is not None and not file.is_file():
                parser.error(f"there is no file {file}")
    return options


if __name__ == "__main__":
    sys.exit(main())
