"""Which hosts a server lets in."""

import logging
from collections.abc import Mapping
from typing import Any

from mdgan.credentials.revocations import Revocations
from mdgan.engine.hello import MOST_CLASSES, Owner
from mdgan.engine.server.admission import Admission
from mdgan.launch.addresses import split
from mdgan.launch.claim import Claim
from mdgan.launch.prepare import Prepared
from mdgan.launch.ranks import most_ranks
from mdgan.launch.settings import read_revocations

_log = logging.getLogger(__name__)


def make_admission(prepared: Prepared, claimed: Claim) -> Admission:
    """Which hosts may come in, with what the server tells every newcomer."""
    told: dict[str, Any] = {
        "generation": claimed.fence.generation,
        "run": claimed.run.path.resolve().name,
        "run_id": claimed.run_id,
        "address": split(claimed.listens)[0] if claimed.listens else "",
        "wants_states": prepared.settings.checkpoints.checkpoint_to_server,
        "brings_states": _brings_states(prepared),
    }
    revocations = read_revocations(prepared.link_settings.links, prepared.own_identity)
    workers = prepared.settings.num_workers if prepared.algorithm.has_hosts else 0
    expected = set(range(1, workers + 1))
    manifest = None if claimed.goes_on is None else claimed.goes_on.manifest
    on_their_way, owners = set(prepared.ranks.workers()), dict[int, Owner]()
    if manifest is not None:
        owners = {int(n): Owner("", *known) for n, known in manifest.owners.items()}
        if claimed.takes_over:
            expected = on_their_way = set(manifest.workers)
        revoked = _revoked(revocations, owners) & expected
        expected, owners = expected - revoked, {n: owners[n] for n in owners.keys() - revoked}
    return Admission(
        expected,
        prepared.identity,
        told,
        prepared.launch.links.liveness_timeout,  # for a lost worker to come back to its rank
        0 if manifest is None else manifest.iteration,
        most_ranks(prepared.settings, prepared.launch),
        None if manifest is None else manifest.whereabouts(),
        prepared.credentials,
        owners,
        on_their_way,
        max(MOST_CLASSES, prepared.dataset.num_classes or 0),
        revocations,
    )


def _revoked(revocations: Revocations, owners: Mapping[int, Owner]) -> set[int]:
    """The ranks of a run that goes on whose certificates were revoked; training needs none."""
    revoked = {n for n, owner in owners.items() if int(owner.serial or "0", 16) in revocations}
    if revoked:
        ranks = ",".join(map(str, sorted(revoked)))
        why = "whose certificates are revoked; their discriminators are left out"
        _log.info("going on without rank(s) %s, %s", ranks, why)
    return revoked


def _brings_states(prepared: Prepared) -> bool:
    """Whether workers begin with what the server hands them, not with weights from the seed."""
    if prepared.continues is not None:  # they had it from the server then
        return prepared.settings.training.init_from is not None
    return prepared.beginning is not None and bool(prepared.beginning.discriminators)
