# SPDX-License-Identifier: Apache-2.0
"""Makes a drop-in of a published signature: arguments by position or keyword, to native code."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Container
from typing import Any

from graphfeed import _library
from graphfeed._arrays import call_through_tvm_ffi, is_read_in_place, known_in_place

_RENAMED = {"real_page_size": "physical_page_size"}


def name_today(parameter: str) -> str:
    """Returns what the newest release calls the parameter that an older one called `parameter`."""
    if parameter.startswith("nsa_"):
        return "dsa_" + parameter[4:]
    return _RENAMED.get(parameter, parameter)


def forwarded_to(
    name: str, *, inputs: Container[str] | None = None
) -> Callable[[Callable], Callable]:
    """Makes a function of its signature alone: a call goes to the native function `name`.

    Arguments annotated as tensors are arrays; those that are not among `inputs`, or by default
    those whose name has ``_dst`` in it, are destinations.
    """
    native = _library.function(name, keep_gil=True)
    native_tuple = _library.function(name + "_tuple", keep_gil=True)

    def decorate(declared: Callable) -> Callable:
        function = declared.__name__
        parameters = inspect.signature(declared).parameters
        names = list(parameters)
        known = frozenset(names)
        defaults = {
            name: parameter.default
            for name, parameter in parameters.items()
            if parameter.default is not parameter.empty
        }
        arrays = [i for i, name in enumerate(names) if "Tensor" in parameters[name].annotation]
        written = [
            i for i in arrays if ("_dst" in names[i] if inputs is None else names[i] not in inputs)
        ]

        flags = [i for i, name in enumerate(names) if defaults.get(name) is False]

        @functools.wraps(declared)
        def forward(*args: Any, **named: Any) -> None:
            if named or (defaults and len(args) < len(names)):
                if not named.keys() <= known:
                    named = _named_today(function, named)
                args = _by_name(function, names, args, named, defaults)
            for i in flags:  # native code takes no bool for an integer
                if isinstance(args[i], bool):
                    args = (*args[:i], int(args[i]), *args[i + 1 :])
            if args and (known_in_place(type(args[0])) or is_read_in_place(args[0])):
                native_tuple(id(args))
            else:
                call_through_tvm_ffi(function, native, args, names, arrays, written)

        return forward

    return decorate


def _named_today(function: str, named: dict[str, Any]) -> dict[str, Any]:
    today = {}
    for name, value in named.items():
        newer = name_today(name)
        if newer != name and newer in named:
            raise TypeError(f"{function}: {newer} is given twice, as {name} too")
        today[newer] = value
    return today


def _by_name(
    function: str,
    names: list[str],
    args: tuple,
    named: dict[str, Any],
    defaults: dict[str, Any],
) -> tuple:
    """Returns the positional arguments that `args` and the keywords `named` make together."""
    try:
        positional = args + tuple(
            named.pop(name) if name in named or name not in defaults else defaults[name]
            for name in names[len(args) :]
        )
    except KeyError as missing:
        raise TypeError(f"{function}: missing argument {missing}") from None
    if named:
        name = next(iter(named))
        what = "multiple values for" if name in names else "unexpected"
        raise TypeError(f"{function}: {what} argument {name!r}")
    return positional
