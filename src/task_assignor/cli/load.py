"""Finds the application that a Python file defines. What is done with it is in `run`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import sysconfig
import traceback
from pathlib import Path
from stat import S_ISREG
from types import ModuleType
from typing import TYPE_CHECKING, Final

from task_assignor.cli.output import others_code, write_to_stderr
from task_assignor.sdk import ConfigException, StreamsException
from task_assignor.sdk.text import failure

if TYPE_CHECKING:
    from task_assignor.runtime import StreamsApplication

DEFAULT_NAME: Final = "application"
_WANTED: Final = (
    "a StreamsApplication, or a function without arguments that returns one. Maybe end the file with "
    "`application = StreamsApplication(...)`, or with `def application(): ...`"
)


def load_application(place: str) -> StreamsApplication:
    """Import a file and take the application that it defines.

    Args:
        place: `FILE`, which defines `application`, or `FILE:NAME`.

    Raises:
        ConfigException: there is no such file or name, or it is something else; the file's own error is shown.
    """
    file, name = _parts(place)
    module = _imported(file)
    found = getattr(module, name, None)
    if found is None:
        raise ConfigException(f"The file {file} defines no {name!r}. Expected is {_WANTED}; another name is FILE:NAME.")
    from task_assignor.runtime import StreamsApplication

    if callable(found):
        with others_code():
            found = _call(found, f"The function {name}() of {file}")
    if not isinstance(found, StreamsApplication):
        raise ConfigException(f"The {name!r} of {file} is of the type {type(found).__name__}. Expected is {_WANTED}.")
    return found


def _parts(place: str) -> tuple[Path, str]:
    if not place:
        raise ConfigException("The name of the application's file must not be empty.")
    file, colon, name = place.rpartition(":")
    if colon and name.isidentifier() and not os.path.exists(place):  # noqa: PTH110  (raises for no name)
        return Path(file), name
    return Path(place), DEFAULT_NAME


def _imported(file: Path) -> ModuleType:
    try:
        what = "" if S_ISREG(file.stat().st_mode) and file.suffix == ".py" else "is no file of Python (.py)"
    except FileNotFoundError:
        what = "is not there"
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
    if what:
        raise ConfigException(
            f"The application's file {file} {what}. Expected is a file that defines it, such as app.py."
        )
    name = file.stem
    if name in sys.modules or not name.isidentifier():
        why = "is that of a module that is in use" if name in sys.modules else "cannot be that of a module"
        raise ConfigException(f"The name of the file {file} {why}. Maybe rename it.")
    # Where the extra is missing that is the error, and not that of the file, which may ask for pyarrow first.
    importlib.import_module("task_assignor.runtime")
    before = set(sys.modules)
    # Its neighbours are found as with `python app.py`.
    sys.path.insert(0, str(file.parent.absolute()))
    spec = importlib.util.spec_from_file_location(name, file.absolute())
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    loader = spec.loader
    with others_code():
        _call(lambda: loader.exec_module(module), f"The file {file}")
    _send_by_value(set(sys.modules) - before, file.parent.absolute())
    return module


def _send_by_value(names: set[str], folder: Path) -> None:
    """Clients may run where these files are not: what they need of them is sent along."""
    import cloudpickle

    libraries = [Path(path) for path in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}]
    for name in names:
        origin = getattr(sys.modules[name], "__file__", None)
        if origin is None or not Path(origin).is_relative_to(folder):
            continue
        if not any(Path(origin).is_relative_to(library) for library in libraries):
            cloudpickle.register_pickle_by_value(sys.modules[name])


def _call(code: object, what: str) -> object:
    assert callable(code)
    try:
        return code()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # `sys.exit`, a panic of a library: it is the file's, not ours
        if not isinstance(error, StreamsException):
            # The first frames are ours, and those of the import.
            trace = error.__traceback__
            while trace is not None and trace.tb_frame.f_code.co_filename.startswith((__file__, "<frozen importlib")):
                trace = trace.tb_next
            write_to_stderr("".join(traceback.format_exception(type(error), error, trace)))
        raise ConfigException(f"{what} failed with {failure(error)}") from error
