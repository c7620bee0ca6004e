"""`python -m tests.bench [NAME …]`: every benchmark of this folder as one table; `servers`: other products' servers."""

from __future__ import annotations

import pkgutil
import sys
from importlib import import_module

import tests.bench as package


def main() -> None:
    wanted = sys.argv[1:]
    names = [module.name for module in pkgutil.iter_modules(package.__path__) if module.name.startswith("bench_")]
    print(f"{'what':<58} {'measured':<44} target")
    for name in names:
        if not wanted or name.removeprefix("bench_") in wanted:
            module = import_module(f"tests.bench.{name}")
            if hasattr(module, "table"):
                for line in module.table():
                    print(line, flush=True)
                continue
            for what, measured, target in module.rows():
                print(f"{what:<58} {measured:<44} {target}", flush=True)


if __name__ == "__main__":
    main()
