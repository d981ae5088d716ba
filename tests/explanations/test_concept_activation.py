import torch

from protometry.explanations import CoAM, Targets
from protometry.lightning_modules import Classifier, ConceptBottleneck
from tests.explanations.small_models import rand


def test_maps_are_the_projection_of_every_cell():
    torch.manual_seed(0)
    model, images = ConceptBottleneck(num_concepts=3, num_classes=4, image_size=(32, 48)).eval(), rand(2, 3, 32, 48)
    output, units, explainer = model(images), model.units(), CoAM()
    targets = Targets("unit", torch.tensor([[0, 1, 2], [0, 1, 2]]))
    maps = explainer.attribute(model, images, targets)
    embedded = output.latent.mean(dim=(2, 3))
    assert torch.allclose(embedded.shape[1] * maps.mean(dim=(2, 3)), embedded @ units.vectors.T, atol=1e-4)
    by_class = explainer.attribute(model, images, Targets("class", torch.tensor([[1], [3]])))[:, 0]
    summed = torch.einsum("bu,buij->bij", units.weight[[1, 3]], maps)
    assert torch.allclose(by_class, summed, atol=1e-5)
    own = CoAM(scale="score").attribute(model, images, targets)
    assert torch.allclose(own.mean(dim=(2, 3)).sigmoid(), output.scores, atol=1e-5)  # what the head reads


def test_units_must_be_concepts():
    model = Classifier(num_classes=4, image_size=(32, 32)).eval()
    assert CoAM().supports(model) == "its units are not concepts"
