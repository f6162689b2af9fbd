"""Games, viewers, players and settings: programs with windows that are all told to do the same."""

from __future__ import annotations

from desktop import Desktop
from desktop_programs import GTK
from idle_programs import Scene

# Named like their Debian packages.
_NAMES = """
    baobab birdfont clementine darktable dconf-editor devhelp dolphin dosbox drawing evolution
    falkon file-roller five-or-more fontmatrix four-in-a-row gcolor3 ghex gmsh gnome-characters
    gnome-clocks gnome-font-viewer gnome-klotski gnome-logs gnome-mahjongg gnome-robots
    gnome-sudoku gnome-taquin gnome-tetravex gnubg gpick hitori hydrogen iagno kget kolourpaint
    konqueror konversation ktorrent liferea lmms minitube mixxx mtpaint mypaint photoqt qgit
    qtcreator qtractor rawtherapee remmina sayonara seahorse simple-scan skrooge sqlitebrowser
    strawberry swell-foop sylpheed tali texworks tilda tupi wireshark xboard xfce4-appfinder
    zeal
"""
# Commands, and the packages that they are in.
_PACKAGES = {
    "gitg --no-wd": "gitg",
    "/usr/bin/guake": "guake",
    "heaptrack_gui": "heaptrack-gui",
    "mscore3": "musescore3",
    "obs": "obs-studio",
    "sol": "aisleriot",
}

SMALL_DESKTOP: dict[str, Scene] = {
    command.split()[0].rpartition("/")[2]: Desktop(package, command, GTK)
    for command, package in {**{name: name for name in _NAMES.split()}, **_PACKAGES}.items()
}
