"""Lists the pages that make promises, and phrases on them that only look like promises."""

PAGES = (
    "README.md",
    "docs/md-gan-here.md",
    "docs/nvflare.md",
    "docs/privacy.md",
    "docs/release.md",
    "docs/secure-aggregation.md",
    "docs/security.md",
    "docs/stability.md",
)

NOT_YET: tuple[str, ...] = ()
"""Their anchors and quotes are checked; a promise in them may still be without an anchor."""

PROMISE_WORDS = (
    r"never|always|cannot|can neither|exactly|only|alone|nothing|nobody|neither|guarantee[sd]?",
    r"whatever|whoever|bit for bit|the same bits|at most|refuse[sd]?|no more|no longer|any more",
    r"no(?: other| single| honest| real)? (?:sample|host|worker|server|machine|user)s?",
    r"no(?: other| single)? (?:name|file|port|trace)s?",
    r"without (?:a|any) (?:certificate|trace)|encrypted|ignored|no strike|shut out|change no",
    r"keeps? (?:new ones )?out|close[sd]? that|bounds (?:it|them|what)",
)

NO_PROMISES: dict[str, tuple[str, ...]] = {
    "README.md": ("data that cannot be moved",),
    "docs/nvflare.md": ("neither NVFlare's server nor a site",),
    "docs/security.md": (
        # What is not protected:
        "A host without a certificate of its own is its address",
    ),
    "docs/stability.md": ("a new first number alone may break",),
}
"""By page: phrases that have a promise's word and promise nothing."""
