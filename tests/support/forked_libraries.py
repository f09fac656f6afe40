"""Import all that a command may need, once, in the process that commands are forked from."""

from __future__ import annotations

import atexit
import gc
import os
import pkgutil
from importlib import import_module

import providers
import router
import terraform

# What the product imports when a function is called.
_LATE = (
    "alembic.command",
    "alembic.runtime.migration",
    "alembic.autogenerate",
    "azure.identity",
    "azure.mgmt.compute",
    "boto3",
    "google.auth",
    "google.cloud.compute_v1",
    "jsonschema",
    "pandas",
    "pulp",
    "pyarrow.parquet",
    "python_terraform",
    "sqlalchemy.dialects.sqlite",
    "uvicorn",
)
_SCRIPTS = ("__main__", "env", "migrations", "helper")
_EXTRAS = ("torch_device",)  # needs a library that tests do without

# Nothing that these imports make is garbage, and no command looks for garbage among it: that would copy what all share.
gc.disable()
for package in (providers, router, terraform):
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not set(found.name.split(".")) & {*_SCRIPTS, *_EXTRAS}:
            import_module(found.name)
for name in _LATE:
    import_module(name)
gc.freeze()
gc.enable()

# Libraries that are taken down one by one complain on stderr of what others still hold.
atexit.register(os._exit, 0)
