"""Names of types as a reader meets them: names that compilers made, and arbitrary ones."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachscan.naming import containers, demangle, type_names

SOURCE = """
#include <cstdio>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <typeinfo>
#include <unordered_map>
#include <vector>
namespace app { struct Foo {}; template <class...> struct Of {}; namespace { struct Own {}; } }
using namespace std;
template <class T>
void say(const char* readable) { printf("%s\\t%s\\n", typeid(T).name(), readable); }
#define SAY(...) say<__VA_ARGS__>(#__VA_ARGS__)
int main() {
  SAY(app::Foo);
  SAY(std::string);
  SAY(std::vector<std::string>);
  SAY(std::map<std::string, std::vector<std::string>>);
  SAY(std::map<int, std::unique_ptr<app::Foo>, std::greater<int>>);
  SAY(std::unordered_map<std::string, std::shared_ptr<app::Foo>>);
  SAY(std::pair<int, std::vector<int>>);
  SAY(std::queue<std::set<int>>);
  SAY(std::priority_queue<int>);
  SAY(app::Of<std::function<void (std::string const&, int)>, std::wstring>);
  say<app::Own>("app::(anonymous namespace)::Own");
  say<_Sp_counted_ptr_inplace<app::Foo, allocator<void>, __gnu_cxx::_S_atomic>>(
      "std::shared_ptr<app::Foo>");
  say<_Sp_counted_ptr<app::Foo*, __gnu_cxx::_S_atomic>>(
      "control block of std::shared_ptr<app::Foo>");
  say<__future_base::_Result<int>>("result of a std::future<int>");
  struct Local {};
  auto lambda = [](int) {};
  say<Local>("main::Local");
  say<app::Of<decltype(lambda)>>("app::Of<main::'lambda'(int)>");
}
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("types")
    (folder / "types.cpp").write_text(SOURCE)
    subprocess.run(["g++", "-std=c++17", "-o", "types", "types.cpp"], check=True, cwd=folder)
    done = subprocess.run([str(folder / "types")], check=True, capture_output=True, text=True)
    return dict(line.split("\t") for line in done.stdout.splitlines())


def name(mangled: str) -> str:
    return type_names.readable({1: mangled})[1]


def test_names_that_a_compiler_made(compiled: dict[str, str]) -> None:
    # Names that are local to a function need the library that Python 3.9 and 3.10 cannot have.
    wanted = {m: n for m, n in compiled.items() if sys.version_info >= (3, 11) or "main::" not in n}
    assert {mangled: name(mangled) for mangled in wanted} == wanted


@pytest.mark.parametrize(
    ("mangled", "readable"),
    [
        ("*N12_GLOBAL__N_13FooE", "(anonymous namespace)::Foo"),
        ("NSt3__16vectorIiNS_9allocatorIiEEEE", "std::vector<int>"),
        ("NSt3__120__shared_ptr_emplaceI3FooNS_9allocatorIS1_EEEE", "std::shared_ptr<Foo>"),
        ("N5boost6detail17sp_counted_impl_pI3FooEE", "control block of boost::shared_ptr<Foo>"),
        ("St6vectorIPFviSaIiEESaIS2_EE", "std::vector<void (*)(int, std::allocator<int>)>"),
        ("", ""),
        ("N", "N"),
        ("no type at all", "no type at all"),
    ],
)
def test_names_of_other_origin(mangled: str, readable: str) -> None:
    assert name(mangled) == readable


def test_long_names_lose_what_is_innermost() -> None:
    inner = "app::Table<app::Row<app::Cell<int>>>"
    long = f"app::Index<{', '.join([inner] * 3)}>"
    assert len(long) > type_names.READABLE
    row = "app::Table<app::Row<app::Cell<\N{HORIZONTAL ELLIPSIS}>>>"
    assert type_names.shortened(long) == f"app::Index<{', '.join([row] * 3)}>"
    assert type_names.shortened(inner) == inner


def test_types_that_differ_keep_names_that_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {
        "one": f"Outer<{', '.join(['Inner<Wide<int>>'] * 9)}>",
        "two": f"Outer<{', '.join(['Inner<Wide<int>>'] * 8)}, Inner<Wide<char>>>",
        "three": f"Other<{', '.join(['Inner<Wide<int>>'] * 9)}>",
    }
    monkeypatch.setattr(demangle, "type_name", names.__getitem__)
    readable = type_names.readable(dict(enumerate(names)))
    assert readable[0] == names["one"]
    assert readable[1] == names["two"]
    assert len(readable[2]) < len(names["three"])


@given(st.text(alphabet="ab<>,(): *&'{}-", max_size=200))
def test_any_text_is_survived(text: str) -> None:
    type_names.shortened(type_names.simplified(text))


def templates(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    arguments = st.lists(inner, min_size=1, max_size=4)
    return arguments.map(lambda written: f"T<{', '.join(written)}>")


@given(st.recursive(st.sampled_from(["int", "a::B", "char const*"]), templates, max_leaves=30))
def test_a_name_without_defaults_stays(text: str) -> None:
    assert type_names.simplified(text) == text


def test_names_nested_too_deep_stay() -> None:
    deep = "T<" * 5000 + "int" + ">" * 5000
    assert type_names.simplified(deep) == deep
    assert type_names.shortened(deep) == deep


@pytest.mark.parametrize(
    ("mangled", "readable"),
    [
        ("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad"),
        ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
        ("_ZTVN3app3FooE", "vtable for app::Foo"),
        ("main", "main"),
        ("_Zebra", "_Zebra"),
        ("", ""),
    ],
)
def test_symbols(mangled: str, readable: str) -> None:
    if sys.version_info < (3, 11) and ("core" in mangled or mangled.startswith("_R")):
        pytest.skip("names of Rust need Python 3.11")
    assert demangle.symbol_name(mangled) == readable


def test_names_that_unfold_enormously_stay_mangled() -> None:
    numbers = ["", *range(10), *"ABCDEFGHIJKLMNOPQRSTUVWXYZ"]
    bomb = "_Z1fI1aE" + "".join(f"St4pairIS{i}_S{i}_E" for i in numbers)
    for mangled in (bomb, "_Z" + "P" * 100_000 + "i", "_Z" + "1aI" * 600, "_R" + "INvC1a1b" * 200):
        assert len(demangle.symbol_name(mangled)) <= max(len(mangled), 70_000)


def test_shapes_of_later_versions_have_no_name() -> None:
    assert [containers.shape_name(code) for code in (0, 1, 200)] == ["", "tree node", ""]


def bomb(levels: int) -> str:
    """Return the mangled name of a template whose four arguments are equal, so many levels deep."""
    name = "1BI1AS0_S0_S0_E"
    for level in range(1, levels):
        name = f"1BI{name.replace('1B', 'S_', 1)}{f'S{level}_' * 3}E"
    return name


def test_names_that_unfold_without_end_stay_mangled() -> None:
    assert demangle.type_name(bomb(2)).count("A") == 16
    names = {level: bomb(level) for level in range(1, 10)}
    readable = type_names.readable(names)
    assert len(set(readable.values())) == len(names)
    assert max(map(len, readable.values())) <= demangle.MAX_DEMANGLED
    assert readable[9] == names[9]


def test_long_names_are_looked_through_once() -> None:
    """From the end: from the beginning, each character would be the start of a try."""
    long = "a" * 300_000 + " "
    assert type_names.simplified(f"{long}<int>") == f"{long}<int>"
