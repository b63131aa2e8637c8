"""Finds what hosts that have just joined lack, while training goes on."""

from collections.abc import Mapping

from torch import Tensor

from mdgan import messages
from mdgan.engine.server.checkpoints import ServerCheckpoints
from mdgan.engine.server.desk import in_words
from mdgan.engine.server.membership import Membership
from mdgan.gan.model_state import part_of
from mdgan.messages import Message
from mdgan.observe.run_observer import RunObserver
from mdgan.transport.server_end import ServerTransport


class Newcomers:
    """Brings every host that joins to where its workers can train.

    A worker that lacks a state gets the one that the server keeps for it. If there is none, it gets
    a copy of what a live worker holds, where the algorithm allows that.

    Args:
        transport: the server's end.
        members: the hosts and workers that take part.
        checkpoints: keeps states.
        observer: records which workers have joined.
        copied: see `ServerPart`; with None workers get no copies.
    """

    def __init__(
        self,
        transport: ServerTransport,
        members: Membership,
        checkpoints: ServerCheckpoints,
        observer: RunObserver,
        copied: str | None,
    ) -> None:
        self._transport = transport
        self._members = members
        self._checkpoints = checkpoints
        self._observer = observer
        self._copied = copied
        self._needs: dict[int, list[int]] = {}  # host → its workers that lack a state
        self._asked: dict[int, int] = {}  # host → the host that was asked for a copy for it
        self._tries: dict[int, int] = {}  # host → how many copies it could not use

    def ready(self, host: int, message: Message) -> None:
        """Takes in a READY message: which of the host's workers can go on.

        Raises:
            TypeError: what the host tells of them is no JSON object.
        """
        member, told = self._members.member(host), message.fields["told"]
        if not isinstance(told, Mapping):
            raise TypeError(f"told: {told!r:.40}")
        if member is None or not member.arriving:
            return
        member.told = told or member.told
        lacking = sorted(set(member.workers) - set(message.fields["holds"]))
        if lacking:
            self._needs[host] = lacking
            self._tries[host] = self._tries.get(host, -1) + 1
            return
        self._forget(host)
        self._members.arrived(host)
        self._checkpoints.hold(member.workers)
        if self._members.has_begun:
            ranks, live = in_words(member.workers), len(self._members.workers())
            self._observer.note(f"rank(s) {ranks} joined; {live} now")
            self._observer.event(
                "joined",
                self._members.iteration,
                workers=member.workers,
                holdings=self._members.holdings(member.workers),
            )

    def pass_on(self, giver: int, message: Message) -> None:
        """A copy has come; every worker of the newcomer that lacks a state gets it."""
        taker = message.fields["taker"]
        if self._asked.get(taker) == giver:  # otherwise the newcomer has gone or been served
            (state,) = messages.by_worker(message).values()
            self._hand_over(taker, dict.fromkeys(self._needs[taker], state))

    def tend(self) -> None:
        """Finds states for newcomers: those kept here, or copies of live workers'."""
        if not self._needs:
            return
        live, late = self._members.taking_part(), self._members.late()
        prompt = {host: workers for host, workers in live.items() if host not in late}
        givers = self._members.free() or prompt or live
        for host, lacking in list(self._needs.items()):
            asked = self._asked.get(host)
            if asked is not None and (asked not in late or not prompt):
                continue
            tries = self._tries[host]
            kept = {} if tries else self._kept_for(lacking)
            no_copy = self._copied is None or (not givers and self._no_host_will_hold_one())
            if kept or no_copy:
                self._hand_over(host, kept)
            elif givers:
                # Not always the same giver, and another one if its copy did not fit.
                giver = sorted(givers)[(host + tries) % len(givers)]
                self._asked[host] = giver
                copy = messages.copy(self._members.iteration, givers[giver][0], host)
                self._transport.send(giver, copy)

    def settle(self) -> None:
        """Hosts are gone: forgets newcomers among them, and copies that they should have given."""
        here = self._members.hosts()
        for host in self._needs.keys() | self._tries.keys():
            if host not in here:
                self._forget(host)
        self._asked = {taker: giver for taker, giver in self._asked.items() if giver in here}

    def _kept_for(self, lacking: list[int]) -> dict[int, Mapping[str, Tensor]]:
        """What the server keeps for some workers; if it keeps one state, the others get a copy."""
        found = {worker: self._checkpoints.state_for(worker) for worker in lacking}
        kept = {worker: state for worker, state in found.items() if state is not None}
        if self._copied is not None and kept:
            copy = part_of(next(iter(kept.values())), self._copied)
            return {worker: kept.get(worker, copy) for worker in lacking}
        return kept

    def _hand_over(self, host: int, states: Mapping[int, Mapping[str, Tensor]]) -> None:
        """Gives a newcomer what it lacks; its workers that get nothing go on as they are."""
        self._transport.send(host, messages.adopt(self._members.iteration, states))
        self._needs.pop(host)
        self._asked.pop(host, None)

    def _no_host_will_hold_one(self) -> bool:
        """Whether no live host has a state to copy, and none may still say that it has one."""
        arriving = {
            host
            for host in self._members.hosts()
            if (member := self._members.member(host)) is not None and member.arriving
        }
        expected = not self._members.has_begun and self._members.missing()
        return not expected and arriving <= self._needs.keys()

    def _forget(self, host: int) -> None:
        """A host is gone or has arrived: it needs nothing any more."""
        self._needs.pop(host, None)
        self._asked.pop(host, None)
        self._tries.pop(host, None)
