"""Finds the application that a Python file or module defines. What is done with it is in `run`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from stat import S_ISREG
from types import ModuleType
from typing import TYPE_CHECKING, Final, TypeVar

from task_assignor.cli.output import others_code, write_to_stderr
from task_assignor.sdk import ConfigException, StreamsException
from task_assignor.sdk.text import failure

if TYPE_CHECKING:
    from task_assignor.runtime import StreamsApplication

_Result = TypeVar("_Result")
DEFAULT_NAME: Final = "application"
_WANTED: Final = (
    "a StreamsApplication, or a function without arguments that returns one. Maybe end the file with "
    "`application = StreamsApplication(...)`, or with `def application(): ...`"
)
_IMPORTING: Final = (__file__, importlib.__file__, "<frozen importlib")


def load_application(place: str) -> StreamsApplication:
    """Import a file or a module, and take the application that it defines.

    Args:
        place: `FILE` (`jobs/app.py`) or `MODULE` (`jobs.app`), which defines `application`; or one of these and `:NAME`.

    Raises:
        ConfigException: there is no such file, module or name, or it is something else; the file's own error is shown.
    """
    source, name = _parts(place)
    is_module = _is_module(source)
    what = f"module {source}" if is_module else f"file {Path(source)}"
    module = _imported_module(source, what) if is_module else _imported_file(Path(source), what)
    found = getattr(module, name, None)
    if found is None:
        raise ConfigException(f"The {what} defines no {name!r}. Expected is {_WANTED}; another name is {source}:NAME.")
    from task_assignor.runtime import StreamsApplication

    if callable(found):
        with others_code():
            found = _call(found, f"The function {name}() of {source}")
    if not isinstance(found, StreamsApplication):
        raise ConfigException(f"The {name!r} of {source} is of the type {type(found).__name__}. Expected is {_WANTED}.")
    return found


def _parts(place: str) -> tuple[str, str]:
    if not place:
        raise ConfigException("The name of the application's file must not be empty.")
    source, colon, name = place.rpartition(":")
    if colon and name.isidentifier() and not os.path.exists(place):  # noqa: PTH110  (raises for no name)
        return source, name
    return place, DEFAULT_NAME


def _is_module(source: str) -> bool:
    is_name = all(part.isidentifier() for part in source.split(".")) and not source.endswith(".py")
    return is_name and (not os.path.exists(source) or Path(source, "__init__.py").is_file())  # noqa: PTH110


def _imported_file(file: Path, what: str) -> ModuleType:
    try:
        wrong = "" if S_ISREG(file.stat().st_mode) and file.suffix == ".py" else "is no file of Python (.py)"
    except FileNotFoundError:
        wrong = "is not there"
    except OSError as error:
        wrong = f"cannot be read: {error.strerror}"
    if wrong:
        raise ConfigException(
            f"The application's file {file} {wrong}. Expected is a file that defines it, such as app.py."
        )
    name = file.stem
    if name in sys.modules or not name.isidentifier():
        why = "is that of a module that is in use" if name in sys.modules else "cannot be that of a module"
        raise ConfigException(f"The name of the file {file} {why}. Maybe rename it.")
    spec = importlib.util.spec_from_file_location(name, file.absolute())
    assert spec is not None
    assert spec.loader is not None
    module, loader = importlib.util.module_from_spec(spec), spec.loader

    def execute() -> ModuleType:
        sys.modules[name] = module
        loader.exec_module(module)
        return module

    try:
        return _imported(execute, what, file.parent.absolute())
    except ConfigException as error:
        package, folder = [name], file.absolute().parent
        while (folder / "__init__.py").is_file():
            package, folder = [folder.name, *package], folder.parent
        if len(package) == 1 or not isinstance(error.__cause__, ImportError):
            raise
        raise ConfigException(
            f"{error}. It is in a package: maybe `task-assignor run {'.'.join(package)}`, in {folder}."
        ) from error


def _imported_module(name: str, what: str) -> ModuleType:
    def execute() -> ModuleType | None:
        try:
            is_there = importlib.util.find_spec(name) is not None
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(f"{error.name}."):
                # A package that it is in misses something else.
                raise
            is_there = False
        return importlib.import_module(name) if is_there else None

    module = _imported(execute, what, Path.cwd())
    if module is None:
        raise ConfigException(
            f"There is no {what}, here or where Python looks, and no such file. Expected is a file that defines the application, such "
            "as app.py, or a module, such as jobs.app."
        )
    return module


def _imported(execute: Callable[[], _Result], what: str, folder: Path) -> _Result:
    """A module; what is in that folder is found as with `python app.py` or `python -m app` there."""
    # Where the extra is missing that is the error, and not that of the file, which may ask for pyarrow first.
    importlib.import_module("task_assignor.runtime")
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    with others_code():
        module = _call(execute, f"The {what}")
    _send_by_value(set(sys.modules) - before, folder)
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


def _call(code: Callable[[], _Result], what: str) -> _Result:
    try:
        return code()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # `sys.exit`, a panic of a library: it is the file's, not ours
        if not isinstance(error, StreamsException):
            # The first frames are ours, and those of the import.
            trace = error.__traceback__
            while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_IMPORTING):
                trace = trace.tb_next
            write_to_stderr("".join(traceback.format_exception(type(error), error, trace)))
        raise ConfigException(f"{what} failed with {failure(error)}") from error
