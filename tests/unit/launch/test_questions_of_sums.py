"""Whether sums are sent again follows from the questions, and from no value of a sample."""

from pathlib import Path
from typing import Any

import pytest
import torch

from mdgan.engine.stages.contract import HostPath
from mdgan.errors import BadInput
from mdgan.families.contract import HostNeeds
from mdgan.families.moments.build import draw_features
from mdgan.families.moments.contract import Statistic
from mdgan.families.moments.host import ASK, MomentsHost
from mdgan.families.moments.pairs.message import PairCounts
from mdgan.families.moments.settings import FeatureSettings
from mdgan.gan.build import Models
from mdgan.messages import Message
from mdgan.observe.tracer import Tracer
from tests.claims.registry import claim
from tests.unit.launch.table_sites import STUDY, Site, write_site
from tests.unit.launch.test_counts_and_sums import WIDER

pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")


class Server:
    """Keeps what a host sends."""

    def send(self, message: Message) -> int:
        self.sent = message
        return 0


def told(folder: Path, edge: int, features: bool) -> torch.Tensor:
    """The sums of a new process, by a server that says that half of all are younger than `edge`."""
    site = Site(folder, folder / "site.csv", STUDY, algorithm="moments")
    site.counts()
    kind: Any = site.dataset.kind
    settings: Any = site.settings
    counts = torch.full((kind.num_counts,), 5.0)
    counts[:101] = 0.0  # the cells of ages
    counts[[20, edge]] = 100.0
    kind.learn(counts)
    models = Models("none", kind.shape, 1, torch.nn.Identity, torch.nn.Identity)
    statistic: Statistic = PairCounts(kind)
    if features:
        statistic = draw_features(FeatureSettings(), kind.shape, None, 0)
    shards, budgets = site.samples.shards, site.samples.open_budgets()
    needs = HostNeeds(
        settings, models, shards, torch.device("cpu"), Tracer(0), budgets=budgets, kind=kind
    )
    host, server = MomentsHost(needs, HostPath(statistic.form), statistic), Server()
    question: dict[str, Any] = {"features": "", "fineness": 2, "least": 0.0}
    try:
        host.handlers()[ASK](Message(ASK, 1, question), server)  # type: ignore[arg-type] # a stand-in
    finally:
        budgets[1].close()
    (sums,) = [t for name, t in server.sent.tensors.items() if name != "losses"]
    return sums


@pytest.mark.parametrize("features", [False, True])
@pytest.mark.parametrize("oldest", [59, 97])
@claim(
    "told-once",
    "Another one, such as a bound that was widened or another target, spends, and a line says "
    "so before.",
)
def test_a_server_that_moves_an_edge_does_not_learn_who_is_beyond(
    tmp_path: Path, oldest: int, features: bool
) -> None:
    """If equal questions depended on values, they would tell whether a patient is 97."""
    path = write_site(tmp_path)
    path.write_text(path.read_text().replace("\n59,", f"\n{oldest},"))
    first = told(tmp_path, 96, features)
    (again,) = Site(tmp_path, path, STUDY, algorithm="moments").warnings()
    assert "they tell the same again" in again
    with pytest.raises(BadInput, match="have spent"):  # before anything is told
        Site(tmp_path, path, WIDER, algorithm="moments").warnings()
    assert torch.equal(told(tmp_path, 96, features), first)
    with pytest.raises(BadInput, match="have told other sums"):
        told(tmp_path, 99, features)
