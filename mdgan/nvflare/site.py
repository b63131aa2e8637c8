"""A site's part of a job: runs `mdgan join` with the site's file, over the tunnel to the server."""

import time
from contextlib import closing

from nvflare.apis.executor import Executor
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import ReturnCode, Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.fuel.f3.cellnet.fqcn import FQCN

from mdgan.errors import BadInput
from mdgan.launch.claim import STOPPED_BY
from mdgan.launch.minder import Minder
from mdgan.nvflare.cells import follow, relay_over, site_and_job
from mdgan.spelling import flag

_MOST_STARTS = 10  # how often a killed worker is started, the first start included
_PAUSE_SECONDS = 1.0


class JobSite(Executor):
    """The executor that NVFlare loads and runs at each site."""

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """Takes part until training ends; the reply has the reason if the site failed."""
        del task_name, shareable
        try:
            why = self._take_part(fl_ctx, abort_signal)
        except BadInput as error:
            why = error.told_elsewhere
        except OSError as error:
            why = error.strerror or "an error of its disk"
        if why:
            self.log_error(fl_ctx, why, fire_event=False)
        reply = make_reply(ReturnCode.OK)
        reply["why"] = why
        return reply

    def _take_part(self, context: FLContext, aborted: Signal) -> str:
        """Runs mdgan, whose lines go into a file: NVFlare sends its own log to the server."""
        site, job = site_and_job(context)
        log = site.runs / f"{job.digest:.16}.log"
        self.log_info(context, f"the lines of mdgan are in {log.name}", fire_event=False)
        relay = relay_over(context)
        port = relay.listen(FQCN.join([FQCN.ROOT_SERVER, context.get_job_id()]))
        command = ["join", "--site", str(site.path), "--master-port", str(port)]
        command += ["--log-file", str(log)]
        for name, path in job.files().items():
            if name not in site.settings:
                command += [str(flag(name)), path]
        with closing(relay):
            for _ in range(_MOST_STARTS):
                minder = Minder()
                minder.run(command, str(site.runs))
                status, _ = follow(minder, aborted)
                # Below 0: that process was killed. Above 128: the process of its rank.
                if aborted.triggered or 0 <= status <= 128 or status in STOPPED_BY:
                    break
                time.sleep(_PAUSE_SECONDS)
        why = f"mdgan ended with status {status}; {log.name} at that site says why"
        return "" if status == 0 or aborted.triggered else why
