"""The attack of misalignment lowers a score from inside its mask only."""

import pytest
import torch
from torch import nn

from protometry.metrics.functional import keyed_uniform, masked_projected_gradient
from tests.rounding import tolerance


def images(batch=4, dtype=torch.float32):
    return torch.rand(batch, 3, 6, 8, generator=torch.Generator().manual_seed(0)).to(dtype)


class TestMaskedProjectedGradient:
    MASK = torch.ones(4, 1, 6, 8, dtype=torch.bool)

    def test_linear_score_by_hand(self):
        # weights 1, -1, 0: 0.5 - 3 * 0.1 = 0.2, 0.5 + 0.3 = 0.8, no gradient; the ball stops at 0.25
        weight = torch.tensor([1.0, -1.0, 0.0]).view(3, 1, 1)
        clean, mask = torch.full((1, 3, 1, 2), 0.5), torch.tensor([[[[True, False]]]])
        attacked = masked_projected_gradient(lambda x: (weight * x).sum((1, 2, 3)), clean, mask, 1.0, 0.1, steps=3)
        assert attacked[0, :, 0, 0].tolist() == pytest.approx([0.2, 0.8, 0.5])
        assert attacked[0, :, 0, 1].tolist() == [0.5] * 3
        attacked = masked_projected_gradient(lambda x: weight * x, clean, mask, 0.25, 0.1, steps=10)
        assert attacked[0, :, 0, 0].tolist() == pytest.approx([0.25, 0.75, 0.5])

    def test_per_channel_sizes_and_frame(self):
        clean = torch.full((2, 3, 2, 2), 0.5)
        epsilon, step = torch.tensor([0.1, 0.2, 0.9]).view(3, 1, 1), torch.tensor([0.01, 0.1, 0.3]).view(3, 1, 1)
        for clamp, last in ((True, 0.0), (False, -0.4)):
            attacked = masked_projected_gradient(
                torch.sum, clean, self.MASK[:2, :, :2, :2], epsilon, step, 40, None, clamp
            )
            assert attacked[0, :, 0, 0].tolist() == pytest.approx([0.4, 0.3, last], abs=tolerance(40))

    def test_empty_mask_changes_nothing(self):
        clean = images() * 3 - 1
        start = torch.ones_like(clean)
        attacked = masked_projected_gradient(torch.sum, clean, ~self.MASK, 0.5, 0.1, steps=2, start=start)
        assert torch.equal(attacked, clean)

    def test_start_alone(self):
        start = 0.3 * keyed_uniform(torch.arange(4), torch.zeros(4, 1, dtype=torch.int64), (3, 6, 8))[:, 0]
        attacked = masked_projected_gradient(torch.sum, images(), self.MASK, 0.3, 0.1, steps=0, start=start)
        assert torch.allclose(attacked, (images() + start).clamp(0, 1))
        far = masked_projected_gradient(torch.sum, images(), self.MASK, 0.1, 0.1, steps=0, start=start, clamp=False)
        assert (far - images()).abs().max() <= 0.1 + tolerance(2)
        assert torch.equal(masked_projected_gradient(torch.sum, images(), self.MASK, 0.3, 0.1, steps=0), images())

    def test_lowers_the_score_more_than_noise(self):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 1, 3))
        norms = []

        def score(x):
            value = model(x).amax((1, 2, 3))
            norms.append(torch.autograd.grad(value.sum(), x, retain_graph=True)[0].norm())
            return value

        mask = self.MASK.clone()
        mask[..., :3] = False
        start = 0.1 * keyed_uniform(torch.arange(4), torch.zeros(4, 1, dtype=torch.int64), (3, 6, 8))[:, 0]
        attacked = masked_projected_gradient(score, images(), mask, 0.1, 0.01, steps=20, start=start)
        noise = masked_projected_gradient(score, images(), mask, 0.1, 0.01, steps=0, start=start)
        assert len(norms) == 20
        assert min(norms) > 0
        with torch.no_grad():
            clean, noisy, low = (model(x).amax((1, 2, 3)) for x in (images(), noise, attacked))
        assert ((clean - low) > (clean - noisy).abs()).all()
        assert torch.equal(attacked[..., :3], images()[..., :3])
        assert all(parameter.grad is None for parameter in model.parameters())
        assert not attacked.requires_grad

    def test_inference_mode(self):
        with torch.inference_mode():
            attacked = masked_projected_gradient(lambda x: x.square(), images(), self.MASK, 0.1, 0.01, steps=4)
        expected = masked_projected_gradient(lambda x: x.square(), images(), self.MASK, 0.1, 0.01, steps=4)
        assert torch.equal(attacked, expected)
        assert torch.allclose(attacked, (images() - 0.04).clamp(min=0), rtol=0, atol=tolerance(4))
