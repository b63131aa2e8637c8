"""A forecast in words."""

from mdgan.families.mdgan.algorithm import resolve_kappa
from mdgan.observe.progress import duration
from mdgan.plan.advice import Question, best_remedy
from mdgan.plan.measurement import Memory
from mdgan.plan.prediction import Forecast
from mdgan.plan.traffic import Paper

Row = tuple[str, str, str]


def in_words(question: Question, forecast: Forecast, memory: Memory, paper: Paper) -> str:
    """Everything that is known before the run.

    Args:
        question: what was asked.
        forecast: the answer.
        memory: of processes.
        paper: Table III.

    Returns:
        Lines without a last line break.
    """
    parts = [
        ("an iteration", _iteration(question, forecast)),
        ("seconds of each", _stages(question)),
        ("bytes of an iteration", _bytes(question, paper)),
        ("a swap", _swap(question, forecast, paper)),
        ("memory, without the data", _memory(question, memory)),
    ]
    lines = [_setting(question)]
    for title, rows in parts:
        lines += [
            title,
            *(f"  {name:28} {value:>12}   {note}".rstrip() for name, value, note in rows),
        ]
    return "\n".join([*lines, f"bottleneck: {_bottleneck(question, forecast)}"])


def _setting(question: Question) -> str:
    experiment, layout = question.experiment, question.layout
    kappa = resolve_kappa(experiment.kappa, layout.num_workers)
    where = "on one machine" if layout.shared else "on machines of their own"
    return (
        f"{experiment.dataset}: {layout.num_workers} worker(s) in {len(layout.hosts)} host(s) and "
        f"the server, {where} of {layout.cores} core(s); b = {experiment.batch_size}, κ = {kappa}"
    )


def _iteration(question: Question, forecast: Forecast) -> list[Row]:
    seconds, count = forecast.iteration, question.experiment.iterations
    rate = f"{1 / seconds:.3g} iterations/s"
    rows = [("all of it", _seconds(seconds), rate)]
    rows.append(("the server", _seconds(forecast.server), "its arithmetic and messages"))
    rows.append(("the workers", _seconds(forecast.workers), "theirs, the last to be ready"))
    if forecast.work:
        cores = f"everybody's work over {question.layout.cores} core(s)"
        rows.append(("the cores", _seconds(forecast.work), cores))
    if forecast.out:
        rows.append(("the server's link, out", _seconds(forecast.out), ""))
        together = "partly at the same time"
        rows.append(("the server's link, back", _seconds(forecast.back), together))
    if forecast.latency:
        rows.append(("latency", _seconds(forecast.latency), "there and back"))
    without = "without scores, pictures and checkpoints"
    return [*rows, (f"{count:,} iterations", duration(count * seconds), without)]


def _stages(question: Question) -> list[Row]:
    server, worker = question.costs.server, question.costs.worker
    hosts = len(question.layout.hosts)
    return [
        ("server: generate", _seconds(server.generate), ""),
        ("server: backward and step", _seconds(server.update), ""),
        ("server: messages", _seconds(hosts * (server.send + server.receive)), f"{hosts} hosts"),
        ("worker: real half", _seconds(worker.real_half), "while it would wait"),
        ("worker: fake half and step", _seconds(worker.learn), _local(question)),
        ("worker: feedback", _seconds(worker.feedback), ""),
        ("host: messages", _seconds(worker.receive + worker.send), ""),
    ]


def _local(question: Question) -> str:
    steps = question.experiment.local_steps
    return f"{steps} local steps with {steps - 1} more real halves" if steps > 1 else ""


def _bytes(question: Question, paper: Paper) -> list[Row]:
    out, back = question.traffic.out, question.traffic.back
    return [
        ("server sends", size(sum(out)), f"Table III: {size(paper.out_server)}, 2bdN"),
        ("server receives", size(sum(back)), f"Table III: {size(paper.back_server)}, bdN"),
        ("host receives", size(max(out)), f"Table III: {size(paper.out_worker)} a worker, 2bd"),
        ("host sends", size(max(back)), f"Table III: {size(paper.back_worker)} a worker, bd"),
    ]


def _swap(question: Question, forecast: Forecast, paper: Paper) -> list[Row]:
    rows = [
        (
            "a discriminator",
            size(question.traffic.swap),
            f"with its optimizer; Table III: {size(paper.swap)}, |θ|",
        ),
        ("time", _seconds(forecast.swap), ""),
    ]
    experiment, every = question.experiment, question.swap_every
    if every:
        rows.append(("every", f"{every:,}", "iterations, part of the time above"))
    elif experiment.swap_interval == 0:
        rows.append(("every", "never", ""))
    else:
        rows.append(
            ("every", "?", "not part of the time above; say --shard-size or --swap-interval")
        )
    return rows


def _memory(question: Question, memory: Memory) -> list[Row]:
    layout = question.layout
    own = [memory.host + (len(carried) - 1) * memory.worker for carried in layout.hosts]
    rows = [
        ("the server's process", size(memory.shared + memory.server), ""),
        ("a host's process", size(memory.shared + max(own)), f"{layout.most_carried} worker(s)"),
        ("a further worker in it", size(memory.worker), "Table II: O(|θ|)"),
    ]
    if layout.shared:
        everything = memory.shared + memory.server + sum(own)
        rows.append(("all together", size(everything), "shared libraries counted once"))
    return rows


def _bottleneck(question: Question, forecast: Forecast) -> str:
    seconds = {
        "server": ("the server's arithmetic and messages take", forecast.server),
        "workers": ("the workers' arithmetic and messages take", forecast.workers),
        "latency": ("latency takes", forecast.latency),
    }
    if forecast.bottleneck == "cores":
        what = _cores(question, forecast)
    elif forecast.bottleneck == "link":
        what = _link(question, forecast)
    else:
        text, taken = seconds[forecast.bottleneck]
        what = f"{text} {_seconds(taken)} an iteration"
    remedy = best_remedy(question, forecast)
    if remedy is None:
        return what
    text, better = remedy
    return f"{what}; with {text} an iteration would take {_seconds(better.iteration)}"


def _cores(question: Question, forecast: Forecast) -> str:
    layout, costs = question.layout, question.costs
    server = costs.server_busy.total(len(layout.hosts))
    part = 1 - server / (layout.cores * forecast.work)
    return (
        f"the {layout.cores} core(s) that everybody shares take {_seconds(forecast.work)} an "
        f"iteration, {part:.0%} of it for the workers"
    )


def _link(question: Question, forecast: Forecast) -> str:
    moved = sum(question.traffic.out) + sum(question.traffic.back)
    rate = question.link.bits_per_second / 1e6
    return (
        f"the server's link: {size(moved)} an iteration at {rate:g} Mbit/s take "
        f"{_seconds(forecast.out)} out and {_seconds(forecast.back)} back"
    )


def size(num_bytes: float) -> str:
    """Bytes for people, with powers of 1000."""
    for unit, power in (("GB", 9), ("MB", 6), ("kB", 3)):
        if num_bytes >= 10**power:
            return (
                f"{num_bytes / 10**power:.3g} {unit}"
                if num_bytes < 999.5 * 10**power
                else (f"{num_bytes / 10**power:,.0f} {unit}")
            )
    return f"{num_bytes:.0f} B"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"
