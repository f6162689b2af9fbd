"""Programs with windows, made to work and then to wait."""

from __future__ import annotations

import shlex

from desktop import Desktop
from idle_programs import Scene

OPEN_A_MENU = ("key alt+f", "key Down", "key Down", "key Escape", "key Escape")
TYPE = ("type 'Words that are typed'", "key Return", "key ctrl+a", "key ctrl+c", "key ctrl+v")
TURN_PAGES = ("key Next", "key Next", "key plus", "key minus", "key Prior")
CLICK = ("mousemove 500 400 click 1", "mousemove 520 420 click 3", "key Escape")

GUESTS = ("run xterm & xclock &", "window xterm", "window xclock", "key alt+Tab", "key alt+F4")

TKINTER = """
import tkinter
from tkinter import ttk
window = tkinter.Tk(className="toolkit")
notebook = ttk.Notebook(window)
notebook.pack()
for page in range(3):
    text = tkinter.Text(notebook)
    notebook.add(text, text="page %d" % page)
    for line in range(100):
        text.insert("end", "line %d\\n" % line, "tag%d" % (line % 5))
tree = ttk.Treeview(window)
tree.pack()
for row in range(100):
    tree.insert("", "end", text="row %d" % row)
menu = tkinter.Menu(window)
menu.add_command(label="Close", command=lambda: None)
window.config(menu=menu)
window.mainloop()
"""
WX = """
import wx
app = wx.App()
frame = wx.Frame(None, title="toolkit", size=(600, 400))
notebook = wx.Notebook(frame)
for page in range(3):
    text = wx.TextCtrl(notebook, style=wx.TE_MULTILINE)
    text.SetValue("some words\\n" * 100)
    notebook.AddPage(text, "page %d" % page)
tree = wx.TreeCtrl(notebook)
root = tree.AddRoot("root")
for row in range(100):
    tree.AppendItem(root, "row %d" % row)
notebook.AddPage(tree, "tree")
bar = wx.MenuBar()
menu = wx.Menu()
menu.Append(wx.ID_OPEN)
bar.Append(menu, "&File")
frame.SetMenuBar(bar)
frame.Show()
app.MainLoop()
"""
QT = """
import sys
from {0}.QtWidgets import *
app = QApplication(sys.argv)
window = QMainWindow()
window.setWindowTitle("toolkit")
tabs = QTabWidget()
text = QTextEdit()
text.setHtml("<h1>Heading</h1><p>Some <b>words</b></p>" * 50)
table = QTableWidget(50, 4)
for row in range(50):
    for column in range(4):
        table.setItem(row, column, QTableWidgetItem("%d, %d" % (row, column)))
tabs.addTab(text, "text")
tabs.addTab(table, "table")
window.setCentralWidget(tabs)
menu = window.menuBar().addMenu("&File")
for name in ("Open", "Save", "Close"):
    menu.addAction(name)
window.show()
sys.exit(app.exec())
"""
SDL = """
import pygame
pygame.init()
screen = pygame.display.set_mode((400, 300))
pygame.display.set_caption("toolkit")
font = pygame.font.Font(None, 24)
for i in range(100):
    image = font.render("line %d" % i, True, (255, 255, 255))
    screen.blit(pygame.transform.rotate(image, i), (i, 2 * i))
    pygame.display.flip()
while pygame.event.wait().type != pygame.QUIT:
    pass
"""

GTK = ("window .", "key Escape", *OPEN_A_MENU, *CLICK)
PYTHON_GTK = (
    ("bleachbit", "/usr/bin/bleachbit"),
    ("catfish", "/usr/bin/catfish"),
    ("gnome-tweaks", "/usr/bin/gnome-tweaks"),
    ("gramps", "/usr/bin/gramps"),
    ("lollypop", "/usr/bin/lollypop"),
    ("meld", "/usr/bin/meld text.txt program.c"),
    ("pitivi", "/usr/bin/pitivi"),
    ("quodlibet", "/usr/bin/quodlibet"),
    ("soundconverter", "/usr/bin/soundconverter"),
    ("terminator", "/usr/bin/terminator"),
    ("zim", "/usr/bin/zim --standalone {folder}"),
)


def python(script: str) -> str:
    return f"/usr/bin/python3 -c {shlex.quote(script)}"


DESKTOP: dict[str, Scene] = {
    # Texts
    "gedit": Desktop("gedit", "gedit text.txt", ("window text.txt", *TYPE, *OPEN_A_MENU)),
    "mousepad": Desktop("mousepad", "mousepad text.txt", ("window text.txt", *TYPE, *OPEN_A_MENU)),
    "l3afpad": Desktop("l3afpad", "l3afpad text.txt", ("window text.txt", *TYPE, *OPEN_A_MENU)),
    "scite": Desktop("scite", "scite program.c", ("window program.c", *TYPE, *OPEN_A_MENU)),
    "geany": Desktop("geany", "geany program.c", ("window program.c", *TYPE, *OPEN_A_MENU)),
    "kate": Desktop(
        "kate", "kate --startanon program.c", ("window program.c", *TYPE, *OPEN_A_MENU)
    ),
    "focuswriter": Desktop("focuswriter", "focuswriter", ("window .", *TYPE)),
    "texstudio": Desktop("texstudio", "texstudio text.txt", ("window TeXstudio", *TYPE)),
    "abiword": Desktop("abiword", "abiword text.txt", ("window text.txt", *TYPE, *OPEN_A_MENU)),
    "gnumeric": Desktop(
        "gnumeric", "gnumeric table.csv", ("window table.csv", *TYPE, *OPEN_A_MENU)
    ),
    # Papers and pictures
    "evince": Desktop("evince", "evince paper.pdf", ("window paper.pdf", *TURN_PAGES, *CLICK)),
    "zathura": Desktop(
        "zathura zathura-pdf-poppler", "zathura paper.pdf", ("window paper.pdf", *TURN_PAGES)
    ),
    "mupdf": Desktop("mupdf", "mupdf paper.pdf", ("window paper.pdf", *TURN_PAGES)),
    "xpdf": Desktop("xpdf", "xpdf paper.pdf", ("window paper.pdf", *TURN_PAGES, *CLICK)),
    "qpdfview": Desktop("qpdfview", "qpdfview paper.pdf", ("window qpdfview", *TURN_PAGES, *CLICK)),
    "okular": Desktop("okular", "okular paper.pdf", ("window paper", *TURN_PAGES, *CLICK)),
    "xournalpp": Desktop(
        "xournalpp", "xournalpp paper.pdf", ("window paper.pdf", *TURN_PAGES, *CLICK)
    ),
    "eog": Desktop("eog", "eog picture.png", ("window picture.png", *CLICK, "key plus", "key r")),
    "gthumb": Desktop("gthumb", "gthumb picture.png", ("window picture.png", *CLICK, "key plus")),
    "gpicview": Desktop("gpicview", "gpicview picture.png", ("window picture.png", "key plus")),
    "viewnior": Desktop("viewnior", "viewnior picture.png", ("window picture.png", *CLICK)),
    "feh": Desktop("feh", "feh picture.png", ("window picture.png", "key Up", "key Down", *CLICK)),
    "inkscape": Desktop("inkscape", "inkscape drawing.svg", ("window drawing.svg", *CLICK)),
    "dia": Desktop("dia", "dia --nosplash", ("window Dia", *CLICK)),
    "xfig": Desktop("xfig", "/usr/libexec/xfig/xfig", ("window [Xx]fig", *CLICK)),
    "gnuplot": Desktop(
        "gnuplot-qt",
        "gnuplot -e 'set terminal qt; plot sin(x); pause -1'",
        ("window Gnuplot", *CLICK),
    ),
    "gimp": Desktop(
        "gimp",
        "gimp --no-splash picture.png",
        ("window picture", *CLICK, "key ctrl+a", "key ctrl+i"),
    ),
    "scribus": Desktop(
        "scribus", "scribus --no-splash --never-splash", ("window Scribus", "key Escape")
    ),
    # Tools
    "gnome-calculator": Desktop(
        "gnome-calculator", "gnome-calculator", ("window Calculator", "type 12*34", "key Return")
    ),
    "galculator": Desktop(
        "galculator", "galculator", ("window galculator", "type 12*34", "key Return")
    ),
    "kcalc": Desktop("kcalc", "kcalc", ("window KCalc", "type 12*34", "key Return", *CLICK)),
    "keepassxc": Desktop(
        "keepassxc", "keepassxc", ("window KeePassXC", "key ctrl+comma", "key Escape")
    ),
    "thunar": Desktop("thunar", "thunar {folder}", ("window Thunar", "key F5", *CLICK)),
    "pcmanfm": Desktop("pcmanfm", "pcmanfm {folder}", ("window reachscan", "key F5", *CLICK)),
    # Terminals
    "xterm": Desktop(
        "xterm", "xterm", ("window .", "type 'seq 500\n'", "keydown ctrl click 1 keyup ctrl")
    ),
    "xfce4-terminal": Desktop(
        "xfce4-terminal",
        "xfce4-terminal --disable-server",
        ("window Terminal", "type 'seq 500\n'", *CLICK),
    ),
    "lxterminal": Desktop(
        "lxterminal", "lxterminal --no-remote", ("window .", "type 'seq 500\n'", *CLICK)
    ),
    "sakura": Desktop("sakura", "sakura", ("window .", "type 'seq 500\n'", *CLICK)),
    "konsole": Desktop("konsole", "konsole", ("window .", "type 'seq 500\n'", *CLICK)),
    # Sound and films
    "mpv": Desktop("mpv", "mpv --vo=x11 --ao=null --pause picture.png", ("window mpv", "key o")),
    "audacious": Desktop("audacious", "audacious sound.wav", ("window Audacious", *CLICK)),
    # Games
    "gnome-mines": Desktop("gnome-mines", "gnome-mines", ("window Mines", *CLICK)),
    "gnome-chess": Desktop("gnome-chess", "gnome-chess", ("window Chess", *CLICK)),
    "quadrapassel": Desktop("quadrapassel", "quadrapassel", ("window Quadrapassel", *CLICK)),
    # The web
    "dillo": Desktop("dillo", "dillo page.html", ("window Dillo", *CLICK, "key ctrl+r")),
    "netsurf": Desktop("netsurf-gtk", "netsurf-gtk page.html", ("window NetSurf", *CLICK)),
    "vlc": Desktop(
        "vlc-bin vlc-plugin-base vlc-plugin-qt", "vlc --no-qt-privacy-ask", ("window VLC", *CLICK)
    ),
    # What a desktop consists of
    "openbox": Desktop("openbox xterm x11-apps", "openbox", (*GUESTS, *CLICK), is_manager=True),
    "fluxbox": Desktop("fluxbox xterm x11-apps", "fluxbox", (*GUESTS, *CLICK), is_manager=True),
    "i3": Desktop("i3-wm xterm x11-apps", "i3", GUESTS, is_manager=True),
    "icewm": Desktop("icewm xterm x11-apps", "icewm", (*GUESTS, *CLICK), is_manager=True),
    "wmaker": Desktop("wmaker xterm x11-apps", "wmaker", (*GUESTS, *CLICK), is_manager=True),
    "tint2": Desktop("tint2 xterm x11-apps", "tint2", ("window tint2", *GUESTS)),
    "xfce4-panel": Desktop(
        "xfce4-panel xterm x11-apps", "xfce4-panel", ("window xfce4-panel", *GUESTS)
    ),
    "rofi": Desktop("rofi", "rofi -show run", ("window rofi", "type x", "key Down", "key Down")),
    "dunst": Desktop(
        "dunst libnotify-bin", "dunst", ("run notify-send Hello '<b>words</b>'", "window Dunst")
    ),
    "xfce4-notifyd": Desktop(
        "xfce4-notifyd libnotify-bin",
        "/usr/lib/x86_64-linux-gnu/xfce4/notifyd/xfce4-notifyd",
        ("run notify-send Hello words",),
    ),
    # Larger documents and collections
    "pluma": Desktop("pluma", "pluma text.txt", ("window text.txt", *TYPE, *OPEN_A_MENU)),
    "bluefish": Desktop("bluefish", "bluefish page.html", ("window .", *TYPE, *OPEN_A_MENU)),
    "featherpad": Desktop(
        "featherpad", "featherpad text.txt", ("window text.txt", *TYPE, *OPEN_A_MENU)
    ),
    "gvim": Desktop(
        "vim-gtk3",
        "gvim -f text.txt",
        ("window text.txt", "type ihello", "key Escape", *CLICK),
    ),
    "codeblocks": Desktop(
        "codeblocks",
        "codeblocks --no-splash-screen program.c",
        ("window .", "key Return", *OPEN_A_MENU),
    ),
    "lyx": Desktop("lyx", "lyx", ("window LyX", "key ctrl+n", *TYPE)),
    "texmaker": Desktop("texmaker", "texmaker", ("window .", "key ctrl+n", *TYPE)),
    "atril": Desktop("atril", "atril paper.pdf", ("window paper.pdf", *TURN_PAGES, *CLICK)),
    "geeqie": Desktop("geeqie", "geeqie picture.png", ("window .", *CLICK, "key plus")),
    "shotwell": Desktop("shotwell", "shotwell picture.png", ("window .", *CLICK, "key plus")),
    "ristretto": Desktop("ristretto", "ristretto picture.png", ("window .", *CLICK, "key plus")),
    "krita": Desktop(
        "krita", "krita --nosplash picture.png", ("window .", "key Escape", *CLICK, "key ctrl+a")
    ),
    "librecad": Desktop("librecad", "librecad", ("window .", "key Return", *OPEN_A_MENU, *CLICK)),
    "audacity": Desktop("audacity", "audacity sound.wav", ("window .", "key Escape", *CLICK)),
    "rhythmbox": Desktop("rhythmbox", "rhythmbox", ("window .", "key Escape", *CLICK)),
    "totem": Desktop("totem", "totem", ("window .", "key Escape", *CLICK)),
    "smplayer": Desktop("smplayer", "smplayer", ("window .", "key Escape", *OPEN_A_MENU, *CLICK)),
    "gnucash": Desktop("gnucash", "gnucash --nofile", ("window .", "key Escape", *CLICK)),
    "homebank": Desktop("homebank", "homebank", ("window .", "key Escape", *CLICK)),
    "grisbi": Desktop("grisbi", "grisbi", ("window .", "key Escape", *CLICK)),
    "glade": Desktop("glade", "glade", ("window .", "key ctrl+n", *CLICK)),
    # The net
    "hexchat": Desktop("hexchat", "hexchat", ("window .", "key Escape", *OPEN_A_MENU, *CLICK)),
    "pidgin": Desktop("pidgin", "pidgin -n", ("window .", "key Escape", *CLICK)),
    "filezilla": Desktop("filezilla", "filezilla", ("window .", "key Return", *OPEN_A_MENU)),
    "poedit": Desktop("poedit", "poedit", ("window .", "key Escape", *CLICK)),
    "qbittorrent": Desktop(
        "qbittorrent", "qbittorrent", ("window .", "key Return", *OPEN_A_MENU, *CLICK)
    ),
    # More of what a desktop consists of
    "awesome": Desktop("awesome xterm x11-apps", "awesome", (*GUESTS, *CLICK), is_manager=True),
    "lxqt-panel": Desktop("lxqt-panel xterm x11-apps", "lxqt-panel", (*GUESTS, *CLICK)),
    "pcmanfm-qt": Desktop("pcmanfm-qt", "pcmanfm-qt {folder}", ("window .", "key F5", *CLICK)),
    "gnome-system-monitor": Desktop(
        "gnome-system-monitor", "gnome-system-monitor", ("window .", *CLICK)
    ),
    "terminology": Desktop("terminology", "terminology", ("window .", "type 'seq 500\n'", *CLICK)),
    "qterminal": Desktop("qterminal", "qterminal", ("window .", "type 'seq 500\n'", *CLICK)),
    "urxvt": Desktop("rxvt-unicode", "urxvt", ("window .", "type 'seq 500\n'", *CLICK)),
    "gnome-terminal": Desktop(
        "gnome-terminal",
        "gnome-terminal --wait",
        ("window .", "type 'seq 500\n'", *CLICK),
        process="gnome-terminal-",
    ),
    # Python and GTK, loaded at a fixed address
    **{name: Desktop(name, f"/usr/bin/python3 {command}", GTK) for name, command in PYTHON_GTK},
    # Toolkits
    "tkinter": Desktop("python3-tk", python(TKINTER), ("window toolkit", *CLICK)),
    "wx": Desktop("python3-wxgtk4.0", python(WX), ("window toolkit", *CLICK, *OPEN_A_MENU)),
    "PyQt6": Desktop(
        "python3-pyqt6", python(QT.format("PyQt6")), ("window toolkit", *CLICK, *OPEN_A_MENU)
    ),
    "PySide2": Desktop(
        "python3-pyside2.qtwidgets",
        python(QT.format("PySide2").replace("app.exec()", "app.exec_()")),
        ("window toolkit", *CLICK, *OPEN_A_MENU),
    ),
    "PySide6": Desktop(
        "libegl1 libxcb-cursor0 libxkbcommon-x11-0 libxcb-icccm4 libxcb-keysyms1",
        python(QT.format("PySide6")),
        ("window toolkit", *CLICK, *OPEN_A_MENU),
        of_pypi=("PySide6-Essentials",),
    ),
    "SDL": Desktop("python3-pygame", python(SDL), ("window toolkit", *CLICK)),
    # Large ones
    "epiphany": Desktop("epiphany-browser", "epiphany page.html", ("window A page", *CLICK)),
    "libreoffice": Desktop(
        "libreoffice-writer libreoffice-gtk3",
        "soffice --nologo --norestore --writer text.txt",
        ("window text.txt", *TYPE, *OPEN_A_MENU),
        process="soffice.bin",
    ),
    "firefox": Desktop("firefox-esr", "firefox-esr page.html", ("window A page", *CLICK)),
}
