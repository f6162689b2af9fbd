"""Translates a library's internal blocks into terms of its users."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reachscan.recording import model

SHAPES = (
    "",
    "tree node",
    "list node",
    "chain node",
    "pointer array",
    "vector body",
    "text",
    "zeros",
    "text",
)
"""Names of shapes, by `Leaks.shape`."""


_LINKS = {model.TREE_NODE: (1, 2, 3), model.LIST_NODE: (0, 1), model.CHAIN_NODE: (0,)}
"""For each shape, the words that link a node to others of its container, or are null."""


def nodes_with_link(word: int) -> list[int]:
    """Return the shapes of nodes in which a word (0 for the first) is a link."""
    return [shape for shape, links in _LINKS.items() if word in links]


def shape_name(code: int) -> str:
    """Return the name of a shape; shapes of later versions have none."""
    return SHAPES[code] if code < len(SHAPES) else ""


def described(template: str, arguments: Sequence[str]) -> str | None:
    """Return what an instance of a library's internal class template means to its users.

    The templates are those of libstdc++ (bits/shared_ptr_base.h, bits/std_thread.h, future),
    libc++ (__memory/shared_ptr.h) and Boost (smart_ptr/detail/sp_counted_impl.hpp).

    Args:
        template: qualified name of the class template, without version namespaces.
        arguments: its template arguments, as text.
    """
    describe = _INTERNALS.get(template)
    return describe(*arguments) if describe and arguments else None


def _control_block(library: str) -> Callable[..., str]:
    return lambda pointer, *_: f"control block of {library}::shared_ptr<{_pointee(pointer)}>"


def _pointee(pointer: str) -> str:
    return pointer.removesuffix("*").removesuffix(" const") if pointer.endswith("*") else pointer


def _called(invoker: str) -> str:
    """Return the function and its arguments, which libstdc++ passes as a tuple."""
    inner = invoker.removeprefix("std::tuple<")
    return inner.removesuffix(">") if inner != invoker else invoker


_INTERNALS: dict[str, Callable[..., str]] = {
    # The object is in the same block (std::make_shared).
    "std::_Sp_counted_ptr_inplace": lambda object_, *_: f"std::shared_ptr<{object_}>",
    "std::__shared_ptr_emplace": lambda object_, *_: f"std::shared_ptr<{object_}>",
    "std::_Sp_counted_ptr": _control_block("std"),
    "std::_Sp_counted_deleter": _control_block("std"),
    "std::__shared_ptr_pointer": _control_block("std"),
    "boost::detail::sp_counted_impl_p": _control_block("boost"),
    "boost::detail::sp_counted_impl_pd": _control_block("boost"),
    "boost::detail::sp_counted_impl_pda": _control_block("boost"),
    "std::thread::_Invoker": lambda invoker, *_: _called(invoker),
    "std::thread::_State_impl": lambda called, *_: f"std::thread running {called}",
    "std::__future_base::_Result": lambda result, *_: f"result of a std::future<{result}>",
    "std::__future_base::_Async_state_impl": lambda called, *_: f"std::async<{called}>",
    "std::__future_base::_Deferred_state": lambda called, *_: f"std::async<{called}>",
    "std::__future_base::_Task_state": lambda called, *_: f"std::packaged_task<{called}>",
}
