"""`download`: params `data` -> data/raw."""

from __future__ import annotations

from isoflop import paths
from isoflop.corpus.download import download
from isoflop.params import load_params
from isoflop.stages import run


def main() -> None:
    download(load_params(paths.PARAMS).data, paths.RAW)


if __name__ == "__main__":
    run(main)
