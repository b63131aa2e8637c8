"""`mdgan.Run`, through which a Python program uses a run, and `mdgan.evaluate`."""

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
from mdgan.interface.settings import plain_settings, refuses_in_python
from mdgan.records.recorded_run import RecordedRun
from mdgan.records.rows import Losses, ScoresRow
from mdgan.records.run_directory import RunDirectory
from mdgan.report.figures.samples import read_picture
from mdgan.spelling import flag

OWN_SCORES = "own_scores"  # the event with the scores of the user's functions

if TYPE_CHECKING:
    from torch import Tensor, nn

    from mdgan.interface.data import Data, Model
    from mdgan.interface.follow import Callback
    from mdgan.interface.keywords import Keywords
    from mdgan.release.bundle import Released


@dataclass(frozen=True)
class Run:
    """A run, finished or not. Each property reads the folder of the run anew."""

    path: Path
    # Your own samples that the run trains on; None if this program does not have them.
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
        """Opens a run by its folder.

        Args:
            data: your own samples that the run trains on.
            generator, discriminator: the functions that make its models. Needed only if they were
                objects of another program without text, such as closures and lambdas.
        """
        run = cls(RunDirectory.open(Path(path)).path, data)
        if generator is not None and discriminator is not None:
            from mdgan.data.handed import remember
            from mdgan.interface.dataset_text import find_token

            if (token := find_token(run.dataset_file)) is not None:
                remember(token, {"Generator": generator, "Discriminator": discriminator})
        return run

    @property
    def dataset_file(self) -> Path:
        """The dataset file in the run's folder; it exists if a program wrote it."""
        name = RunDirectory(self.path).read_config().get("dataset", "")
        return RunDirectory(self.path).dataset_file(name)

    def open_arguments(self, *, has_pickled: bool) -> str:
        """The arguments that another program must pass to `open`, for `mdgan.spelling.spelled`."""
        models = ["generator=…, discriminator=…"] * has_pickled
        return ", ".join(["data=…"] * (self.data is not None) + models)

    @property
    def has_begun(self) -> bool:
        """Whether its folder holds a run; not so if the user stopped it while it was starting."""
        return (self.path / "run.json").is_file()

    @property
    def state(self) -> str:
        """`starting`, `running`, `finished`, `stopped` or `failed`."""
        return (
            RunDirectory(self.path).read_status().get("state", "") if self.has_begun else "stopped"
        )

    @property
    def iteration(self) -> int:
        """The last complete iteration; 0 before the first."""
        return RunDirectory(self.path).read_status().get("iteration", 0) if self.has_begun else 0

    @property
    def losses(self) -> NDArray[Any]:
        """The losses as a structured array [m], a row for each logged iteration.

        Its fields are `iteration`, `generator` and `discriminator`. A loss that was not finite is
        NaN.
        """
        rows = RecordedRun.read(self.path).of(Losses) if self.has_begun else ()
        return _array_of([(row.iteration, row.both) for row in rows], "generator", "discriminator")

    @property
    def scores(self) -> NDArray[Any]:
        """The scores as a structured array [m], a row for each iteration that training scored.

        Its fields are `iteration` and the names of scores, such as `fid`. A score that could not be
        computed is NaN.
        """
        rows = RecordedRun.read(self.path).of(ScoresRow) if self.has_begun else ()
        return _array_of([(row.iteration, row.scores) for row in rows if row.by is None])

    @property
    def own_scores(self) -> NDArray[Any]:
        """The results of the functions in `train(scores=…)` as a structured array [m].

        Its fields are `iteration`, that of the scored generator, and the names of the functions.
        """
        rows = RecordedRun.read(self.path).named(OWN_SCORES)
        return _array_of([(row["iteration"], row["scores"]) for row in rows])

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
        """Draws samples of the newest generator, the same for the same seed.

        Args:
            label: the class of all samples of a conditional generator, by number or name; None for
                each class in turn.
            raw: whether to use the generator itself, though the run has averaged it, and to return
                rows of a table as tensors.

        Returns:
            float32 [n, C, H, W] in [−1, 1]; for a table a pandas DataFrame with n rows.
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
            seed: of all draws; None for the run's.
            steps: of the search for images that explain a single answer; 0 skips that attack.
            changes: `data_dir`, `map`, `held_out`. If the run trains on your own samples, open it
                with them: `mdgan.Run.open(folder, data)`.

        Raises:
            BadInput: the run is not over, or this machine lacks the samples to judge attacks by.
        """
        from msgspec import to_builtins

        from mdgan.audit.run import audit_run
        from mdgan.audit.target import CHANGES

        settings = plain_settings(changes, CHANGES, "no attack depends on it")
        if self.data is not None:
            settings = {**self.data.places, **settings}
        with _keep_thread_count():
            record: dict[str, Any] = to_builtins(
                audit_run(self.path, n, seed, steps=steps, changes=settings)
            )
        return record

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
            policy: a file of rules; None for mdgan's.
            purpose: a sentence for the card of the bundle.
            dry_run: whether to ask the policy without writing a bundle.
            files: `credentials`, `revoked`; `data_dir`, `held_out` for the audit.

        Returns:
            The verdict: `is_fit`, `verdicts` of each rule, and `path` of the bundle.
        """
        from mdgan.release.bundle import Wanted, links_of, release_run

        files = plain_settings(files)
        links = links_of(self.path, files.pop("credentials", None), files.pop("revoked", None))
        if self.data is not None:
            files = {**self.data.places, **files}
        rules = None if policy is None else Path(policy)
        wanted = Wanted(samples, generator, rules, purpose=purpose, changes=files)
        with _keep_thread_count():
            return release_run(self.path, Path(output), wanted, links=links, dry_run=dry_run)

    @refuses_in_python()
    def report(self, output: str | Path | None = None) -> Path:
        """Writes the page with all figures, by default into the run's folder; returns its path."""
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
        """Trains on from the newest checkpoint, with the same bits as without a stop.

        Args:
            dataset: the same samples, if they are your own and this object has no `data`.
            quiet, callbacks, scores: as for `mdgan.train`.
            settings: new values of settings, such as `iterations`.

        Raises:
            BadInput, RunFailed, KeyboardInterrupt: as `mdgan.train`; BadInput for other samples.
        """
        from mdgan.interface.dataset_text import pickle_again
        from mdgan.interface.follow import Follower, Screen

        if not self.has_begun:
            raise BadInput(self.path, "has not begun", "train it anew")
        changes = plain_settings(settings)
        data = dataset or self.data
        if changes.get("out") is not None:
            why = f"the run goes on in its folder {self.path}"
            raise BadInput(flag("out", changes["out"]), why)
        if data is not None:
            self._check_same(data)
            changes |= data.places
        run = Run(self.path, data)
        pickled = pickle_again(self.dataset_file)
        open_arguments = run.open_arguments(has_pickled=bool(pickled))
        request = TrainingRequest(changes, resumes=str(self.path), open_arguments=open_arguments)
        Follower(run, Screen(quiet=quiet), callbacks, scores=scores).train(request, pickled)
        return Run.open(self.path, data)

    def _check_same(self, data: "Data") -> None:
        """Refuses samples other than those that the run trains on."""
        if data.frames is not None:  # the run's processes compare the schema
            return
        file = RunDirectory(self.path).dataset_file(data.name)
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        marks = (data.known_as(privately=privately) for privately in (False, True))
        if not any(f'SAMPLES = "{mark}"' in text for mark in marks):
            raise BadInput("dataset", f"{self.path} was trained on other samples", "give those")

    def __repr__(self) -> str:
        """Says how far the run is."""
        return f"<{self.path}: {self.state} at iteration {self.iteration}>"

    def _repr_html_(self) -> str:
        """Shows in a notebook how far the run is, and its last pictures."""
        text = f"<p>{self.path.name}: {self.state} at iteration {self.iteration}</p>"
        grids = RecordedRun.read(self.path).samples if self.has_begun else {}
        grid = read_picture(grids[max(grids)], max(grids)) if grids else None
        if grid is None:
            return text
        png = b64encode(grid.png).decode()
        return f'{text}<img alt="samples" src="data:image/png;base64,{png}">'


def _array_of(rows: Sequence[tuple[int, Mapping[str, float | None]]], *names: str) -> NDArray[Any]:
    """Makes a structured array with a field for each name; NaN where a row has no value."""
    names = names or tuple(dict.fromkeys(name for _, values in rows for name in values))
    filled = []
    for iteration, values in rows:
        numbers = (values.get(name) for name in names)
        filled.append((iteration, *(nan if value is None else value for value in numbers)))
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
        seed: of their noise; None for the run's.
        raw: whether to score the generator itself, though the run has averaged it.
        changes: `extractor`, `inception_weights`, `data_dir`, `held_out`, `device`.

    Returns:
        The record that mdgan adds to the run's `metrics.jsonl`; it has `scores` by name.

    Raises:
        BadInput: the run has no generator yet, or an argument cannot be used.
    """
    from mdgan.inspect.evaluate import CHANGES, evaluate_run

    settings = plain_settings(changes, CHANGES, "scores do not depend on it")
    path = run.path if isinstance(run, Run) else Path(run)
    with _keep_thread_count():
        return evaluate_run(path, n, seed, changes=settings, raw=raw)


@contextmanager
def _keep_thread_count() -> Iterator[None]:
    """Restores the program's number of compute threads after a command has set its own."""
    import torch

    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)
