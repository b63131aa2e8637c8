"""The server's part of a job: runs rank 0, and passes its lines and scores on to NVFlare."""

import json
import queue
import shutil
import socket
from contextlib import closing, suppress
from math import isfinite
from pathlib import Path

from nvflare.apis.analytix import ANALYTIC_EVENT_TYPE, AnalyticsDataType
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.apis.utils.analytix_utils import create_analytic_dxo, send_analytic_dxo

from mdgan.errors import BadInput
from mdgan.launch.minder import Minder
from mdgan.nvflare.cells import follow, relay_over, site_and_job
from mdgan.nvflare.study import TASK
from mdgan.records.row_reader import METRICS, RunTail
from mdgan.records.rows import Losses, RecordedRow, ScoresRow
from mdgan.records.run_directory import RunDirectory
from mdgan.records.run_state import typed_row

_LOOPBACK = "127.0.0.1"
_PRIVATE = ("checkpoints", "canaries", "audit-log.jsonl", "audit*", "real.safetensors", "known")
"""Files of a run that are not copied into the job's results."""


class JobServer(Controller):
    """The controller that NVFlare loads and runs at the job's server."""

    def __init__(self) -> None:
        super().__init__()
        self._refusals: queue.SimpleQueue[str] = queue.SimpleQueue()

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Does nothing, as `control_flow` does all the work."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Does nothing, as `control_flow` ends what it has started."""

    def process_result_of_unknown_task(self, *result: object, **more: object) -> None:
        """Does nothing, as there is only one task."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Trains, then copies the results; an error of the user's is one line in the job's log."""
        try:
            folder = self._train(abort_signal, fl_ctx)
            if not abort_signal.triggered:
                self._copy_results(folder, fl_ctx)
        except (BadInput, OSError) as error:
            self.system_panic(" ".join(str(error).split()), fl_ctx)

    def _train(self, aborted: Signal, context: FLContext) -> Path:
        (site, job), num_sites = site_and_job(context), len(context.get_engine().get_clients())
        workers = job.run.num_workers
        if num_sites != workers:
            what = f"the study has {workers} workers, and {num_sites} sites take part"
            raise BadInput(what, way_out="start one site for each worker, or deploy to so many")
        folder = site.runs / f"{job.run.data.dataset}-{job.digest:.16}"
        settings = {**job.settings(), **site.settings}
        port, tail, minder = _free_port(), RunTail(folder), Minder()
        place = f"{_LOOPBACK}:{port}"
        flags = ["--ranks", "0", "--listen", place, "--resume-or-start", str(folder)]
        relay = relay_over(context, (_LOOPBACK, port))
        minder.start(flags, str(site.runs), json.dumps(settings))
        task = Task(TASK, Shareable(), result_received_cb=self._take_reply)
        self.broadcast(task, context, min_responses=workers)
        with closing(relay):
            status, last = follow(
                minder,
                aborted,
                tell=lambda line: self.log_info(context, line),
                look=lambda: self._track_new_rows(folder, tail, context),
            )
        if status != 0 and not aborted.triggered:
            last = f"mdgan train ended with status {status}: {last}"
            raise BadInput(last if self._refusals.empty() else self._refusals.get())
        return folder

    def _take_reply(self, client_task: ClientTask, fl_ctx: FLContext) -> None:
        """Takes a site's reply; logs the reason why the site failed, if the reply has one."""
        result = client_task.result
        if why := result.get("why") if isinstance(result, Shareable) else "said nothing":
            line = f"{client_task.client.name}: {' '.join(str(why).split()):.500}"
            self._refusals.put(line)
            self.log_error(fl_ctx, line, fire_event=False)

    def _track_new_rows(self, folder: Path, tail: RunTail, context: FLContext) -> bool:
        """Sends new rows to NVFlare's trackers; returns whether a site failed before the start."""
        for update in tail.read():
            for record in update.records if update.name == METRICS else ():
                with suppress(ValueError):
                    self._track(typed_row(record), context)
        is_beginning = _state(folder) in ("", "starting")
        return is_beginning and not self._refusals.empty()

    def _track(self, row: RecordedRow, context: FLContext) -> None:
        values: dict[str, float | None] = {}
        match row:
            case Losses():
                values = {f"loss/{name}": loss for name, loss in row.both.items()}
            case ScoresRow():
                values = {f"scores/{name}": value for name, value in row.scores.items()}
        kind, step = AnalyticsDataType.SCALAR, row.iteration
        for name, value in values.items():
            if value is not None and isfinite(value):
                point = create_analytic_dxo(name, value, kind, global_step=step)
                send_analytic_dxo(self, point, context, ANALYTIC_EVENT_TYPE)

    def _copy_results(self, folder: Path, context: FLContext) -> None:
        """Writes report and bundle, and copies the run to where `nvflare job download` looks."""
        results = Path(context.get_engine().get_workspace().get_run_dir(context.get_job_id()))
        for command in (["report", "."], ["release", ".", "-o", str(results / "mdgan-bundle")]):
            minder = Minder()
            minder.run(command, str(folder))
            follow(minder, Signal(), lambda line: self.log_info(context, line))
        shutil.copytree(folder, results / "mdgan", ignore=shutil.ignore_patterns(*_PRIVATE))


def _state(folder: Path) -> str:
    with suppress(BadInput, OSError):
        return str(RunDirectory.open(folder).read_status().get("state", ""))
    return ""


def _free_port() -> int:
    with socket.create_server((_LOOPBACK, 0)) as probe:
        return int(probe.getsockname()[1])
