"""Trees and forests: thresholds lie between training values, and counts in leaves tell records apart."""

from collections.abc import Iterator

from exhume.scanning.finding import Certainty, Finding, Holds
from exhume.scanning.inventory import Inventory

FORESTS = (
    "RandomForest",
    "ExtraTrees",
    "DecisionTree",
    "ExtraTree",
    "GradientBoosting",
    "HistGradientBoosting",
    "IsolationForest",
)
NODES = ("TreeEnsembleClassifier", "TreeEnsembleRegressor", "TreeEnsemble")


def find(inventory: Inventory) -> Iterator[Finding]:
    for file, contents in inventory.models:
        found = [item for item in contents.objects if item.class_name in NODES or _is_forest(item.class_name)]
        whole = [
            item for item in found if not any(_inside(item.where, other.where) for other in found if other is not item)
        ]
        for model in whole:
            yield Finding(
                rule="trees",
                holds=Holds.LEAD,
                certainty=Certainty.LIKELY,
                what=f"decision trees ({model.class_name})",
                where=f"{file.name}: {model.where or model.class_name}",
                gives_away="thresholds between training values, and with counts in the leaves often whole records",
                remedy="limit the depth, ask for many records per leaf, publish no counts",
                attack="not in exhume: DRAFT (arXiv 2402.19232) reconstructs the records of forests",
            )


def _is_forest(name: str) -> bool:
    return name.startswith(FORESTS) and name.endswith(("Classifier", "Regressor", "Forest"))


def _inside(place: str, other: str) -> bool:
    return place != other and (other == "" or place.startswith((f"{other}.", f"{other}[")))
