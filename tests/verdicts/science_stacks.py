"""More packages of PyPI with native code: networks, solvers, geometry, media, stores."""

from __future__ import annotations

from idle_programs import Scene
from python_stacks import Stack

TENSORS = """
import numpy as np, tensorflow as tf
layers = [tf.keras.layers.Dense(16, activation="relu"), tf.keras.layers.Dense(1)]
model = tf.keras.Sequential(layers); model.compile("adam", "mse")
model.fit(np.ones((64, 4)), np.ones((64, 1)), epochs=2, verbose=0)
"""
GRADIENTS = """
import jax, jax.numpy as jnp
total = jax.jit(lambda x: (x @ x.T).sum()); assert total(jnp.ones((50, 50))) == 125000
slope = jax.jit(jax.grad(total))(jnp.ones((50, 50)))
"""
GRAPHS_OF_OPERATORS = """
import numpy as np, onnx, onnxruntime
from onnx import TensorProto, helper
x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy")
graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
session = onnxruntime.InferenceSession(model.SerializeToString())
session.run(None, {"x": np.array([1, -1, 2], dtype=np.float32)})
"""
BOOSTING = """
import lightgbm, numpy as np
x = np.random.default_rng(1).random((2000, 10))
model = lightgbm.LGBMRegressor(n_estimators=20, verbose=-1).fit(x, x[:, 0]); model.predict(x)
"""
NEIGHBOURS = """
import faiss, numpy as np
x = np.random.default_rng(1).random((2000, 32), dtype=np.float32)
near = faiss.IndexHNSWFlat(32, 16); near.add(x); near.search(x[:5], 4)
coded = faiss.index_factory(32, "IVF16,PQ8"); coded.train(x); coded.add(x)
"""
PICTURES = """
import cv2, numpy as np
image = np.random.default_rng(1).integers(0, 255, (300, 400, 3), dtype=np.uint8)
for _ in range(5):
    grey = cv2.cvtColor(cv2.GaussianBlur(image, (5, 5), 0), cv2.COLOR_BGR2GRAY)
    cv2.Canny(grey, 50, 150); done, data = cv2.imencode(".png", image); cv2.imdecode(data, 1)
kept = cv2.ORB_create().detectAndCompute(grey, None)
"""
FILMS = """
import io, av, numpy as np
out = io.BytesIO(); film = av.open(out, "w", format="mp4")
stream = film.add_stream("mpeg4", rate=24)
stream.width = stream.height = 64; stream.pix_fmt = "yuv420p"
for i in range(24):
    frame = av.VideoFrame.from_ndarray(np.full((64, 64, 3), i * 9, np.uint8), format="rgb24")
    for packet in stream.encode(frame): film.mux(packet)
for packet in stream.encode(): film.mux(packet)
film.close(); out.seek(0); assert sum(1 for _ in av.open(out).decode(video=0)) == 24
"""
GAMES = """
import os
os.environ.update(SDL_VIDEODRIVER="dummy", SDL_AUDIODRIVER="dummy")
import pygame
pygame.init(); screen = pygame.display.set_mode((300, 200)); font = pygame.font.Font(None, 24)
for i in range(30):
    screen.blit(font.render("hello %d" % i, True, "white"), (9, 9)); pygame.display.flip()
"""
PAGES = """
import pymupdf
document = pymupdf.open()
for i in range(20):
    page = document.new_page(); page.insert_text((50, 50), "hello %d" % i)
    page.draw_rect((9, 9, 99, 99))
again = pymupdf.open("pdf", document.tobytes())
kept = [(page.get_pixmap(), page.get_text()) for page in again]
"""
PROOFS = """
from z3 import BitVecs, Ints, Solver
numbers = Ints(" ".join("x%d" % i for i in range(20))); solver = Solver()
for a, b in zip(numbers, numbers[1:]): solver.add(a + 3 < b, b < 200)
solver.check(); model = solver.model(); a, b = BitVecs("a b", 32)
factors = Solver(); factors.add(a * b == 12345678, a > 1000, b > 2); factors.check()
"""
PLANS = """
from ortools.linear_solver import pywraplp
from ortools.sat.python import cp_model
model = cp_model.CpModel(); x = [model.NewIntVar(0, 9, "x%d" % i) for i in range(8)]
model.AddAllDifferent(x); model.Maximize(sum(i * each for i, each in enumerate(x)))
solver = cp_model.CpSolver(); solver.parameters.num_workers = 4; solver.Solve(model)
linear = pywraplp.Solver.CreateSolver("SCIP"); a = linear.IntVar(0, 10, "a")
linear.Maximize(a); linear.Solve()
"""
MINIMA = """
import casadi, cvxpy, highspy, numpy as np
x = cvxpy.Variable(10); a = np.random.default_rng(1).random((20, 10))
problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(a @ x - 1)), [x >= 0])
for solver in (cvxpy.OSQP, cvxpy.SCS, cvxpy.CLARABEL): problem.solve(solver=solver)
y = casadi.MX.sym("y", 3); goal = {"x": y, "f": casadi.sumsqr(y - 1), "g": casadi.sum1(y)}
solve = casadi.nlpsol("s", "ipopt", goal, {"ipopt.print_level": 0, "print_time": 0})
solve(x0=0, lbg=0, ubg=2)
"""
SURFACES = """
import vtk
sphere = vtk.vtkSphereSource(); sphere.SetThetaResolution(50)
mapper = vtk.vtkPolyDataMapper(); mapper.SetInputConnection(sphere.GetOutputPort())
mapper.Update(); solid = vtk.vtkDelaunay3D()
solid.SetInputConnection(sphere.GetOutputPort()); solid.Update()
"""
MAPS = """
import fiona, numpy as np, pyproj
from rasterio.io import MemoryFile
from rasterio.transform import from_origin
shape = {"driver": "GTiff", "height": 99, "width": 99, "count": 1, "dtype": "uint8"}
where = {"crs": "EPSG:4326", "transform": from_origin(0, 0, 1, 1)}
with MemoryFile() as memory:
    with memory.open(**shape, **where) as file: file.write(np.ones((1, 99, 99), "uint8"))
    with memory.open() as file: kept = file.read()
pyproj.Transformer.from_crs(4326, 3857).transform(12, 12)
"""
MEASUREMENTS = """
import netCDF4, numpy as np, tables
data = netCDF4.Dataset("x", mode="w", diskless=True); data.createDimension("t", 100)
data.createVariable("v", "f8", ("t",), zlib=True)[:] = np.arange(100.0)
core = {"driver": "H5FD_CORE", "driver_core_backing_store": 0}
tables.open_file("y", "w", **core).create_carray("/", "c", obj=np.ones((300, 300)))
"""
NETWORKS = """
import igraph
graph = igraph.Graph.Barabasi(500, 3); graph.community_multilevel(); graph.pagerank()
graph.layout("fr"); graph.betweenness()
"""
ALGEBRA = """
import flint, gmpy2, symengine
x, y = symengine.symbols("x y"); whole = ((x + y + 1) ** 12).expand(); whole.diff(x)
flint.fmpz_poly([1, 2, 3]) ** 30; gmpy2.mpz(3) ** 2000
kept = [flint.fmpz(7) ** i for i in range(300)]
"""
LANGUAGE = """
import spacy
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
parts = Tokenizer(models.BPE()); parts.pre_tokenizer = pre_tokenizers.Whitespace()
lines = ["hello world %d this is text" % i for i in range(2000)]
parts.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=500)); parts.encode(lines[0])
english = spacy.blank("en"); english.add_pipe("sentencizer")
kept = [english("This is number %d. And more." % i) for i in range(300)]
"""
KEYS = """
import lmdb, plyvel
from rocksdict import Rdict
small = lmdb.open("lmdb")
with small.begin(write=True) as writer:
    for i in range(1000): writer.put(b"%d" % i, b"v" * 50)
large = Rdict("rocks")
for i in range(3000): large[i] = "v%d" % i
large.flush(); level = plyvel.DB("level", create_if_missing=True)
for i in range(3000): level.put(b"%d" % i, b"x" * 99)
kept = list(level.iterator())
"""
SOURCES = """
import pycurl, pygit2, tree_sitter_python
from tree_sitter import Language, Parser
repository = pygit2.init_repository("git")
for i in range(200): repository.create_blob(b"hello %d" % i)
parser = Parser(Language(tree_sitter_python.language()))
tree = parser.parse(b"def f(x):\\n  return x\\n" * 300)
curl = pycurl.Curl(); curl.setopt(curl.URL, "file:///etc/passwd")
curl.setopt(curl.WRITEFUNCTION, lambda data: None); curl.perform()
"""
STATISTICS = """
import bottleneck, numexpr, numpy as np, pyfftw, statsmodels.api as models
x = np.random.default_rng(1).random((300, 4))
models.OLS(x[:, 0], models.add_constant(x[:, 1:])).fit().summary(); numexpr.evaluate("x * 2 + 1")
pyfftw.interfaces.numpy_fft.fft(x[:, 0]); bottleneck.move_mean(x[:, 1], 9)
"""

SCIENCE: dict[str, Scene] = {
    "tensorflow": Stack(("tensorflow-cpu",), TENSORS),
    "jax": Stack(("jax",), GRADIENTS),
    "onnxruntime": Stack(("onnxruntime", "onnx"), GRAPHS_OF_OPERATORS),
    "lightgbm": Stack(("lightgbm", "scikit-learn"), BOOSTING),
    "faiss": Stack(("faiss-cpu", "numpy"), NEIGHBOURS),
    "opencv": Stack(("opencv-python-headless", "numpy"), PICTURES),
    "av": Stack(("av", "numpy"), FILMS),
    "pygame": Stack(("pygame",), GAMES),
    "pymupdf": Stack(("pymupdf",), PAGES),
    "z3": Stack(("z3-solver",), PROOFS),
    "ortools": Stack(("ortools",), PLANS),
    "cvxpy": Stack(("cvxpy", "casadi", "highspy"), MINIMA),
    "vtk": Stack(("vtk",), SURFACES),
    "rasterio": Stack(("rasterio", "pyproj", "fiona"), MAPS),
    "netCDF4": Stack(("netCDF4", "tables"), MEASUREMENTS),
    "igraph": Stack(("igraph",), NETWORKS),
    "symengine": Stack(("symengine", "gmpy2", "python-flint"), ALGEBRA),
    "spacy": Stack(("spacy", "tokenizers"), LANGUAGE),
    "rocksdict": Stack(("lmdb", "rocksdict", "plyvel"), KEYS),
    "pygit2": Stack(("pygit2", "pycurl", "tree-sitter", "tree-sitter-python"), SOURCES),
    "statsmodels": Stack(("statsmodels", "numexpr", "bottleneck", "pyfftw"), STATISTICS),
}
