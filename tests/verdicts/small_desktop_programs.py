"""Games, viewers, players and settings: programs with windows that are all told to do the same."""

from __future__ import annotations

from desktop import Desktop
from desktop_programs import GTK
from idle_programs import Scene

# The name of the program; also of its Debian package, unless given.
_COMMANDS = {
    "baobab": "",
    "birdfont": "",
    "clementine": "",
    "dconf-editor": "",
    "devhelp": "",
    "dolphin": "",
    "drawing": "",
    "falkon": "",
    "file-roller": "",
    "five-or-more": "",
    "fontmatrix": "",
    "four-in-a-row": "",
    "gcolor3": "",
    "ghex": "",
    "gitg --no-wd": "gitg",
    "gnome-characters": "",
    "gnome-clocks": "",
    "gnome-font-viewer": "",
    "gnome-klotski": "",
    "gnome-logs": "",
    "gnome-mahjongg": "",
    "gnome-robots": "",
    "gnome-sudoku": "",
    "gnome-taquin": "",
    "gnome-tetravex": "",
    "gnubg": "",
    "gpick": "",
    "/usr/bin/guake": "guake",
    "heaptrack_gui": "heaptrack-gui",
    "hitori": "",
    "hydrogen": "",
    "iagno": "",
    "kget": "",
    "kolourpaint": "",
    "konqueror": "",
    "konversation": "",
    "ktorrent": "",
    "liferea": "",
    "minitube": "",
    "mscore3": "musescore3",
    "mtpaint": "",
    "photoqt": "",
    "qgit": "",
    "qtractor": "",
    "remmina": "",
    "sayonara": "",
    "seahorse": "",
    "simple-scan": "",
    "skrooge": "",
    "sol": "aisleriot",
    "sqlitebrowser": "",
    "strawberry": "",
    "swell-foop": "",
    "sylpheed": "",
    "tali": "",
    "tilda": "",
    "tupi": "",
    "wireshark": "",
    "xboard": "",
    "xfce4-appfinder": "",
    "zeal": "",
}

SMALL_DESKTOP: dict[str, Scene] = {
    command.split()[0].rpartition("/")[2]: Desktop(package or command, command, GTK)
    for command, package in _COMMANDS.items()
}
