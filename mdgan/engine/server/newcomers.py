"""Finds states for the workers of hosts that have just joined, while training goes on."""

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
"""A worker gets at most 5 states within 10 minutes, counting states that do not fit it."""


class Newcomers:
    """Gives the workers of every host that joins the states that they need to train.

    The server keeps states of workers that left. It gives such a state only to the host that sent
    it. Any other worker without a state gets a copy of a live worker's weights, if the algorithm
    allows that (`ServerPart.copied`). A worker gets only a few copies: the difference between two
    copies shows what the copied worker learnt in between. Where hosts mask their answers, the
    server gives no states (`gives` is False), and hosts seal copies for each other.
    """

    def __init__(
        self, peers: Peers, kept: KeptStates, copied: str | None, *, gives: bool = True
    ) -> None:
        self._peers = peers
        self._kept = kept
        self._copied = copied
        self._gives = gives
        self._needs: dict[int, list[int]] = {}  # host → its workers that lack a state
        self._giver_of: dict[int, int] = {}  # newcomer → the host that the server asked for a copy
        self._tries: dict[int, int] = {}  # newcomer → how many states it could not use
        self._times_given: dict[tuple[str, int], list[float]] = {}  # by `_owner_and_rank`

    def ready(self, host: int, message: Message) -> None:
        """Takes in a READY message, in which a host says which of its workers have a state.

        Raises:
            TypeError: the field `told` is no JSON object.
            ValueError: the host's key is not signed as it must be.
        """
        member, of_workers = self._peers.member(host), message.fields["told"]
        if not isinstance(of_workers, Mapping):
            raise TypeError(f"told: {of_workers!r:.40}")
        if member is None or not member.arriving:
            return
        member.told = of_workers or member.told
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
        """Passes the copy that a host sent on to all workers of the newcomer that lack a state.

        Raises:
            ValueError: the message holds no weights.
        """
        taker = message.fields["taker"]
        if self._giver_of.get(taker) != giver:  # the newcomer has left, or has got its states
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
        """Finds states for newcomers: those that the server keeps, or copies from live workers."""
        if not self._needs:
            return
        live, overdue = self._peers.taking_part(), self._peers.overdue()
        prompt = {host: workers for host, workers in live.items() if host not in overdue}
        givers = self._peers.free() or prompt or live
        for host, lacking in list(self._needs.items()):
            giver_asked = self._giver_of.get(host)
            if giver_asked is not None and (giver_asked not in overdue or not prompt):
                continue
            is_first = not self._tries[host]
            own_states = self._kept_for(lacking) if is_first and self._gives else {}
            if own_states or self._copied is None:
                self._hand_over(host, own_states)
            elif not givers and self._no_host_will_hold_one():
                # Weights alone may go to other hosts than those that sent them.
                kept_here = {n: self._kept.state_for(n) or {} for n in lacking if is_first}
                copies = {n: self._copy_of(state) for n, state in kept_here.items()}
                self._hand_over(host, {n: copy for n, copy in copies.items() if copy})
            elif givers:
                # Spreads newcomers over givers, and takes another giver if a copy did not fit.
                num_given = self._num_given(lacking[0])
                giver = sorted(givers)[(host + num_given) % len(givers)]
                self._giver_of[host] = giver
                self._peers.tell_keys((giver, host))
                copy = messages.copy(self._peers.iteration, givers[giver][0], host)
                self._peers.transport.send(giver, copy)

    def on_lost(self) -> None:
        """Forgets newcomers that were lost, and asks no longer for copies from lost hosts."""
        hosts = self._peers.hosts()
        for host in (self._needs.keys() | self._tries.keys()) - hosts.keys():
            self._forget(host)
        self._giver_of = {taker: giver for taker, giver in self._giver_of.items() if giver in hosts}

    def _kept_for(self, lacking: list[int]) -> dict[int, Mapping[str, Tensor]]:
        """The kept states that this host sent; where it sent one, its other workers get a copy.

        States that another host sent are not copied here, since live workers have learnt more.
        """
        states = {n: self._kept.state_for(n) for n in lacking if self._kept.may_have(n)}
        states_of_host = {worker: state for worker, state in states.items() if state is not None}
        if self._copied is not None and states_of_host:
            copy = self._copy_of(next(iter(states_of_host.values())))
            return {worker: states_of_host.get(worker, copy) for worker in lacking}
        return states_of_host

    def _copy_of(self, state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The part of a state that other workers may have."""
        copied = self._copied
        return {} if copied is None else {n: t for n, t in state.items() if n.startswith(copied)}

    def _hand_over(self, host: int, states: Mapping[int, Mapping[str, Tensor]]) -> None:
        """Sends a newcomer states; its workers that get none begin as they are."""
        states = states if self._gives else {}
        self._send_state(host, messages.adopt(self._peers.iteration, states), states)

    def _send_state(self, host: int, adopt: Message, workers: Iterable[int]) -> None:
        """Sends states; until a worker that got one has answered well once, it gets no strikes."""
        self._peers.strikes.excuse(workers)
        self._peers.transport.send(host, adopt)
        for worker in self._needs.pop(host):
            self._times_given.setdefault(self._owner_and_rank(worker), []).append(time.monotonic())
        self._giver_of.pop(host, None)

    def _num_given(self, worker: int) -> int:
        since = time.monotonic() - _WITHIN_SECONDS
        worker_key = self._owner_and_rank(worker)
        self._times_given[worker_key] = [
            at for at in self._times_given.get(worker_key, ()) if at > since
        ]
        return len(self._times_given[worker_key])

    def _owner_and_rank(self, worker: int) -> tuple[str, int]:
        """The owner of the worker's host, and the rank: a later owner of the rank counts apart."""
        owner = self._peers.admission.owners.get(worker)
        return owner.who if owner else "", worker

    def _no_host_will_hold_one(self) -> bool:
        """Whether no live host has a state to copy, and no host that is arriving may have one."""
        arriving = self._peers.hosts().keys() - self._peers.taking_part().keys()
        expected = not self._peers.has_begun and self._peers.missing()
        return not expected and arriving <= self._needs.keys()

    def _forget(self, host: int) -> None:
        """Forgets a host that was lost or has arrived: it needs no state any more."""
        self._needs.pop(host, None)
        self._giver_of.pop(host, None)
        self._tries.pop(host, None)
