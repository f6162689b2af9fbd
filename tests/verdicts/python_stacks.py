"""Packages of PyPI with native code, made to work in an interpreter of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from idle_programs import Processes, Scene, Stage, Waiting
from provisions import python_with

UP = "\nprint('up', flush=True)\ninput()\n"

NUMERIC = """
import numpy as np, pandas as pd
from scipy import linalg, optimize, sparse
rng = np.random.default_rng(7)
a = rng.normal(size=(200, 200)); linalg.svd(a); linalg.solve(a, a[0])
optimize.minimize(lambda x: ((x - 3) ** 2).sum(), np.zeros(4))
(sparse.random(300, 300, 0.01) @ sparse.eye(300)).tocsr().sum()
frame = pd.DataFrame({"k": rng.integers(0, 50, 5000), "s": ["v%d" % i for i in range(5000)]})
groups = frame.groupby("k").agg({"s": "count"}).merge(frame, on="k").to_csv()
"""
MARKUP = """
import io
from lxml import etree, html
from PIL import Image, ImageDraw, ImageFilter
root = etree.fromstring("<r>" + "".join("<a i='%d'>t</a>" % i for i in range(2000)) + "</r>")
root.xpath("//a[@i > 100]"); kept = html.fromstring("<p>hello <b>there</b>")
rules = "http://www.w3.org/1999/XSL/Transform"
sheet = "<x:stylesheet version='1.0' xmlns:x='%s'><x:template match='a'/></x:stylesheet>" % rules
done = etree.XSLT(etree.XML(sheet))(root)
image = Image.new("RGB", (400, 300), "red"); ImageDraw.Draw(image).text((9, 9), "hello")
for kind in ("PNG", "JPEG", "WEBP", "TIFF", "GIF"):
    out = io.BytesIO(); image.filter(ImageFilter.BLUR).resize((99, 99)).save(out, kind)
    Image.open(io.BytesIO(out.getvalue())).load()
"""
ORM = """
from sqlalchemy import ForeignKey, create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship
class Base(DeclarativeBase): pass
class Owner(Base):
    __tablename__ = "owner"
    id: Mapped[int] = mapped_column(primary_key=True)
    things: Mapped[list["Thing"]] = relationship()
class Thing(Base):
    __tablename__ = "thing"
    id: Mapped[int] = mapped_column(primary_key=True)
    owner: Mapped[int] = mapped_column(ForeignKey("owner.id"))
engine = create_engine("sqlite://"); Base.metadata.create_all(engine)
session = Session(engine)
session.add_all(Owner(things=[Thing(), Thing()]) for _ in range(500)); session.commit()
found = session.scalars(select(Owner).join(Thing).where(Thing.id < 200)).all()
"""
ASYNC = """
import asyncio, uvloop
from aiohttp import ClientSession, web
async def answer(request): return web.json_response({"said": await request.json()})
async def serve():
    application = web.Application(); application.router.add_post("/", answer)
    runner = web.AppRunner(application); await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0); await site.start()
    port = site._server.sockets[0].getsockname()[1]
    async with ClientSession() as client:
        async def ask(i):
            async with client.post("http://127.0.0.1:%d/" % port, json={"i": i}) as said:
                return await said.json()
        for part in range(10): await asyncio.gather(*(ask(i) for i in range(50)))
    return runner
loop = uvloop.new_event_loop(); asyncio.set_event_loop(loop)
runner = loop.run_until_complete(serve())
"""
GRPC = """
from concurrent import futures
import grpc
def echo(request, context): return request
handler = grpc.method_handlers_generic_handler(
    "t.Echo", {"Say": grpc.unary_unary_rpc_method_handler(echo)})
server = grpc.server(futures.ThreadPoolExecutor(4)); server.add_generic_rpc_handlers([handler])
port = server.add_insecure_port("127.0.0.1:0"); server.start()
channel = grpc.insecure_channel("127.0.0.1:%d" % port); say = channel.unary_unary("/t.Echo/Say")
for i in range(300): assert say(b"x" * i) == b"x" * i
"""
PLOTS = """
import io, matplotlib
matplotlib.use("agg")
import numpy as np
from matplotlib import pyplot
for kind in ("png", "svg", "pdf"):
    figure, axes = pyplot.subplots(2, 2)
    axes[0, 0].plot(np.sin(np.arange(300) / 9), label="a$_2$"); axes[0, 0].legend()
    axes[0, 1].hist(np.random.rand(999)); axes[1, 0].contourf(np.random.rand(20, 20))
    axes[1, 1].text(0.1, 0.1, "hello"); figure.savefig(io.BytesIO(), format=kind)
    pyplot.close(figure)
"""
LEARNING = """
import numpy as np
from sklearn import cluster, ensemble, linear_model, svm
x = np.random.default_rng(1).normal(size=(400, 8)); y = (x[:, 0] + x[:, 1] > 0).astype(int)
models = [ensemble.RandomForestClassifier(20, n_jobs=2), linear_model.LogisticRegression(),
          svm.SVC(), ensemble.HistGradientBoostingClassifier(max_iter=10)]
for model in models: model.fit(x, y).predict(x)
cluster.KMeans(4, n_init=2).fit(x)
"""
SECRETS = """
from cffi import FFI
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
box = Fernet(Fernet.generate_key()); assert box.decrypt(box.encrypt(b"x" * 999))
key = rsa.generate_private_key(65537, 2048)
signed = key.sign(b"x", padding.PKCS1v15(), hashes.SHA256())
ec.generate_private_key(ec.SECP256R1()).public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
ffi = FFI(); ffi.cdef("size_t strlen(const char *); struct p { int x; struct p *next; };")
libc = ffi.dlopen(None); kept = [ffi.new("struct p *", {"x": i}) for i in range(500)]
assert libc.strlen(b"hello") == 5; call = ffi.callback("int(int)", lambda x: x + 1)
"""
MODELS = """
import orjson, msgpack, yaml
from pydantic import BaseModel, TypeAdapter, ValidationError
class Part(BaseModel): name: str; count: int = 0
class Whole(BaseModel): parts: list[Part]; extra: dict[str, float] | None = None
text = orjson.dumps({"parts": [{"name": "p%d" % i, "count": i} for i in range(2000)]})
whole = Whole.model_validate_json(text); TypeAdapter(list[Part]).validate_python(whole.parts)
try: Whole.model_validate({"parts": [{"name": 3}]})
except ValidationError as error: str(error)
data = orjson.loads(text); assert msgpack.unpackb(msgpack.packb(data)) == data
yaml.load(yaml.dump(data["parts"][:100], Dumper=yaml.CDumper), yaml.CLoader)
"""
QUEUES = """
import threading, zmq, gevent
from gevent import queue
context = zmq.Context(); server = context.socket(zmq.REP)
port = server.bind_to_random_port("tcp://127.0.0.1")
def serve():
    for _ in range(300): server.send(server.recv())
thread = threading.Thread(target=serve); thread.start()
client = context.socket(zmq.REQ); client.connect("tcp://127.0.0.1:%d" % port)
for i in range(300):
    client.send(b"x" * i); assert client.recv() == b"x" * i
thread.join(); items = queue.Queue()
gevent.joinall([gevent.spawn(items.put, i) for i in range(500)])
"""
ARRAYS = """
import os, h5py, numpy as np
from shapely import STRtree, geometry, unary_union
with h5py.File("a.h5", "w") as file:
    for i in range(50): file.create_dataset("g%d/d" % i, data=np.arange(999), compression="gzip")
    file["g1"].attrs["k"] = "v"
kept = h5py.File("a.h5"); [kept["g%d/d" % i][:] for i in range(50)]
shapes = [geometry.Point(i, i % 7).buffer(2) for i in range(200)]
tree = STRtree(shapes); tree.query(geometry.box(3, 3, 9, 9)); whole = unary_union(shapes)
"""
COLUMNS = """
import duckdb, polars, pyarrow as pa, pyarrow.compute as pc
words = pa.table({"k": [i % 50 for i in range(9999)], "s": ["v%d" % i for i in range(9999)]})
pc.sum(words["k"]); words.group_by("k").aggregate([("s", "count")])
base = duckdb.connect(); found = base.execute("select k, count(*) from words group by k").fetchall()
frame = polars.from_arrow(words).lazy().group_by("k").agg(polars.col("s").len()).collect()
"""
ARCHIVES = """
import libarchive
with libarchive.file_writer("a.tar.gz", "gnutar", "gzip") as archive:
    archive.add_files('/etc/passwd')
"""
COMPILED = """
import numba, numpy as np
@numba.njit
def total(a):
    s = 0.0
    for x in a: s += x * x
    return s
assert total(np.arange(9.0)) and total(np.arange(9)); kept = total.overloads
"""


@dataclass(frozen=True)
class Stack:
    """An interpreter with some packages, that does some work."""

    packages: tuple[str, ...]
    work: str

    @contextmanager
    def __call__(self, stage: Stage) -> Iterator[Processes]:
        python = python_with(*self.packages)
        with Waiting("python3", (python, "-c", self.work + UP))(stage) as processes:
            (pid,) = processes.values()
            yield {"python: " + " ".join(self.packages): pid}


STACKS: dict[str, Scene] = {
    "numpy stack": Stack(("numpy", "scipy", "pandas"), NUMERIC),
    "lxml": Stack(("lxml", "pillow"), MARKUP),
    "sqlalchemy": Stack(("sqlalchemy", "greenlet"), ORM),
    "aiohttp": Stack(("aiohttp", "uvloop"), ASYNC),
    "grpcio": Stack(("grpcio",), GRPC),
    "matplotlib": Stack(("matplotlib",), PLOTS),
    "scikit-learn": Stack(("scikit-learn",), LEARNING),
    "cffi": Stack(("cffi", "cryptography"), SECRETS),
    "pydantic": Stack(("pydantic", "orjson", "msgpack", "pyyaml"), MODELS),
    "pyzmq": Stack(("pyzmq", "gevent"), QUEUES),
    "h5py": Stack(("h5py", "shapely"), ARRAYS),
    "columns": Stack(("duckdb", "polars", "pyarrow"), COLUMNS),
    "libarchive-c": Stack(("libarchive-c",), ARCHIVES),
    "numba": Stack(("numba",), COMPILED),
}
