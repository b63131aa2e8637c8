"""A study as a job of NVFlare: a server and three sites as processes of this machine."""

from collections.abc import Iterator

import pytest

from tests.poc import Poc, started
from tests.processes import generator_bytes, run

pytest.importorskip("nvflare")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def poc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Poc]:
    with started(tmp_path_factory.mktemp("poc")) as poc:
        yield poc


def test_three_sites_give_the_generator_of_one_command(poc: Poc) -> None:
    status, log, result = poc.run_job("digits")
    assert status == "FINISHED:COMPLETED", log
    assert "done: 30 of 30 iterations" in log
    study = str(poc.folder / "digits.json")
    alone = run("train", "--config", study, "--out", "alone", cwd=poc.folder)
    assert alone.status == 0, alone.errors
    assert generator_bytes(result / "mdgan") == generator_bytes(poc.folder / "alone")
    assert (result / "mdgan" / "report.html").is_file()
    assert not (result / "mdgan" / "checkpoints").exists()


def test_what_keeps_a_site_out_is_a_line_in_the_log(poc: Poc) -> None:
    own = poc.site("site-2", approved=[])
    status, log, _ = poc.run_job("unknown", seed=4)
    assert status != "FINISHED:COMPLETED"
    assert "site-2: the study with hash" in log
    study = str(poc.folder / "unknown.json")
    assert run("approve", study, "--site", str(own), cwd=poc.folder).status == 0
    status, log, _ = poc.run_job("known", seed=4)
    assert status == "FINISHED:COMPLETED", log
    status, log, _ = poc.run_job("more", seed=4, world_size=5)
    assert status != "FINISHED:COMPLETED"
    assert "the study has 4 workers, and 3 sites take part" in log
