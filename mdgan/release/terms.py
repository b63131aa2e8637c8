"""What the terms of a run say, which all its ranks agreed to: its settings, and its privacy."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mdgan.engine.settings import RunSettings
from mdgan.families import registry

_NO_SETTINGS = {"extractor"}
"""Among terms it is not what the user gave, but what came of it."""


@dataclass(frozen=True)
class RunTerms:
    """The terms as settings."""

    settings: RunSettings

    @classmethod
    def of(cls, terms: Mapping[str, Any]) -> "RunTerms":
        """Reads them; raises BadInput if they are those of no run."""
        given = {name: term for name, term in terms.items() if name not in _NO_SETTINGS}
        return cls(registry.read_settings([given]))

    @property
    def has_dp(self) -> bool:
        """Whether differential privacy bounds what the run tells."""
        return self.settings.privacy.keeps_ledger

    @property
    def server_adds_noise(self) -> bool:
        """Whether the server is trusted to add it, so that no account of a host knows of it."""
        return self.settings.privacy.hides_clients

    @property
    def accounts(self) -> list[int]:
        """The ranks that must each say what their samples spent; 0 is the server's, of clients."""
        if not self.has_dp:
            return []
        if self.server_adds_noise:
            return [0]
        ranks = range(1, self.settings.world_size)
        return [rank for rank in ranks if self.settings.holds_data(rank)]

    def privacy(self, epsilon: Mapping[int, float]) -> dict[str, float]:
        """The figures ε and δ; ε is not known if one account is missing.

        Args:
            epsilon: by rank, as accounts say.
        """
        if not self.has_dp:
            return {}
        found = {"delta": self.settings.privacy.dp_delta or 0.0}
        if self.accounts and all(rank in epsilon for rank in self.accounts):
            found["epsilon"] = max(epsilon.values())
        return found
