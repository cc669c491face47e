"""`own_python`: the command of another Python that runs a module of ours.

It has this process's import path and nothing from the folder that it happens to start in (a file `rewards.py` there would come
first otherwise), and the module's package is this very copy of it.
"""

import json
import sys

_BOOT = """
import importlib, importlib.util, json, sys
told = json.loads(sys.argv.pop(1))
sys.path[:] = told["path"]
spec = importlib.util.spec_from_file_location(told["package"], told["file"])
sys.modules[told["package"]] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
sys.exit(importlib.import_module(told["module"]).main())
"""


def own_python(module: str, *arguments: str) -> list[str]:
    """The command that runs `main()` of a module, whose package this process has imported, with these arguments."""
    package = module.partition(".")[0]
    told = {"module": module, "package": package, "file": sys.modules[package].__file__, "path": [*map(str, sys.path)]}
    return [sys.executable or "python3", "-P", "-c", _BOOT, json.dumps(told), *arguments]
