"""Worker processes of a study: one thread each, killed without loss, gone when their parent is gone."""

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import connection, resource_tracker
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from labelzoo.acquisition.catalogue import _EXTRA, catalogue, register_acquisition
from labelzoo.acquisition.problem import Acquisition
from labelzoo.data import LabelData
from labelzoo.study import database
from labelzoo.study.plan import Plan
from labelzoo.study.sqlite_file import StudyNotWritten
from labelzoo.study.validity import StudyMismatch
from labelzoo.whole_file import named_errors

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}
"""Processes share the cores; and sums over one thread do not depend on how many there are."""
DIED = "its worker process died (out of memory, or killed)"

Cell = tuple[str, int]
_worker: dict[str, Any] = {}


def run_cells(
    plan: Plan,
    data: LabelData,
    out: Path,
    cells: Sequence[Cell],
    processes: int,
    tick: Callable[[], None] | None = None,
) -> None:
    """Run cells, each round written as soon as it is done; errors of a cell are recorded, not raised.

    Where a worker dies, the cells that it took along are run once more, one after another; one that kills
    its worker again is recorded as failed.

    Raises
    ------
    StudyMismatch, StudyNotWritten
        If the database cannot be written; the workers are ended.

    Parameters
    ----------
    tick : callable
        Called about twice a second.
    """
    arguments = (plan, data, out, users_functions(plan))
    for cell in _run_pool(arguments, cells, processes, tick):
        if _run_pool(arguments, [cell], 1, tick):
            database.write_failed(out, plan, *cell, DIED)


def users_functions(plan: Plan) -> tuple[Acquisition, ...]:
    """Return the acquisition functions that the caller registered: a new process does not know them.

    Raises
    ------
    ValueError
        If one cannot be sent to another process.
    """
    own = tuple(entry for name, entry in _EXTRA.items() if name in plan.acquire)
    for entry in own:
        try:
            pickle.dumps(entry)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ValueError(
                f"acquire: {entry.name} cannot run in another process ({error}); define its functions at the "
                "top of a module"
            ) from error
    return own


def _run_pool(
    arguments: tuple[Plan, LabelData, Path, tuple[Acquisition, ...]],
    cells: Sequence[Cell],
    processes: int,
    tick: Callable[[], None] | None,
) -> list[Cell]:
    """Run cells in one pool and return those that were lost because a worker died."""
    lost: list[Cell] = []
    before = {child.pid for child in multiprocessing.active_children()}
    context = multiprocessing.get_context("spawn")
    started = context.Event()
    with _environment(ONE_THREAD), _in_a_file(arguments) as path:
        pool = ProcessPoolExecutor(min(processes, len(cells)), context, _start_worker, (path, started))
        try:
            with _no_interrupt_for_children(), _no_script_for_children(arguments[3]):
                waiting: dict[Future[None], Cell] = {pool.submit(_work, *cell): cell for cell in cells}
            while waiting:
                finished, _ = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
                lost += [cell for cell in map(_lost_cell, finished, map(waiting.pop, finished)) if cell]
                if tick is not None:
                    tick()
        except BaseException:
            for child in multiprocessing.active_children():
                if child.pid not in before:
                    child.kill()  # between two statements or within one: the database takes it
            pool.shutdown(cancel_futures=True)
            del pool, started  # with their semaphores: a second signal would leave those to be warned of
            raise
        pool.shutdown()
    if lost and not started.is_set():
        raise RuntimeError(
            "worker processes could not start: they run your script anew to find its acquisition functions; "
            "put what it does under `if __name__ == '__main__':`, or define the functions in a module"
        )
    return sorted(lost, key=list(cells).index)


def _lost_cell(future: Future[None], cell: Cell) -> Cell | None:
    try:
        future.result()
    except BrokenProcessPool:
        return cell
    return None


@contextmanager
def _in_a_file(values: Any) -> Iterator[Path]:
    """Yield a file that holds `values`: a child that ends at once leaves its parent writing to a pipe."""
    with TemporaryDirectory(prefix="labelzoo-") as folder:
        path = Path(folder) / "arguments.pickle"
        with named_errors(path):
            path.write_bytes(pickle.dumps(values))
        yield path


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _no_interrupt_for_children() -> Iterator[None]:
    """Start children with Ctrl-C blocked: the parent alone answers it, without a traceback of each child."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # it would lift the mask
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _no_script_for_children(own: Sequence[Acquisition]) -> Iterator[None]:
    """Start children that do not run the caller's script anew, unless functions are defined there."""
    main = sys.modules["__main__"]
    spec, path = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if any(b"__main__" in pickle.dumps(entry) for entry in own):
        yield
        return
    main.__spec__, main.__file__ = None, None
    try:
        yield
    finally:
        main.__spec__, main.__file__ = spec, path
        if path is None:
            del main.__file__


def _start_worker(path: Path, started: Any) -> None:
    started.set()
    plan, data, out, own = pickle.loads(path.read_bytes())
    _worker.update(plan=plan, data=data, out=out)
    known = catalogue()
    register_acquisition(*(entry for entry in own if entry.name not in known))  # those of a user
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when its parent has ended, however that happened."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _work(acquire: str, seed: int) -> None:
    """Run one cell, a transaction a round."""
    from labelzoo.study.cell import NotRun, Setting, run_cell

    plan, out = _worker["plan"], _worker["out"]
    try:
        for (name, other), reason in database.read_skipped(out).items():
            if name == acquire and reason.startswith("not run: cost"):
                raise NotRun(f"not run: cost, as with seed {other}")
        setting = Setting(plan, _worker["data"], acquire, seed)
        for row in run_cell(setting, database.read_rounds(out, acquire, seed)):
            database.write_round(out, plan, row)
    except NotRun as reason:
        database.write_skipped(out, plan, acquire, seed, str(reason))
    except (StudyMismatch, StudyNotWritten):
        raise  # no fault of this function: the study stops
    except Exception as error:
        database.write_failed(out, plan, acquire, seed, described(error))


def described(error: Exception) -> str:
    """Return an error in one line, with the place where it was raised."""
    words = " ".join(str(error).split()) or "no message"
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {words}{place}"
