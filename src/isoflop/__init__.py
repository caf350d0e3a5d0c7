"""isoflop: small GPTs compared at equal training compute."""
