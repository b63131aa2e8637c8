"""Finds what hosts that have just joined lack, while training goes on."""

import time
from collections.abc import Iterable, Mapping

from torch import Tensor

from mdgan import messages
from mdgan.engine.host_keys import SEALED
from mdgan.engine.server.checkpoints import KeptStates
from mdgan.engine.server.peers import Peers
from mdgan.messages import Message
from mdgan.records.values import in_words

_MOST_TIMES, _WITHIN_SECONDS = 5, 600.0
"""A rank gets what it lacks so often within so long. A host of another model uses up a few."""


class Newcomers:
    """Brings every host that joins to where its workers can train.

    A worker that lacks a state gets the one that the server keeps for it, if its host is the one
    that this came from. Else it gets a copy of a live worker's weights, where the algorithm allows
    that (`ServerPart.copied`). A rank gets something a few times only: what two copies differ in
    tells what their worker has learnt between. Hosts that mask take states of each other alone.
    """

    def __init__(
        self, peers: Peers, kept: KeptStates, copied: str | None, *, gives: bool = True
    ) -> None:
        self._peers = peers
        self._kept = kept
        self._copied = copied
        self._gives = gives  # what the server keeps
        self._needs: dict[int, list[int]] = {}  # host → its workers that lack a state
        self._asked: dict[int, int] = {}  # host → the host that was asked for a copy for it
        self._tries: dict[int, int] = {}  # host → how many copies it could not use
        self._given: dict[tuple[str, int], list[float]] = {}  # host and worker → when it was given

    def ready(self, host: int, message: Message) -> None:
        """Takes in a READY message: which of the host's workers can go on.

        Raises:
            TypeError: what the host tells of them is no JSON object.
            ValueError: its key is not signed as it must be.
        """
        member, told = self._peers.member(host), message.fields["told"]
        if not isinstance(told, Mapping):
            raise TypeError(f"told: {told!r:.40}")
        if member is None or not member.arriving:
            return
        member.told = told or member.told
        key = message.fields.get("key")
        if key is not None and (why := self._peers.take_key(host, key)):
            self._peers.dismiss(host, why)
            return
        lacking = sorted(set(member.workers) - set(message.fields["holds"]))
        if lacking:
            self._needs[host] = lacking
            self._tries[host] = self._tries.get(host, -1) + 1
            if any(self._num_given(worker) >= _MOST_TIMES for worker in lacking):
                self._peers.dismiss(
                    host,
                    f"rank(s) {in_words(lacking)} were given what they lack {_MOST_TIMES} times "
                    f"within {_WITHIN_SECONDS / 60:.0f} min and still lack it; try again later",
                )
            return
        self._forget(host)
        self._kept.hold(member.workers)
        self._peers.arrived(host)

    def pass_on(self, giver: int, message: Message) -> None:
        """A copy has come; every worker of the newcomer that lacks a state gets it.

        Raises:
            ValueError: it is none.
        """
        taker = message.fields["taker"]
        if self._asked.get(taker) != giver:  # the newcomer has gone or been served
            return
        workers = self._needs[taker]
        if SEALED in message.tensors and self._copied is not None:
            iteration = self._peers.iteration
            adopt = messages.adopt_sealed(
                iteration, message, giver, workers=workers, prefix=self._copied
            )
            self._send_state(taker, adopt, workers)
            return
        (state,) = messages.by_worker(message).values()
        if not (copy := self._copy_of(state)):
            raise ValueError("a copy without weights")
        self._hand_over(taker, dict.fromkeys(workers, copy))

    def serve(self) -> None:
        """Finds states for newcomers: those kept here, or copies of live workers'."""
        if not self._needs:
            return
        live, overdue = self._peers.taking_part(), self._peers.overdue()
        prompt = {host: workers for host, workers in live.items() if host not in overdue}
        givers = self._peers.free() or prompt or live
        for host, lacking in list(self._needs.items()):
            asked = self._asked.get(host)
            if asked is not None and (asked not in overdue or not prompt):
                continue
            is_first = not self._tries[host]
            kept = self._kept_for(lacking) if is_first and self._gives else {}
            if kept or self._copied is None:
                self._hand_over(host, kept)
            elif not givers and self._no_host_will_hold_one():
                # Whichever hosts they came from.
                kept_here = {n: self._kept.state_for(n) or {} for n in lacking if is_first}
                copies = {n: self._copy_of(state) for n, state in kept_here.items()}
                self._hand_over(host, {n: copy for n, copy in copies.items() if copy})
            elif givers:
                # Not always the same giver, and another one if its copy did not fit.
                times = self._num_given(lacking[0])
                giver = sorted(givers)[(host + times) % len(givers)]
                self._asked[host] = giver
                self._peers.tell_keys((giver, host))
                copy = messages.copy(self._peers.iteration, givers[giver][0], host)
                self._peers.transport.send(giver, copy)

    def on_lost(self) -> None:
        """Hosts are gone: forgets newcomers among them, and copies that they should have given."""
        hosts = self._peers.hosts()
        for host in (self._needs.keys() | self._tries.keys()) - hosts.keys():
            self._forget(host)
        self._asked = {taker: giver for taker, giver in self._asked.items() if giver in hosts}

    def _kept_for(self, lacking: list[int]) -> dict[int, Mapping[str, Tensor]]:
        """What the server keeps for workers of this host; if it keeps one state, others get a copy.

        A copy of a state that came from another host would do, too, but live workers know more.
        """
        states = {n: self._kept.state_for(n) for n in lacking if self._kept.may_have(n)}
        kept = {worker: state for worker, state in states.items() if state is not None}
        if self._copied is not None and kept:
            copy = self._copy_of(next(iter(kept.values())))
            return {worker: kept.get(worker, copy) for worker in lacking}
        return kept

    def _copy_of(self, state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """What another worker may have of a state."""
        copied = self._copied
        return {} if copied is None else {n: t for n, t in state.items() if n.startswith(copied)}

    def _hand_over(self, host: int, states: Mapping[int, Mapping[str, Tensor]]) -> None:
        """Gives a newcomer what it lacks; its workers that get nothing go on as they are."""
        states = states if self._gives else {}
        self._send_state(host, messages.adopt(self._peers.iteration, states), states)

    def _send_state(self, host: int, adopt: Message, workers: Iterable[int]) -> None:
        """Workers are not to blame for what they are given, until they have answered well once."""
        self._peers.strikes.excuse(workers)
        self._peers.transport.send(host, adopt)
        for worker in self._needs.pop(host):
            self._given.setdefault(self._known(worker), []).append(time.monotonic())
        self._asked.pop(host, None)

    def _num_given(self, worker: int) -> int:
        since = time.monotonic() - _WITHIN_SECONDS
        known = self._known(worker)
        self._given[known] = [at for at in self._given.get(known, ()) if at > since]
        return len(self._given[known])

    def _known(self, worker: int) -> tuple[str, int]:
        """A worker, by the host that has it: others with its rank may have been given much."""
        owner = self._peers.admission.owners.get(worker)
        return owner.who if owner else "", worker

    def _no_host_will_hold_one(self) -> bool:
        """Whether no live host has a state to copy, and none may still say that it has one."""
        arriving = self._peers.hosts().keys() - self._peers.taking_part().keys()
        expected = not self._peers.has_begun and self._peers.missing()
        return not expected and arriving <= self._needs.keys()

    def _forget(self, host: int) -> None:
        """A host is gone or has arrived: it needs nothing any more."""
        self._needs.pop(host, None)
        self._asked.pop(host, None)
        self._tries.pop(host, None)
