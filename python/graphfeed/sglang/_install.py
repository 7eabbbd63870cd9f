# SPDX-License-Identifier: Apache-2.0
"""Puts the drop-ins in the place of SGLang's own functions, wherever a loaded module has those."""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import NamedTuple

from graphfeed.sglang._forward import name_today
from graphfeed.sglang._releases import COPIES, GENERATIONS

_log = logging.getLogger("graphfeed")
_lock = threading.Lock()


class _Switch(NamedTuple):
    module: str
    name: str
    published: Callable
    drop_in: Callable  # made for this one, so that each has one way back


_switches: list[_Switch] = []


def install() -> list[str]:
    """Switches the SGLang of this process to graphfeed's functions: all of them, or none.

    Imports the modules that define SGLang's functions, where its release has them, and replaces
    each function in every loaded ``sglang`` module that has it under any name. A module loaded
    later finds the replacement. Objects that hold the function itself keep it: call this before
    attention backends are made. A call while all is switched changes nothing. The switched
    functions have the published signatures. Other processes are not affected.

    Returns:
        What was switched by this call, each as ``module.attribute``.

    Raises:
        RuntimeError: sglang is not installed, its release has no function to switch, or one whose
            signature is another. The message names function and difference.
        ImportError: A module that defines such a function cannot be imported.
    """
    modules = _imported_modules()  # not under the lock: an import waits for others
    with _lock:
        found = [each for each in _found(modules) if not _is_switched(each.published)]
        made = [each._replace(drop_in=_with_signature_of(each)) for each in found]
        try:
            names = [name for each in made for name in _replace(each.published, each.drop_in)]
        except BaseException:
            for each in made:
                _replace(each.drop_in, each.published)
            raise
        _switches.extend(made)
        if names:
            _log.info("install: sglang %s: switched %s", _version(), ", ".join(names))
        return names


def uninstall() -> list[str]:
    """Puts SGLang's own functions back, in modules loaded since ``install()`` too.

    What something else has meanwhile replaced is left as it is, with a warning on the ``graphfeed``
    logger. Without an ``install()`` before, it does nothing.

    Returns:
        What was put back, each as ``module.attribute``.
    """
    with _lock:
        names = [name for each in _switches for name in _replace(each.drop_in, each.published)]
        for each in _switches:
            module = sys.modules.get(each.module)
            if getattr(module, each.name, each.published) is not each.published:
                _log.warning(
                    "uninstall: %s.%s is no longer graphfeed's and is left", each.module, each.name
                )
        _switches.clear()
        if names:
            _log.info("uninstall: sglang %s: put back %s", _version(), ", ".join(names))
        return names


def _imported_modules() -> dict[str, types.ModuleType]:
    """The modules of this release that define functions to switch.

    Raises:
        RuntimeError: sglang is not installed or has none.
    """
    if _imported("sglang") is None:
        raise RuntimeError("install: sglang is not installed in this Python")
    modules = {name: _imported(name) for name in (*COPIES, *GENERATIONS)}
    if all(modules[name] is None for name in COPIES):
        raise RuntimeError(
            f"install: sglang {_version()} has no function to switch: it has none of the modules "
            + ", ".join(COPIES)
        )
    return {name: module for name, module in modules.items() if module is not None}


def _imported(name: str) -> types.ModuleType | None:
    """The module; None where there is none of that name. A broken one raises."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        return None


def _version() -> str:
    return getattr(sys.modules.get("sglang"), "__version__", "of an unknown version")


def _found(modules: dict[str, types.ModuleType]) -> list[_Switch]:
    """The functions in `modules` and their drop-ins, after a look at every signature.

    Raises:
        RuntimeError: A signature is not the drop-in's.
    """
    found = [
        _Switch(module_name, name, getattr(module, name, None), drop_in)
        for module_name, module in modules.items()
        for name, drop_in in {**COPIES, **GENERATIONS}[module_name].items()
    ]
    differences = [
        f"{each.module}.{each.name}: {difference}"
        for each in found
        if (difference := _difference(each.published, each.drop_in)) is not None
    ]
    if differences:
        raise RuntimeError(
            f"install: sglang {_version()} is not switched: " + "; ".join(differences)
        )
    return found


def _is_switched(function: Callable) -> bool:
    """Whether it is a drop-in that ``install()`` put there, or wraps one."""
    drop_ins = [each.drop_in for each in _switches]
    while function is not None:
        if function in drop_ins:
            return True
        function = getattr(function, "__wrapped__", None)
    return False


def _difference(published: Callable | None, drop_in: Callable) -> str | None:
    """What about the published function's signature is not as the drop-in's."""
    if not callable(published):
        return "is not there" if published is None else f"is of type {type(published).__name__}"
    try:
        theirs = list(inspect.signature(published).parameters.values())
    except ValueError:
        return "has no signature"
    ours = list(inspect.signature(drop_in).parameters.values())
    names = [name_today(each.name) for each in theirs]
    if "index_kpool" not in names:  # only some releases' functions take it, by default as ours do
        ours = [each for each in ours if each.name != "index_kpool"]
    for name, each in zip(names, theirs):
        if name not in [other.name for other in ours]:
            return f"parameter {each.name!r} is not known"
    for each in ours:
        if each.name not in names:
            return f"parameter {each.name!r} is missing"
    for i, (name, there, here) in enumerate(zip(names, theirs, ours), 1):
        if name != here.name:
            return f"parameter {i} is {there.name!r}, expected {here.name!r}"
        if there.kind is not here.kind:
            return (
                f"parameter {there.name!r} is {there.kind.description}, expected "
                f"{here.kind.description}"
            )
        if _default(there) != _default(here):
            return f"parameter {there.name!r} has {_default(there)}, expected {_default(here)}"
    return None


def _default(parameter: inspect.Parameter) -> str:
    if parameter.default is parameter.empty:
        return "no default"
    return f"the default {parameter.default!r}"


def _with_signature_of(switch: _Switch) -> Callable:
    """The drop-in as a function of its own that says of itself what the published one does."""
    ours = switch.drop_in
    made = types.FunctionType(
        ours.__code__, ours.__globals__, ours.__name__, ours.__defaults__, ours.__closure__
    )
    functools.update_wrapper(made, ours)
    made.__signature__ = inspect.signature(switch.published)
    return made


def _loaded_modules() -> Iterator[tuple[str, types.ModuleType]]:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "sglang" and isinstance(module, types.ModuleType):
            yield name, module


def _replace(old: Callable, new: Callable) -> list[str]:
    """Replaces `old` in every loaded module of SGLang; returns where it was."""
    replaced = []
    for module_name, module in _loaded_modules():
        for attribute, value in list(vars(module).items()):
            if value is old:
                setattr(module, attribute, new)
                replaced.append(f"{module_name}.{attribute}")
    return replaced
