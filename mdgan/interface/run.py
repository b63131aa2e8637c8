"""`mdgan.Run`: what a Python program asks of a run; `mdgan.evaluate`."""

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from mdgan.errors import BadInput
from mdgan.interface.messages import TrainingRequest
from mdgan.interface.settings import plain, refuses_in_python
from mdgan.records.recorded_run import RecordedRun
from mdgan.records.rows import Losses, ScoresRow
from mdgan.records.run_directory import RunDirectory
from mdgan.report.figures.samples import read_picture
from mdgan.spelling import flag

OWN_SCORES = "own_scores"  # the event that holds scores by functions of the user

if TYPE_CHECKING:
    from torch import Tensor, nn

    from mdgan.interface.data import Data, Model
    from mdgan.interface.follow import Callback
    from mdgan.interface.keywords import Keywords
    from mdgan.release.bundle import Released


@dataclass(frozen=True)
class Run:
    """A run, finished or not. Everything is read from its folder when it is asked for."""

    path: Path
    # The samples of your own that it was trained on, as far as this program has them.
    data: "Data | None" = None

    @classmethod
    @refuses_in_python()
    def open(
        cls,
        path: str | Path,
        data: "Data | None" = None,
        *,
        generator: "Model | None" = None,
        discriminator: "Model | None" = None,
    ) -> "Run":
        """A run by its folder.

        Args:
            data: the samples of your own that it was trained on.
            generator, discriminator: what made its models, where they were objects that only
                another program had: closures, lambdas, and what else has no text of its own.
        """
        run = cls(RunDirectory.open(Path(path)).path, data)
        if generator is not None and discriminator is not None:
            from mdgan.data.handed import remember
            from mdgan.interface.dataset_text import token_of

            if (token := token_of(run.dataset_file)) is not None:
                remember(token, {"Generator": generator, "Discriminator": discriminator})
        return run

    @property
    def dataset_file(self) -> Path:
        """The dataset file that the run keeps, if its samples or models are a program's objects."""
        name = RunDirectory(self.path).read_config().get("dataset", "")
        return RunDirectory(self.path).dataset_file(name)

    def own(self, *, has_handed: bool) -> str:
        """With what `open` is called in another program; see `mdgan.spelling.spelled`."""
        models = ["generator=…, discriminator=…"] * has_handed
        return ", ".join(["data=…"] * (self.data is not None) + models)

    @property
    def has_begun(self) -> bool:
        """Whether it has a folder; it has none if it was stopped while it was starting."""
        return (self.path / "run.json").is_file()

    @property
    def state(self) -> str:
        """`starting`, `running`, `finished`, `stopped` or `failed`."""
        return (
            RunDirectory(self.path).read_status().get("state", "") if self.has_begun else "stopped"
        )

    @property
    def iteration(self) -> int:
        """The last complete one; 0 before it."""
        return RunDirectory(self.path).read_status().get("iteration", 0) if self.has_begun else 0

    @property
    def losses(self) -> NDArray[Any]:
        """Structured array [m], a row a logged iteration.

        Its fields are `iteration`, `generator` and `discriminator`; a loss that was not finite is
        NaN.
        """
        rows = RecordedRun.read(self.path).of(Losses) if self.has_begun else ()
        return _table([(row.iteration, row.both) for row in rows], "generator", "discriminator")

    @property
    def scores(self) -> NDArray[Any]:
        """Structured array [m], a row for every time that training scored.

        Its fields are `iteration` and the names of scores, such as `fid`; a score that could not be
        computed is NaN.
        """
        rows = RecordedRun.read(self.path).of(ScoresRow) if self.has_begun else ()
        return _table([(row.iteration, row.scores) for row in rows if row.by is None])

    @property
    def own_scores(self) -> NDArray[Any]:
        """Structured array [m] of what the functions in `train(scores=…)` have returned.

        Its fields are `iteration`, that of the generator whose samples were scored, and the names.
        """
        rows = RecordedRun.read(self.path).named(OWN_SCORES)
        return _table([(row["iteration"], row["scores"]) for row in rows])

    @property
    @refuses_in_python()
    def generator(self) -> "nn.Module":
        """The newest generator, averaged if the run averages it; on the CPU, in evaluation mode."""
        from mdgan.inspect.trained import load_trained

        return load_trained(self.path).generator.eval()

    @refuses_in_python()
    def sample(
        self, n: int = 64, seed: int = 0, *, label: int | str | None = None, raw: bool = False
    ) -> Any:
        """Samples of the newest generator, the same for the same seed.

        Args:
            label: the class of all of them, by number or name, if the generator is conditional; by
                default each class in turn.
            raw: of the generator itself, though the run has averaged it; of a table as tensors.

        Returns:
            float32 [n, C, H, W] in [−1, 1]; of a table a pandas DataFrame with n rows.
        """
        from mdgan.gan.sampling import draw_samples
        from mdgan.inspect.trained import load_trained

        if n < 1:
            raise BadInput(f"n={n}", "must be at least 1")
        trained = load_trained(self.path, raw=raw)
        labels, z_dim = trained.labels(n, label, "label"), trained.models.z_dim
        samples = draw_samples(trained.generator, n, z_dim, seed=seed, labels=labels)
        return samples if raw else trained.dataset.kind.in_python(samples, labels)

    def evaluate(
        self, n: int = 10_000, seed: int | None = None, *, raw: bool = False, **changes: Any
    ) -> dict[str, Any]:
        """Scores the newest generator as `mdgan evaluate` does; see `mdgan.evaluate`."""
        return evaluate(self, n, seed, raw=raw, **changes)

    @refuses_in_python()
    def audit(
        self, n: int = 10_000, seed: int | None = None, *, steps: int = 400, **changes: Any
    ) -> dict[str, Any]:
        """Attacks the run as `mdgan audit` does, and adds a section to its report.

        Args:
            n: how many samples to draw from the generator.
            seed: of all draws; the run's if not given.
            steps: how long images are looked for that explain a single answer; 0 leaves that out.
            changes: `data_dir`, `map`, `held_out`. A run that was trained on samples of your own
                finds them if it holds them: `mdgan.Run.open(folder, data)`.

        Raises:
            BadInput: the run is not over, or the samples to judge attacks by are not here.
        """
        from msgspec import to_builtins

        from mdgan.audit.run import audit_run
        from mdgan.audit.target import CHANGES

        given = plain(changes, CHANGES, "no attack depends on it")
        if self.data is not None:
            given = {**self.data.places, **given}
        with _own_threads():
            found: dict[str, Any] = to_builtins(
                audit_run(self.path, n, seed, steps=steps, changes=given)
            )
        return found

    @refuses_in_python()
    def release(
        self,
        output: str | Path,
        samples: int = 10_000,
        *,
        generator: bool = True,
        policy: str | Path | None = None,
        purpose: str = "",
        dry_run: bool = False,
        **files: Any,
    ) -> "Released":
        """Writes a bundle that strangers can check, if a policy allows it, as `mdgan release` does.

        Args:
            output: the folder to write.
            samples: how many synthetic samples it holds.
            generator: whether it holds the generator.
            policy: a file of rules; mdgan's if not given.
            purpose: what for, in a sentence.
            dry_run: says what the policy says, and writes no bundle.
            files: `credentials`, `revoked`; `data_dir`, `held_out` for the audit.

        Returns:
            What the rules say: `is_fit`, `verdicts`, and `path` of the bundle.
        """
        from mdgan.release.bundle import Wanted, links_of, release_run

        given = plain(files)
        links = links_of(self.path, given.pop("credentials", None), given.pop("revoked", None))
        if self.data is not None:
            given = {**self.data.places, **given}
        rules = None if policy is None else Path(policy)
        wanted = Wanted(samples, generator, rules, purpose=purpose, changes=given)
        with _own_threads():
            return release_run(self.path, Path(output), wanted, links=links, dry_run=dry_run)

    @refuses_in_python()
    def report(self, output: str | Path | None = None) -> Path:
        """Writes the page with all figures."""
        from mdgan.report.build import write_report

        return write_report([self.path], None if output is None else Path(output)).path

    @refuses_in_python()
    def resume(
        self,
        *,
        dataset: "Data | None" = None,
        quiet: bool = False,
        callbacks: "Sequence[Callback]" = (),
        scores: "Mapping[str, Callable[[Tensor], float]] | None" = None,
        **settings: "Unpack[Keywords]",
    ) -> "Run":
        """Goes on from the newest checkpoint, with the bits of a run that never stopped.

        Args:
            dataset: the same samples, if they are objects of yours and this run does not hold them.
            callbacks, scores: as for `mdgan.train`.
            settings: that change, such as `iterations`.

        Raises:
            BadInput, RunFailed, KeyboardInterrupt: as `mdgan.train`; or the samples are others.
        """
        from mdgan.interface.dataset_text import handed_again
        from mdgan.interface.follow import Follower, Screen

        if not self.has_begun:
            raise BadInput(self.path, "has not begun", "train it anew")
        given = plain(settings)
        data = dataset or self.data
        if given.get("out") is not None:
            raise BadInput(flag("out", given["out"]), f"the run goes on in its folder {self.path}")
        if data is not None:
            self._check_same(data)
            given |= data.places
        run = Run(self.path, data)
        handed = handed_again(self.dataset_file)
        objects = run.own(has_handed=bool(handed))
        request = TrainingRequest(given, resumes=str(self.path), objects=objects)
        Follower(run, Screen(quiet=quiet), callbacks, scores=scores).train(request, handed)
        return Run.open(self.path, data)

    def _check_same(self, data: "Data") -> None:
        """Refuses other samples than those that the run was trained on."""
        if data.frames is not None:  # the run's schema is compared by its processes
            return
        kept = RunDirectory(self.path).dataset_file(data.name)
        text = kept.read_text(encoding="utf-8") if kept.is_file() else ""
        known = (data.known_as(privately=privately) for privately in (False, True))
        if not any(f'SAMPLES = "{name}"' in text for name in known):
            raise BadInput("dataset", f"{self.path} was trained on other samples", "give those")

    def __repr__(self) -> str:
        """How far the run is."""
        return f"<{self.path}: {self.state} at iteration {self.iteration}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: how far the run is, and its last pictures."""
        said = f"<p>{self.path.name}: {self.state} at iteration {self.iteration}</p>"
        grids = RecordedRun.read(self.path).samples if self.has_begun else {}
        if not grids:
            return said
        if (grid := read_picture(grids[max(grids)], max(grids))) is None:
            return said
        png = b64encode(grid.png).decode()
        return f'{said}<img alt="samples" src="data:image/png;base64,{png}">'


def _table(rows: Sequence[tuple[int, Mapping[str, float | None]]], *names: str) -> NDArray[Any]:
    """A field for each name that stands in a row; NaN where it has no value."""
    names = names or tuple(dict.fromkeys(name for _, values in rows for name in values))
    filled = []
    for iteration, values in rows:
        found = (values.get(name) for name in names)
        filled.append((iteration, *(nan if value is None else value for value in found)))
    return np.array(filled, dtype=[("iteration", np.int64), *((n, np.float64) for n in names)])


@refuses_in_python()
def evaluate(
    run: Run | str | Path,
    n: int = 10_000,
    seed: int | None = None,
    *,
    raw: bool = False,
    **changes: Any,
) -> dict[str, Any]:
    """Scores the newest generator of a run as `mdgan evaluate` does.

    Args:
        n: how many samples to generate.
        seed: of their noise; the run's if not given.
        raw: scores the generator itself, though the run has averaged it.
        changes: `extractor`, `inception_weights`, `data_dir`, `held_out`, `device`.

    Returns:
        The record that is added to the run's `metrics.jsonl`; its `scores` are by name.

    Raises:
        BadInput: there is no generator yet, or something that was given cannot be used.
    """
    from mdgan.inspect.evaluate import CHANGES, evaluate_run

    given = plain(changes, CHANGES, "scores do not depend on it")
    path = run.path if isinstance(run, Run) else Path(run)
    with _own_threads():
        return evaluate_run(path, n, seed, changes=given, raw=raw)


@contextmanager
def _own_threads() -> Iterator[None]:
    """Commands set the number of compute threads; a program keeps its own."""
    import torch

    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)
