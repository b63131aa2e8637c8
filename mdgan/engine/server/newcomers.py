"""Finds what hosts that have just joined lack, while training goes on."""

import time
from collections.abc import Callable, Iterable, Mapping

from torch import Tensor

from mdgan import messages
from mdgan.credentials.identity import Identity
from mdgan.engine.host_keys import SEALED
from mdgan.engine.server.checkpoints import ServerCheckpoints
from mdgan.engine.server.desk import in_words
from mdgan.engine.server.keys_told import take_key, tell_keys
from mdgan.engine.server.membership import Membership
from mdgan.messages import Message
from mdgan.observe.run_observer import RunObserver
from mdgan.transport.server_end import ServerTransport

_MOST_TIMES, _WITHIN_SECONDS = 5, 600.0
"""A rank gets what it lacks so often within so long. A host of another model uses up a few."""


class Newcomers:
    """Brings every host that joins to where its workers can train.

    A worker that lacks a state gets the one that the server keeps for it, if its host is the one
    that this came from. Else it gets a copy of a live worker's weights, where the algorithm allows
    that. A rank gets something a few times only: what two copies differ in tells what their worker
    has learnt between.

    Args:
        transport: the server's end.
        members: the hosts and workers that take part.
        checkpoints: keeps states.
        observer: records which workers have joined.
        copied: see `ServerPart`; with None workers get no copies.
        dismiss: ends the link to a host that must not come back, given why.
        excuse: is told of workers that go on with what another one gave them.
        trusts: which certificates sign the keys of hosts; None without certificates.
    """

    def __init__(
        self,
        transport: ServerTransport,
        members: Membership,
        checkpoints: ServerCheckpoints,
        observer: RunObserver,
        copied: str | None,
        dismiss: Callable[[int, str], None],
        excuse: Callable[[Iterable[int]], None],
        trusts: Identity | None = None,
    ) -> None:
        self._trusts = trusts
        self._transport = transport
        self._members = members
        self._checkpoints = checkpoints
        self._observer = observer
        self._copied = copied
        self._dismiss = dismiss
        self._excuse = excuse
        self._needs: dict[int, list[int]] = {}  # host → its workers that lack a state
        self._asked: dict[int, int] = {}  # host → the host that was asked for a copy for it
        self._tries: dict[int, int] = {}  # host → how many copies it could not use
        self._given: dict[int, list[float]] = {}  # worker → when it was given something

    def ready(self, host: int, message: Message) -> None:
        """Takes in a READY message: which of the host's workers can go on.

        Raises:
            TypeError: what the host tells of them is no JSON object.
            ValueError: its key is not signed as it must be.
        """
        member, told = self._members.member(host), message.fields["told"]
        if not isinstance(told, Mapping):
            raise TypeError(f"told: {told!r:.40}")
        if member is None or not member.arriving:
            return
        member.told = told or member.told
        key = message.fields.get("key")
        if key is not None and (why := take_key(self._members, host, key, self._trusts)):
            self._dismiss(host, why)
            return
        lacking = sorted(set(member.workers) - set(message.fields["holds"]))
        if lacking:
            self._needs[host] = lacking
            self._tries[host] = self._tries.get(host, -1) + 1
            if any(self._num_given(worker) >= _MOST_TIMES for worker in lacking):
                self._dismiss(
                    host,
                    f"rank(s) {in_words(lacking)} were given what they lack {_MOST_TIMES} times "
                    f"within {_WITHIN_SECONDS / 60:.0f} min and still lack it; try again later",
                )
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
        """A copy has come; every worker of the newcomer that lacks a state gets it.

        Raises:
            ValueError: it is none.
        """
        taker = message.fields["taker"]
        if self._asked.get(taker) == giver:  # otherwise the newcomer has gone or been served
            if SEALED in message.tensors and self._copied is not None:
                workers, i = self._needs[taker], self._members.iteration
                self._send_state(
                    taker, messages.adopt_sealed(i, message, giver, workers, self._copied)
                )
                return
            (state,) = messages.by_worker(message).values()
            if not (copy := self._copy_of(state)):
                raise ValueError("a copy without weights")
            self._hand_over(taker, dict.fromkeys(self._needs[taker], copy))

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
            if kept or self._copied is None:
                self._hand_over(host, kept)
            elif not givers and self._no_host_will_hold_one():
                self._hand_over(host, {} if tries else self._copies_of_kept(lacking))
            elif givers:
                # Not always the same giver, and another one if its copy did not fit.
                times = self._num_given(lacking[0])
                giver = sorted(givers)[(host + times) % len(givers)]
                self._asked[host] = giver
                tell_keys(self._members, self._transport.send, (giver, host))
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
        """What the server keeps for workers of this host; if it keeps one state, others get a copy.

        A copy of a state that came from another host would do, too, but live workers know more.
        """
        saving = self._checkpoints
        found = {n: saving.state_for(n) for n in lacking if saving.may_have(n)}
        kept = {worker: state for worker, state in found.items() if state is not None}
        if self._copied is not None and kept:
            copy = self._copy_of(next(iter(kept.values())))
            return {worker: kept.get(worker, copy) for worker in lacking}
        return kept

    def _copies_of_kept(self, lacking: list[int]) -> dict[int, Mapping[str, Tensor]]:
        """Copies of what the server keeps for these workers, whichever hosts it came from."""
        found = {n: self._copy_of(self._checkpoints.state_for(n) or {}) for n in lacking}
        return {worker: copy for worker, copy in found.items() if copy}

    def _copy_of(self, state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """What another worker may have of a state."""
        copied = self._copied
        return {} if copied is None else {n: t for n, t in state.items() if n.startswith(copied)}

    def _hand_over(self, host: int, states: Mapping[int, Mapping[str, Tensor]]) -> None:
        """Gives a newcomer what it lacks; its workers that get nothing go on as they are.

        They are not to blame for what they are given, until they have answered well once.
        """
        self._send_state(host, messages.adopt(self._members.iteration, states), states)

    def _send_state(self, host: int, adopt: Message, workers: Iterable[int] | None = None) -> None:
        self._excuse(self._needs[host] if workers is None else workers)
        self._transport.send(host, adopt)
        for worker in self._needs[host]:
            self._given.setdefault(worker, []).append(time.monotonic())
        self._needs.pop(host)
        self._asked.pop(host, None)

    def _num_given(self, worker: int) -> int:
        """How often a worker was given something lately."""
        since = time.monotonic() - _WITHIN_SECONDS
        lately = [at for at in self._given.get(worker, ()) if at > since]
        self._given[worker] = lately
        return len(lately)

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
