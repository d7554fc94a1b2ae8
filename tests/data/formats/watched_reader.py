"""Reads data sets, one after the other, each in a process of its own whose peak of memory is measured.

A line in (`NAME ROOT`) gives a line out: JSON with the exit code of `scapegoat data check NAME --root ROOT`, what it
printed, and by how many bytes its memory grew at the most. A child that hangs is ended, and one that would fill the
machine cannot.
"""

import contextlib
import io
import json
import os
import resource
import signal
import sys
import traceback

import psutil


def growth(before):
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    return peak * 1024 - before


def read(name, root):
    from scapegoat.cli import main

    memory = psutil.Process().memory_info()
    resource.setrlimit(resource.RLIMIT_AS, (memory.vms + (3 << 30), resource.RLIM_INFINITY))
    signal.alarm(60)
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(["data", "check", name, "--root", root])
        except SystemExit as stop:
            code = stop.code or 0
        except BaseException:
            code = "traceback"
            traceback.print_exc()
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()[-2000:], "grown": growth(memory.rss)}


def serve():
    import PIL.Image
    import pyarrow.parquet

    from scapegoat.data import registry
    from scapegoat.data.files import inventory

    del PIL, pyarrow, inventory
    registry.load()
    for line in sys.stdin:
        receive, send = os.pipe()
        child = os.fork()
        if child == 0:
            with os.fdopen(send, "w") as stream:
                stream.write(json.dumps(read(*line.rstrip("\n").split("\t"))))
            os._exit(0)
        os.close(send)
        with os.fdopen(receive) as stream:
            answer = stream.read()
        _, status = os.waitpid(child, 0)
        died = {"code": f"ended by signal {status}", "out": "", "err": "", "grown": 0}
        print(answer or json.dumps(died), flush=True)


if __name__ == "__main__":
    serve()
