"""The rules `f2u` and `f2a` of `--aggregation`, which listen to the judges that forgive most.

    f2u                the feedback of the most forgiving judge alone
    f2a, f2a:LAMBDA    all of it, weighed with softmax(λ D_n(x)) over the judges; λ is 1, or LAMBDA

A discriminator calls generated what its own data do not hold. Where data differ between workers,
the mean of all judges therefore punishes a sample for being unlike the data of most, even if it is
exactly what one worker holds (Yonetani et al. 2019, "Decentralized Learning of Generative
Adversarial Networks from Non-iid Data"). An output is a logit D_n(x); high means that D_n calls x
real. The weights multiply F_n, the gradient of every judge's own loss.

Weights count as constants: no gradient goes through them. For F2U that is exact. For F2A it leaves
out how x moves the weights, which depends on the outputs of other workers. The direction that is
left is the intended one: to fool those judges better, not to change which judges count.

A discriminator with BatchNorm in training sees all samples of a batch at once. F_n of a sample then
contains its effect on the outputs on the others, but the weights are those of this sample.

Neither rule withstands liars: under F2U a worker that claims the highest output decides alone.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from mdgan.families.mdgan.settings import AggregationRule


def weights(rule: AggregationRule, outputs: Tensor) -> Tensor:
    """How much each judge's feedback on each sample counts, float64 [m, b]; 1 over all judges.

    Of several equally forgiving judges f2u takes the first. Outputs are D_n(x), [m, b].
    """
    if rule.name == "f2u":
        return F.one_hot(outputs.argmax(0), len(outputs)).T.double()
    # Subtract first: λ D_n may exceed float64, and one of the differences is always 0.
    behind = outputs.double() - outputs.double().amax(0)
    return torch.softmax(rule.parameter * behind, 0)


def weighted(
    rule: AggregationRule, feedbacks: Sequence[Tensor], outputs: Sequence[Tensor]
) -> Tensor:
    """The feedback of all judges of a batch, weighed and summed; of a single one its F_n."""
    shares = weights(rule, torch.stack(list(outputs)))[:, :, None, None, None]
    total = shares[0] * feedbacks[0]
    for share, feedback in zip(shares[1:], feedbacks[1:], strict=True):
        total += share * feedback
    return total
