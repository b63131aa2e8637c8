"""Installs mdgan as its users do, and says which commands work: `python -m scripts.installs`.

Builds a wheel, installs it alone into a new virtual environment, and tries commands there. One that
needs an extra must be refused in one line that names the extra. Each extra then gets an environment
above the first, in which its command must work. `--all` installs all of them into one, too.
"""

import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent
HOME = REPOSITORY / "build" / "installs"
WORK = HOME / "work"
_TRAIN = "train --dataset digits --world-size 2 --iterations 2 --out {}"
_VOLUMES = "train --dataset volumes --data-dir scans --partition iid --world-size 2 --batch-size 2"


class Try(NamedTuple):
    """A command, the extra that it needs, and a program that writes its input with that extra."""

    command: str
    extra: str = ""
    program: str = ""
    refusal: str = ""  # what its refusal says with the extra, too; empty: it works


TRIES = (
    Try("--version"),
    Try("--help"),
    Try("train --dataset digits --world-size 3 --iterations 20 --out run"),
    Try("evaluate run"),
    Try("sample run -n 4 -o grid.png"),
    Try("schema draft rows.csv -o schema.json"),
    Try("report run", "plots"),
    Try("datasets show digits -o parts.png", "plots"),
    Try(
        "schema draft rows.parquet -o {}.json",
        "tables",
        "import pandas; pandas.read_csv('rows.csv').to_parquet('rows.parquet')",
    ),
    Try(f"{_TRAIN} --dp-epsilon 8 --dp-delta 1e-4 --dry-run", "privacy"),
    Try(
        f"{_VOLUMES} --dry-run",
        "volumes",
        "import nibabel, numpy as n; [nibabel.Nifti1Image(n.random.rand(32, 32, 32), n.eye(4))"
        ".to_filename(f'scans/{i}.nii') for i in range(8)]",
    ),
    Try(
        "evaluate run --extractor inception --inception-weights no.pth", "inception", "", "SHA-256"
    ),
    Try(f"{_TRAIN} --tracker tensorboard", "tensorboard"),
    Try(f"{_TRAIN} --tracker wandb", "wandb"),
    Try(f"{_TRAIN} --tracker mlflow", "mlflow"),
    Try(f"{_TRAIN} --launcher ray", "ray"),
)


def fault(status: int, errors: str, refusal: str) -> str:
    """What is wrong with how a command ended; empty if nothing is.

    Args:
        refusal: what its one line says if it must be refused; empty if it must work.
    """
    if "Traceback" in errors:
        return "a traceback"
    if status != (2 if refusal else 0):
        return f"status {status}: {errors.strip().splitlines()[-1:]}"
    lines = re.findall("^mdgan: .*", errors, re.MULTILINE)
    return "" if not refusal or (len(lines) == 1 and refusal in lines[0]) else f"it says {lines}"


def install(name: str, wheel: Path, extras: str, above: Path | None) -> Path:
    """A virtual environment with mdgan and extras, which sees that of `above`; its Python."""
    python = HOME / name / "bin" / "python"
    if not python.exists():
        venv.create(HOME / name, with_pip=True)
    if above is not None:
        below = sysconfig.get_path("purelib", vars={"base": f"{above.parent.parent}"})
        seen = Path(sysconfig.get_path("purelib", vars={"base": f"{HOME / name}"}))
        (seen / "core.pth").write_text(f"{below}\n", encoding="utf-8")
    pip = [f"{python}", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, f"{wheel}{extras}"], check=True)
    return python


def run(python: Path, case: Try, place: str, *, refused: bool) -> bool:
    """Tries a command, prints a row of the table, and returns whether it ended as it must."""
    command = [
        f"{python}",
        "-m",
        "mdgan",
        *shlex.split(case.command.format(f"{place}-{case.extra}")),
    ]
    if case.program and not refused:
        subprocess.run([python, "-c", case.program], cwd=WORK, check=True)
    ended = subprocess.run(
        command, cwd=WORK, capture_output=True, text=True, timeout=900, check=False
    )
    refusal = f"pip install 'mdgan[{case.extra}]'" if refused else case.refusal
    wrong = fault(ended.returncode, ended.stderr, refusal)
    wanted = "refused" if refused else "works"
    print(f"| {place} | `mdgan {case.command}` | {wrong or wanted} |", flush=True)
    if wrong:
        print(ended.stderr, file=sys.stderr, flush=True)
    return not wrong


def main(arguments: list[str]) -> bool:
    """Prints the table; returns whether a command ended as it must not."""
    shutil.rmtree(WORK, ignore_errors=True)
    (WORK / "scans").mkdir(parents=True)
    rows = "".join(f"{20 + n},{('nurse', 'clerk')[n % 2]},{n % 3}\n" for n in range(60))
    (WORK / "rows.csv").write_text(f"age,job,visits\n{rows}", encoding="utf-8")
    for name in ("rows.parquet", "no.pth", *(f"scans/{n}.nii" for n in range(8))):
        (WORK / name).write_bytes(b"none")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", f"{WORK}"]
    subprocess.run([*pip, f"{REPOSITORY}"], check=True)
    (wheel,) = WORK.glob("*.whl")
    core = install("core", wheel, "", None)
    print("| installed | command | result |\n|---|---|---|")
    ended = [run(core, case, "core", refused=bool(case.extra)) for case in TRIES]
    extras = dict.fromkeys(case.extra for case in TRIES if case.extra)
    places = {extra: [extra] for extra in extras} | ({"all": [*extras]} if arguments else {})
    for place, names in places.items():
        python = install(place, wheel, f"[{','.join(names)}]", core)
        cases = [case for case in TRIES if case.extra in names]
        ended += [run(python, case, place, refused=False) for case in cases]
    return not all(ended)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
