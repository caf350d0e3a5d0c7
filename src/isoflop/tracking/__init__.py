"""MLflow as a view of the runs: its store, live logging, backfill and queries.

The files of a run are the truth; whatever is missing from the store is filled in from them. Nothing is
imported here, so that a stage depends on no more than what it uses:

    identity   what a run is called in the store
    database   where the store lies and how it is made (imports mlflow)
    store      what is written to a run and read from it (imports mlflow)
    reading    what a sqlite store holds, read without mlflow
    contents   the files of a run, read as what the store should say
    live       the recorder that writes a run down while it trains
    sync       backfill from files, runs of dead processes
    queries    earlier runs, with their evaluations
"""
