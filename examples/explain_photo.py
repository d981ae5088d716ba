"""Explain one photo by a trained model: the parts that decided, as a picture and as numbers.

python examples/explain_photo.py runs/quickstart/checkpoints/last.ckpt
python examples/explain_photo.py runs/quickstart/checkpoints/last.ckpt PHOTO
"""

import sys

import torch

from protometry import explain
from protometry.datamodules import load_datamodule
from protometry.datamodules.photos.one_photo import read_photo
from protometry.lightning_modules import load_model

checkpoint, *photos = sys.argv[1:]
model = load_model(checkpoint).eval()
data = load_datamodule(checkpoint)
sample = read_photo(photos[0], data) if photos else data.dataset("test")[0]

with torch.no_grad():
    output = model(sample["image"][None])  # logits (1, K), scores (1, U) and maps (1, U, h, w) of the units
predicted = int(output.logits[0].argmax())
print(f"{sample['sample_id']}: {data.class_names[predicted]}, {output.logits.softmax(1).max():.1%}")

weight = model.units().weight  # (K, U)
contributions = (weight - weight.mean(0))[predicted] * output.scores[0]  # above the mean over classes
for unit in contributions.argsort(descending=True)[:5].tolist():
    print(f"  unit {unit}: score {output.scores[0, unit]:.2f}, contribution {contributions[unit]:+.2f}")

explain(model, data, sample).save("explained.png")
print("The same as a picture: explained.png")
