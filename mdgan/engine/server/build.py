"""Puts a server together."""

from functools import partial

from mdgan.credentials.identity import Identity
from mdgan.data.fetching import Fetcher
from mdgan.engine.answers import ANSWERS
from mdgan.engine.parts import ServerPart
from mdgan.engine.server.arrivals import Arrivals
from mdgan.engine.server.attendance import Attendance
from mdgan.engine.server.barrier import Barrier, Deadline
from mdgan.engine.server.checkpoints import ServerCheckpoints
from mdgan.engine.server.conduct import Conduct
from mdgan.engine.server.desk import Desk
from mdgan.engine.server.engine import Engine
from mdgan.engine.server.inbox import AnswerInbox
from mdgan.engine.server.intake import Intake
from mdgan.engine.server.loop import Server
from mdgan.engine.server.membership import Membership
from mdgan.engine.server.newcomers import Newcomers
from mdgan.engine.server.reception import Reception
from mdgan.engine.server.scoring import Scoring
from mdgan.engine.server.screening import LEAST_VOTES, Screening
from mdgan.engine.server.secure_sums import lacking_for_sums
from mdgan.engine.server.timelines import Timelines
from mdgan.engine.settings import RunSettings
from mdgan.gan.average import GeneratorAverage
from mdgan.messages import Kind, Message
from mdgan.observe.run_observer import RunObserver
from mdgan.timeouts import Timeouts
from mdgan.transport.server_end import ServerTransport


def build_server(
    part: ServerPart,
    settings: RunSettings,
    transport: ServerTransport,
    members: Membership,
    checkpoints: ServerCheckpoints,
    scoring: Scoring,
    observer: RunObserver,
    timeouts: Timeouts,
    average: GeneratorAverage | None = None,
    fetcher: Fetcher | None = None,
    trusts: Identity | None = None,
) -> Server:
    """A server that is ready to run.

    Args:
        part: the algorithm's share.
        settings: of the run.
        transport: the server's end.
        members: the hosts and workers that take part; its `admit` decides on newcomers.
        checkpoints: of the run.
        scoring: gets generators to score.
        observer: records the run.
        timeouts: the time limits.
        average: of the generator; None if there is none.
        fetcher: reads samples ahead, if the server's part has the data itself.
        trusts: which certificates sign the keys of hosts; None without certificates.
    """
    attendance = Attendance(members, observer, counts_answers=not _hides_clients(settings))
    conduct = Conduct(settings.faults.strikes)
    desk = Desk(transport, members, attendance, observer, checkpoints.check_fence, conduct)
    barrier, arrivals = _waiting(
        part, settings, transport, members, desk, conduct, attendance, observer, timeouts
    )
    engine = Engine(
        *(transport, members, desk, conduct, barrier, arrivals, checkpoints, observer),
        *(dict, lambda: None),
    )
    newcomers = Newcomers(
        *(transport, members, checkpoints, observer, part.copied, desk.dismiss, conduct.excuse),
        trusts,
    )
    scoring.attach(members, observer)
    desk.handlers |= {
        Kind.SPANS: Timelines(members, observer, settings.training.iterations).note,
        Kind.READY: newcomers.ready,
        Kind.STATE: partial(_note_state, newcomers, checkpoints),
        Kind.CHECKPOINTED: checkpoints.note,
        Kind.REAL: scoring.note_real,
        **{kind: partial(handler, engine) for kind, handler in part.handlers().items()},
    }
    of_part = partial(part.settle, engine)
    topics = (checkpoints, scoring, newcomers)
    desk.settling += [attendance.settle, of_part, *(topic.settle for topic in topics)]
    desk.after_each = newcomers.tend
    return Server(part, engine, attendance, scoring, settings, timeouts, average, fetcher)


def _hides_clients(settings: RunSettings) -> bool:
    """Whether noise hides each client as a whole, which must not be named then."""
    return settings.privacy.hides_clients and settings.privacy.keeps_ledger


def _waiting(
    part: ServerPart,
    settings: RunSettings,
    transport: ServerTransport,
    members: Membership,
    desk: Desk,
    conduct: Conduct,
    attendance: Attendance,
    observer: RunObserver,
    timeouts: Timeouts,
) -> tuple[Barrier, Arrivals]:
    """The two ways to wait for answers."""
    of_the_start = range(1, settings.num_workers + 1)
    voters = of_the_start if len(of_the_start) >= LEAST_VOTES else None
    screenings = [Screening(form, conduct, voters) for form in part.forms]
    kinds = [form.kind for form in part.forms]
    kinds += [ANSWERS] if len(kinds) > 1 else []
    inbox = AnswerInbox(transport, members, desk, kinds)
    desk.settling.append(inbox.settle)
    intake = Intake(screenings, members, desk, attendance, part.device)
    reception = Reception(
        inbox, intake, members, desk, attendance, observer.tracer, timeouts.answer
    )
    barrier = Barrier(
        reception,
        transport,
        Deadline(settings.faults.deadline, settings.faults.quorum),
        counts_busy=part.counts_busy,
        lacking=partial(lacking_for_sums, part, members) if part.form.steps else part.lacking,
    )
    return barrier, Arrivals(reception, barrier)


def _note_state(
    newcomers: Newcomers, checkpoints: ServerCheckpoints, host: int, message: Message
) -> None:
    copied = message.fields["purpose"] == "copy"
    (newcomers.pass_on if copied else checkpoints.note_states)(host, message)
