"""Writes the results of an audit as text for the terminal."""

from mdgan.observe.text_table import text_table
from mdgan.records.audit import FOUND_AT, Audit, Bound, Separation
from mdgan.records.values import said, said_list

_MOST_ROWS = 20
_HEADINGS = (*("attack", "against samples of", "members / non-members", "AUC", "±"), *FOUND_AT)


def audit_in_words(results: Audit) -> str:
    """The tables of an audit, without a line break at the end."""
    at = "" if results.checkpoint is None else f", discriminators of iteration {results.checkpoint}"
    lines = []
    if results.bound and results.bound.contradicts:
        right, guesses = results.bound.right, results.bound.guesses
        guessed = f"An attacker guessed {right:,} of {guesses:,} canaries right. "
        lines.append(
            f"THE STATED ε IS WRONG: {results.bound}. {'' if results.bound.flaws else guessed}"
            "Do not pass on what this run made of private data"
        )
    lines += [
        f"generator of iteration {results.iteration}{at}; AUC 0.5 is guessing, 1 is certainty",
        text_table(_membership(results), _HEADINGS, right=(3, 4, 5, 6), indent=2),
    ]
    hidden = len(results.discriminators) - _MOST_ROWS
    if hidden > 0:
        lines.append(f"  … and {hidden} more discriminators, which audit.json has")
    lines.append("does the generator copy?")
    rows = [
        (f"by {copy.space}", said(copy.ratio), copy.nearer_in_words()) for copy in results.generator
    ]
    headings = ("distance", "trained on / held out", "nearer to one trained on")
    lines.append(text_table(rows, headings, right=(1, 2), indent=2))
    if results.inversions:
        lines.append("what a single answer tells of its batch")
        lines.append(_inversions(results))
    if results.epsilon:
        worst = max(results.epsilon.values())
        lines.append(f"differential privacy: ε = {said(worst)} at most is spent")
    if results.bound:
        lines += _bound(results.bound)
    lines += [f"left out: {what}: {why}" for what, why in results.left_out.items()]
    return "\n".join(lines)


def _bound(bound: Bound) -> list[str]:
    lines = [f"by {bound.canaries:,} canaries ({bound.kind}): {bound}"]
    if bound.noise is not None and bound.longest is not None:
        longest = f"; a sample adds {bound.longest:.3g} C at most" if bound.longest else ""
        lines.append(f"directly: the noise is {bound.noise:.4g} of what is stated{longest}")
    return lines


def _membership(results: Audit) -> list[tuple[str, ...]]:
    rows = []
    for judged in results.discriminators[:_MOST_ROWS]:
        whose = f"discriminator at worker {judged.worker}" if judged.worker else "discriminator"
        trainers = list(judged.iterations)
        every = f"workers {said_list(sorted(trainers))}" if len(trainers) > 1 else "all workers"
        if judged.last:
            rows.append((whose, f"worker {judged.last}", *_numbers(judged.of_last)))
        if judged.of_all != judged.of_last or not judged.last:
            rows.append((whose, every, *_numbers(judged.of_all)))
    for copy in results.generator:
        rows.append((f"generator, by {copy.space}", "all workers", *_numbers(copy.membership)))
    return rows


def _numbers(results: Separation) -> tuple[str, ...]:
    return (
        f"{results.members:,} / {results.others:,}",
        f"{results.auc:.3f}",
        f"{results.error:.3f}",
        *results.found_in_words(),
    )


def _inversions(results: Audit) -> str:
    rows = [
        (
            inversion.answer,
            str(inversion.batch_size),
            f"{inversion.found.auc:.3f}",
            "" if inversion.blind is None else f"{inversion.blind.auc:.3f}",
            f"{inversion.psnr:.1f}",
            f"{inversion.control_psnr:.1f}",
            "" if inversion.ssim is None else f"{inversion.ssim:.2f}",
            f"{inversion.best_psnr:.1f}",
        )
        for inversion in results.inversions
    ]
    headings = (
        *("answer", "batch", "AUC of its samples", "blind AUC", "PSNR [dB]", "of others [dB]"),
        *("SSIM", "best PSNR [dB]"),
    )
    return text_table(rows, headings, right=range(1, 8), indent=2)
