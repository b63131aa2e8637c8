"""What a machine that joins takes from a server."""

from mdgan.launch.guests import of_the_run
from mdgan.launch.resolve import known_settings

OF_THE_RUN = {"algorithm": "mdgan", "dataset": "digits", "dp_epsilon": 8.0, "seed": 3}


def test_a_server_says_nothing_of_what_is_the_users_own() -> None:
    own = {
        **{"datasets_dir": "/tmp", "data_dir": "/", "log_file": "/etc/motd", "insecure": True},
        **{"dp_ledger": "/tmp/new", "relay": "always", "require": "dp"},
    }
    assert own.keys() <= known_settings()
    told = {"version": "1", "dataset_sha256": "0", "extractor": "x", **own, **OF_THE_RUN, "new": 1}
    assert of_the_run(told) == OF_THE_RUN
