"""Train a ProtoPNet and measure its explanations in plain Python.

    python examples/train_and_evaluate.py

`python train.py fit --config configs/quickstart.yaml` does the same from a config file, and writes a run folder with
checkpoints, pictures, intervals and a report.
"""

from lightning import Trainer, seed_everything

from protometry.callbacks import Interpretability, PhaseProgressBar, PhaseSchedule
from protometry.datamodules import SketchBirds
from protometry.lightning_modules import ProtoPNet

seed_everything(0)
data = SketchBirds("tiny", image_size=64, batch_size=32)  # eight species of birds, drawn while they are loaded
model = ProtoPNet(
    num_classes=data.num_classes,
    image_size=data.image_size,
    backbone={"name": "sketch", "until": "block3"},
    preset="sketch",  # the schedule: warm up, train jointly, project prototypes, solve the last layer
    similarity="cosine",
    addon="linear",
)
trainer = Trainer(
    max_epochs=-1,  # as many as the schedule has
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    callbacks=[
        PhaseSchedule(seed=0),  # the first callback: it switches from phase to phase
        PhaseProgressBar(),
        Interpretability(["general", "compactness", "continuity/plc", "alignment/on_object"]),
    ],
)
trainer.fit(model, data)
(values,) = trainer.test(model, data, verbose=False)
for key, value in values.items():
    print(f"{key:<40} {value:8.3f}")
