"""A concept bottleneck whose wrong concepts a person corrects: how much better does it decide?

python examples/correct_concepts.py
"""

import torch
from lightning import Trainer, seed_everything

from protometry.callbacks import PhaseSchedule
from protometry.datamodules import SketchBirds
from protometry.lightning_modules import ConceptBottleneck

seed_everything(0)
data = SketchBirds("tiny", image_size=64, batch_size=32)
data.setup("fit")
model = ConceptBottleneck(
    num_classes=data.num_classes,
    num_concepts=data.num_concepts,
    image_size=data.image_size,
    backbone={"name": "sketch"},
    preset="sketch_independent",  # concepts from images, then classes from true concepts
    epoch_scale=0.25,  # so short that there is something left to correct
)
trainer = Trainer(
    max_epochs=-1, accelerator="cpu", logger=False, enable_checkpointing=False, callbacks=[PhaseSchedule(seed=0)]
)
trainer.fit(model, data)

model.eval()
data.setup("test")
right = dict.fromkeys((0, 2, 4, 8), 0)
with torch.no_grad():
    for batch in data.test_dataloader():
        scores, truth = model(batch["image"]).scores, batch["concepts"].bool()
        doubt = -(model.concept_probabilities(scores) - 0.5).abs()  # least certain concepts first
        place = doubt.argsort(dim=1, descending=True).argsort(dim=1)
        for corrected in right:
            logits = model.head(model.intervene(scores, truth, mask=place < corrected))
            right[corrected] += int((logits.argmax(1) == batch["label"]).sum())

for corrected, number in right.items():
    print(f"{corrected} of {data.num_concepts} concepts corrected: {number / len(data.dataset('test')):.1%} right")
