"""Sums of answers of which the server sees no part (Bonawitz et al. 2017): it asks, and unmasks.

Where a host drops out, its masks are missing in the sums of the others. So the server asks those
that are left again, and they send the same answers with new masks. It does so only once the link to
the host that dropped out has ended: were that host's answer to come after all, it would complete
the first sums, and both sums together would tell what it has answered. For the same reason it asks
again for those sums alone of which an answer is missing: a host may answer and drop out then.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from mdgan.engine.answers import AnswerForm, Answers
from mdgan.engine.masked_answers import LOSS_STEPS, NUM_LOSSES, SumQuestion
from mdgan.engine.pairwise_masks import unmasked
from mdgan.engine.parts import ServerPart
from mdgan.engine.secure_settings import LEAST_PARTIES
from mdgan.engine.server.barrier import Hosts
from mdgan.engine.server.desk import in_words
from mdgan.engine.server.engine import Engine
from mdgan.engine.server.loop import AllWorkersLost
from mdgan.engine.server.membership import Membership
from mdgan.errors import BadInput
from mdgan.gan.exact_sum import PartialSum
from mdgan.messages import Kind, Message

_MOST_VAIN = 3


@dataclass(frozen=True)
class SumsAsked:
    """What hosts were asked for.

    Attributes:
        hosts: each with its workers.
        groups: by worker, the sum that its answer belongs to.
        question: says which hosts take part in which sum.
    """

    hosts: Hosts
    groups: Mapping[int, int]
    question: SumQuestion


def check_hosts(members: Membership, form: AnswerForm) -> None:
    """Checks that a run begins with enough hosts.

    Raises:
        BadInput: a sum would tell what a host has answered.
    """
    num_hosts = len(members.hosts())
    if form.steps and num_hosts < LEAST_PARTIES:
        raise BadInput(
            f"--secure-aggregation: the workers are on {num_hosts} host(s), and a sum takes "
            f"{LEAST_PARTIES}; use --workers-per-host 1, or more machines"
        )


def sums_to_ask(engine: Engine, hosts: Hosts, groups: Mapping[int, int]) -> SumsAsked:
    """Which sums hosts can be asked for, in a question of its own.

    Args:
        engine: counts questions, and knows the hosts' keys.
        hosts: each with its workers.
        groups: by worker, the sum that its answer belongs to; those of which fewer than
            `LEAST_PARTIES` hosts have a part are not asked for.
    """
    parties: dict[int, list[int]] = {}
    for host, workers in sorted(hosts.items()):
        for group in sorted({groups[worker] for worker in workers}):
            parties.setdefault(group, []).append(host)
    enough = {group: each for group, each in parties.items() if len(each) >= LEAST_PARTIES}
    asked = {host: hosts[host] for host in sorted({h for each in enough.values() for h in each})}
    keys = {host: member.sums_key for host in asked if (member := engine.members.member(host))}
    engine.num_sum_questions += 1
    return SumsAsked(asked, groups, SumQuestion(engine.num_sum_questions, enough, keys))


def collect_sums(engine: Engine, iteration: int, asked: SumsAsked, form: AnswerForm) -> Answers:
    """Waits for sums that hosts were asked for, and asks again where hosts drop out.

    Args:
        engine: asks hosts, and waits for them.
        iteration: i.
        asked: `engine.ask` has told the hosts.
        form: how they answer.

    Returns:
        A sum of all workers of each group, and their losses: the mean of the group. Empty if too
        few hosts are left, or if no sum makes sense.

    Raises:
        AllWorkersLost: there was no sum several times in a row.
    """
    found = Answers()
    while asked.hosts:
        masked = engine.barrier.collect(iteration, asked.hosts).masked
        _add_whole(found, asked, masked, form, engine)
        asked = sums_to_ask(engine, _left(asked, masked, engine.members), asked.groups)
        if not asked.hosts:
            break
        again = Message(Kind.AGAIN, iteration, {"sums": asked.question.fields()})
        engine.ask(iteration, asked.hosts, partial(_to_each, again))
    engine.vain_sums = 0 if found.sums else engine.vain_sums + 1
    if engine.vain_sums == _MOST_VAIN:
        raise AllWorkersLost(
            f"{_MOST_VAIN} times in a row there was no sum: fewer than {LEAST_PARTIES} hosts took "
            "part, or one does not mask its answers as agreed, and sums do not tell which"
        )
    return found


def _to_each(message: Message, _host: int) -> Message:
    return message


def lacking_for_sums(part: ServerPart, members: Membership, workers: Collection[int]) -> str:
    """As `ServerPart.lacking`, where a sum takes several hosts."""
    gone, host_of = part.lacking(workers), members.host_of()
    num_hosts = len({host_of.get(worker, worker) for worker in workers})
    return gone or ("" if num_hosts >= LEAST_PARTIES else f"all but {num_hosts} host(s)")


Masked = Mapping[int, Mapping[int, Tensor]]
"""What hosts have answered, by host and sum."""


def _is_whole(asked: SumsAsked, masked: Masked, group: int) -> bool:
    """Whether all hosts of a sum have answered."""
    return masked.keys() >= set(asked.question.parties[group])


def _left(asked: SumsAsked, masked: Masked, members: Membership) -> Hosts:
    """The hosts that are left of sums that are not whole, with their workers in these."""
    lacking = {group for group in asked.question.parties if not _is_whole(asked, masked, group)}
    workers = {
        host: [worker for worker in asked.hosts[host] if asked.groups[worker] in lacking]
        for host in masked
        if members.member(host)
    }
    return {host: own for host, own in workers.items() if own}


def _add_whole(
    found: Answers, asked: SumsAsked, masked: Masked, form: AnswerForm, engine: Engine
) -> None:
    """Adds the sums that all of their hosts have answered."""
    for group, parties in asked.question.parties.items():
        if not _is_whole(asked, masked, group):
            continue
        found.hosts.update(parties)
        workers = [n for host in parties for n in asked.hosts[host] if asked.groups[n] == group]
        addends = {host: masked[host][group] for host in parties if group in masked[host]}
        total = unmasked(addends) if len(addends) == len(parties) else None
        if total is None or not _makes_sense(total, form, len(workers)):
            if tuple(workers) not in engine.senseless_sums:
                engine.senseless_sums.add(tuple(workers))
                engine.observer.note(
                    f"the sum of rank(s) {in_words(workers)} makes no sense: one of them does not "
                    "mask its answers as agreed; as long as that is so, training goes on without"
                )
            continue
        answer = total[:-NUM_LOSSES].view(form.shape).double() / form.steps
        found.sums.append(PartialSum(tuple(workers), answer))
        mean = (total[-NUM_LOSSES:].double() / LOSS_STEPS / len(workers)).float()
        found.losses.update(dict.fromkeys(workers, mean))


def _makes_sense(total: Tensor, form: AnswerForm, num_workers: int) -> bool:
    """Whether each worker's part can have been below the form's limit."""
    answer = total[:-NUM_LOSSES].double() / form.steps
    return bool(answer.abs().max() <= form.most * num_workers)
