"""Shortens names of C++ types: omits default template arguments and library versions.

std::map<int, std::string>      for  std::map<int, std::__cxx11::basic_string<char, ...>, ...>
std::shared_ptr<shop::Page>     for  std::_Sp_counted_ptr_inplace<shop::Page, ...>
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from reachscan.naming import containers, demangle

READABLE = 120
"""Longer names lose template arguments, the innermost first."""

DEEPEST = 60
"""Names whose template arguments nest deeper are not shortened."""

_VERSIONS = re.compile(r"\bstd::(__cxx11|__1|__ndk1|__debug)::")
_NAME_REVERSED = re.compile(r"[\w:]*")
_DEFAULTS = ("std::allocator<", "std::char_traits<", "(__gnu_cxx::_Lock_policy)")
_DEFAULTS_OF_FIRST = ("less", "hash", "equal_to", "default_delete")
_ADAPTERS = {"std::queue": "deque", "std::stack": "deque", "std::priority_queue": "vector"}
_STRINGS = {"std::basic_string<char>": "std::string", "std::basic_string<wchar_t>": "std::wstring"}
_ELIDED = "<\u2026>"


def readable(mangled: Mapping[int, str]) -> dict[int, str]:
    """Return the readable names of types; different types keep different names.

    Args:
        mangled: any key -> mangled name of a type, as RTTI has it.
    """
    full = {name: simplified(demangle.type_name(name)) for name in set(mangled.values())}
    short = {text: shortened(text) for text in set(full.values())}
    wearers = Counter(short.values())
    return {
        key: short[full[name]] if wearers[short[full[name]]] == 1 else full[name]
        for key, name in mangled.items()
    }


def simplified(name: str) -> str:
    """Return the name of a type without default arguments and versions of the library."""
    parsed = _parse(_VERSIONS.sub("std::", name))
    return name if parsed is None else _text(parsed)


def shortened(name: str) -> str:
    """Return a name with innermost template arguments removed until it is short enough."""
    parsed = _parse(name) if len(name) > READABLE else None
    if parsed is None:
        return name
    shorter = (_text(parsed, depth) for depth in range(_depth(parsed), 0, -1))
    return next((text for text in shorter if len(text) <= READABLE), _text(parsed, 0))


@dataclass(frozen=True)
class _Template:
    """Part of a type: text that ends in a template's name, and the template's arguments."""

    text: str
    arguments: tuple[_Type, ...]


_Type = tuple["str | _Template", ...]


class _UnbalancedError(Exception):
    """Brackets in the name do not match, or nest too deeply."""


def _parse(text: str) -> _Type | None:
    parser = _Parser(text)
    try:
        parsed = parser.type(0)
    except _UnbalancedError:
        return None
    return parsed if parser.at == len(text) else None


class _Parser:
    def __init__(self, text: str) -> None:
        self.at = 0
        self._text = text

    def type(self, depth: int) -> _Type:
        """Read up to the comma or bracket that ends this type; it is not consumed."""
        parts: list[str | _Template] = []
        begin, inside = self.at, 0
        while self.at < len(self._text):
            letter = self._text[self.at]
            if letter == "<":
                name = self._text[begin : self.at]
                parts.append(_Template(name, self._arguments(depth + 1)))
                begin = self.at
                continue
            if letter in ",>" and not inside:
                break
            inside += (letter in "({[") - (letter in ")}]")
            self.at += 1
        return (*parts, self._text[begin : self.at])

    def _arguments(self, depth: int) -> tuple[_Type, ...]:
        arguments: list[_Type] = []
        while depth < DEEPEST and self.at < len(self._text) and self._text[self.at] != ">":
            self.at += 1  # the opening bracket, or the comma between two arguments
            self.at += self._text[self.at : self.at + 1] == " "
            arguments.append(self.type(depth))
        if self._text[self.at : self.at + 1] != ">":
            raise _UnbalancedError
        self.at += 1
        return tuple(arguments)


def _depth(parts: _Type) -> int:
    templates = [part for part in parts if isinstance(part, _Template)]
    return max((1 + max(map(_depth, t.arguments), default=0) for t in templates), default=0)


def _text(parts: _Type, depth: int = DEEPEST) -> str:
    """Return a type as text; template arguments are written to a nesting of `depth`."""
    return "".join(p if isinstance(p, str) else _template_text(p, depth) for p in parts).rstrip()


def _template_text(template: _Template, depth: int) -> str:
    if not depth:
        return template.text + _ELIDED
    found = _NAME_REVERSED.match(template.text[::-1])
    name = found.group()[::-1] if found else ""
    before = template.text.removesuffix(name)
    arguments = [_text(argument, depth - 1) for argument in template.arguments]
    described = containers.described(name, arguments)
    if described is not None:
        return before + described
    while len(arguments) > 1 and name.startswith("std::") and _is_default(name, arguments):
        arguments.pop()
    text = f"{name}<{', '.join(arguments)}>"
    return before + _STRINGS.get(text, text)


def _is_default(template: str, arguments: list[str]) -> bool:
    """Return whether the last argument is the default of a library template."""
    first, last = arguments[0], arguments[-1]
    return last.startswith(_DEFAULTS) or last in (
        f"std::{default}<{first}>"
        for default in (*_DEFAULTS_OF_FIRST, _ADAPTERS.get(template, "none"))
    )
